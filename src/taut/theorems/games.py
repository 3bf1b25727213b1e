"""Statements about entropy-regularised games and softmax policies.

Notation: payoffs A, temperature τ, T(y) = σ(Aᵀσ(−Ay/τ)/τ), D = max |A_ij − A_kj − A_il + A_kl|,
r = D/4τ, TV = half the l_1 distance, KL = Kullback–Leibler divergence, g = duality gap.
"""

from taut.theorems.entry import Theorem

_ZERO_SUM = "Entropy-regularised zero-sum games"
_LOGIT = "Logit equilibria and softmax policies"
_ANY = "every matrix A and τ > 0, all mixed strategies"

GAMES = (
    Theorem(
        "dsfp-2",
        _ZERO_SUM,
        "‖T(y) − T(y′)‖₂ ≤ κ‖y − y′‖₂ with κ = ‖A‖₂²/(4τ²); with damping α the factor is "
        "(1 − α) + ακ",
        _ANY,
        "two softmaxes, each ½-Lipschitz at scale 1/τ, between A and Aᵀ",
        "attained for A = [[1, −1], [−1, 1]] at the uniform strategies",
        "Nair 2025 theorem 3 (p = 2)",
    ),
    Theorem(
        "dsfp-p",
        _ZERO_SUM,
        "‖T(y) − T(y′)‖_p ≤ κ‖y − y′‖_p with κ = ‖A‖_p‖A‖_{p′}/(4τ²)",
        _ANY + ", 1 ≤ p ≤ ∞",
        "as dsfp-2; ‖Aᵀ‖_p = ‖A‖_{p′}",
        "attained for A = [[1, −1], [−1, 1]] at the uniform strategies",
        "Nair 2025 theorem 3, corrected",
    ),
    Theorem(
        "dsfp-tv",
        _ZERO_SUM,
        "TV(T(y), T(y′)) ≤ r² TV(y, y′), r = D/4τ; D ≤ 2‖A‖_p for every p, so no dsfp-p is better",
        _ANY,
        "osc(A(y − y′)) ≤ D·TV(y, y′), and TV(σ(u), σ(u′)) ≤ osc(u − u′)/4",
        "attained for A = [[1, −1], [−1, 1]] at the uniform strategies",
        "taut",
    ),
    Theorem(
        "dsfp-gap",
        _ZERO_SUM,
        "if ρ = (1 − α) + ακ bounds the damped iteration, by dsfp-tv, dsfp-2 or dsfp-p, then "
        "after k rounds g(σ(−Ay/τ), T(y)) ≤ 2τκ ρ^{2(k−1)}",
        "every start, κ from one of the three theorems",
        "g = τKL(x ‖ σ(−AT(y)/τ)) ≤ osc²/8τ, and the distance of y and T(y) shrinks by ρ",
        "the rate ρ² a round is attained for [[1, −1], [−1, 1]] near the equilibrium",
        "taut",
    ),
    Theorem(
        "predictive",
        _ZERO_SUM,
        "the predictive update with s = ητ = 2/(1 + √(1 + 4r²)) has "
        "KL(ζ* ‖ ζ_t) ≤ (1 − s)^t KL(ζ* ‖ ζ_0) and, at its predictions, "
        "g(ζ̄_{t+1}) ≤ τ(1 + r²) s r² (1 − s)^t KL(ζ* ‖ ζ_0)",
        _ANY,
        "Cen, Wei and Chi's identity, with KL(ζ̄ ‖ ζ_{t+1}) ≤ (ηD/4)² KL(ζ̄ ‖ ζ_t) in place of "
        "Pinsker's inequality",
        "1 − s = r² + O(r⁴), the rate of plain iteration, as r → 0",
        "taut, after Cen 2021 theorem 1",
    ),
    Theorem(
        "gap",
        _ZERO_SUM,
        "g(x, y) = τKL(x ‖ σ(−Ay/τ)) + τKL(y ‖ σ(Aᵀx/τ)) is the duality gap, and "
        "(τ/2)(‖x − x*‖₁² + ‖y − y*‖₁²) ≤ g; logits perturbed by at most e move the root of a "
        "divergence by at most e/√2; max Aᵀx − min Ay ≤ g + τ(log n + log m)",
        _ANY,
        "the Bregman divergence of logsumexp is KL; both sides are strongly convex (Pinsker)",
        "the constant τ/2 is approached at uniform x* next to it, n = 2, as the game fades",
        "taut; the gap itself is standard",
    ),
    Theorem(
        "logit-tv",
        _LOGIT,
        "y ↦ σ(Bᵀσ(Ay/τ)/τ) contracts TV by r_A r_B with r_A = D_A/4τ, r_B = D_B/4τ; below 1 the "
        "logit equilibrium is unique and ‖y − y*‖₁ ≤ ‖y − T(y)‖₁/(1 − r_A r_B)",
        "all payoffs A, B and τ > 0",
        "as dsfp-tv: nothing in it needs B = −A",
        "attained for A = B = [[1, −1], [−1, 1]], where at r_A r_B = 1 two more equilibria appear",
        "taut",
    ),
    Theorem(
        "logit-regret",
        _LOGIT,
        "with U_i what each strategy of player i gains against the others, another strategy than "
        "x_i gains at most τKL(x_i ‖ σ(U_i/τ)) in the game with entropies and max U_i − U_i·x_i "
        "without, which is at most τ log n_i more",
        "all games of finitely many players, all mixed strategies and τ > 0",
        "U·q + τH(q) is largest at q = σ(U/τ), and falls short of it by τKL(q ‖ σ(U/τ))",
        "equality",
        "taut; standard",
    ),
    Theorem(
        "logit-newton",
        _LOGIT,
        "F(z) = z − U(σ(z))/τ of an N-player game has ‖F′(z) − F′(z′)‖_∞ ≤ L‖z − z′‖_∞ with "
        "L = (N − 1)²R/τ, R half the largest range of a strategy's payoffs over what the others "
        "play; if y ≥ ‖AF(z)‖_∞, k ≥ ‖1 − AF′(z)‖_∞, l ≥ ‖A‖_∞L and y − (1 − k)r + lr²/2 ≤ 0 for "
        "a matrix A and r < (1 − k)/l, there is exactly one zero within r of z, a logit "
        "equilibrium, whose strategies differ from σ(z) by at most r in l_1",
        "all games of finitely many players, all z and τ > 0",
        "E|ξη − E ξη| ≤ 1 for centred ξ, η whose values span at most 2, so the second derivative "
        "of σ is at most 1 from (l_∞, l_∞) to l_1; then Newton and Kantorovich",
        "L is attained by two players, one with four equally likely strategies and the other with "
        "payoffs ±R; the radius tends to the distance as z tends to the equilibrium",
        "taut, after Kantorovich",
    ),
    Theorem(
        "policy-scale",
        _LOGIT,
        "d log ‖M(λq)‖_p/dλ ≤ max q − E_s q for p = 1, 2, ∞, which falls as λ grows, so for λ′ ≥ λ "
        "‖M(λ′q)‖_p ≤ e^{(max q − E_s q)(λ′ − λ)} ‖M(λq)‖_p",
        "all q in R^n, λ ≥ 0, s = softmax(λq)",
        "‖M‖₂ is a variance, with derivative E[(q − Eq)(v − Ev)²]; ‖M‖₁ = 2s₁(1 − s₁) directly",
        "approached by q = (1, 1, 0, …, 0) for many zeros",
        "taut",
    ),
)
