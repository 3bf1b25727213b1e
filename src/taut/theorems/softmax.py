"""Statements about softmax itself."""

from taut.theorems.entry import Theorem

_FUNCTION = "Softmax as a function"
_GLOBAL = "Global constants"
_LOCAL = "Local constants at a point"
_ALL = "all x in R^n"
_POINT = "the point x, any n ≥ 1"

SOFTMAX = (
    Theorem(
        "shift",
        _FUNCTION,
        "softmax(x + c·1) = softmax(x)",
        _ALL,
        "the factor e^c cancels",
        "equality",
        "lecture notes property 1",
    ),
    Theorem(
        "inverse",
        _FUNCTION,
        "log s + c·1 recovers λx up to c; the mean, one logit or the log-sum-exp fixes c",
        "s in the simplex; a zero probability gives the logit −inf",
        "log s = λx − λ·lse(x)·1",
        "equality",
        "lecture notes property 2",
    ),
    Theorem(
        "superposition",
        _FUNCTION,
        "softmax(Σ αₖxₖ) ∝ ⊙ softmax(xₖ)^αₖ",
        "real αₖ; an entry that is masked in xₖ needs αₖ ≥ 0",
        "exponentials multiply; computed in the log domain, where no factor underflows",
        "equality",
        "lecture notes property 3",
    ),
    Theorem(
        "sharpness",
        _FUNCTION,
        "λ→∞: uniform over the maxima; λ→0: uniform; λ→−∞: uniform over the minima",
        _ALL,
        "every exponent λ(xᵢ − x₁) tends to −inf or stays 0",
        "equality",
        "lecture notes property 5, corrected",
    ),
    Theorem(
        "stable",
        _FUNCTION,
        "after subtracting the maximum every exponent is ≤ 0 and the denominator is ≥ 1",
        _ALL,
        "shift with c = −max x",
        "equality",
        "lecture notes",
    ),
    Theorem(
        "two-class",
        _FUNCTION,
        "softmax(z)₁ = 1/(1 + e^{z₂ − z₁})",
        "n = 2",
        "divide by e^{z₁}",
        "equality",
        "lecture notes",
    ),
    Theorem(
        "jacobian",
        _FUNCTION,
        "J = λ(Diag(s) − ssᵀ) is symmetric positive semidefinite, J1 = 0, Jv = λ s∘(v − ⟨s,v⟩1)",
        _ALL,
        "differentiate; vᵀMv is the variance of v under s",
        "equality",
        "Nair 2025 lemma 2, lecture notes, softmax note",
    ),
    Theorem(
        "lse",
        _FUNCTION,
        "lse(x) = (1/λ) log Σ exp(λxᵢ) has gradient softmax(λx), lies in "
        "[max x, max x + (log n)/λ] and is (λ/2)-smooth in l2; "
        "x ↦ lse(Ax + b) is smooth with (λ/2)‖A‖₂²",
        _ALL,
        "its Hessian is J, and softmax-lp bounds J",
        "λ/2 is tight; with A it is an upper bound",
        "softmax note proposition 1, Nair 2025 section 1",
    ),
    Theorem(
        "softmax-lp",
        _GLOBAL,
        "‖σ(x) − σ(y)‖_p ≤ (λ/2)‖x − y‖_p for every p in [1, ∞]",
        "all x, y in R^n, n ≥ 2 (the constant is 0 for n = 1)",
        "‖M‖₁ = ‖M‖_∞ = 2s₁(1 − s₁) ≤ 1/2, and Riesz–Thorin between them",
        "p = 1, ∞: attained at x = (ln(n−1)/λ, 0, …, 0); 1 < p < ∞: attained for n = 2, "
        "approached along s = (½−δ, ½−δ, 2δ/(n−2), …) for n ≥ 3",
        "Nair 2025 theorem 1 and proposition 2; Newhouse 2025 for p = 2",
    ),
    Theorem(
        "cocoercive",
        _GLOBAL,
        "⟨σ(x) − σ(y), x − y⟩ ≥ (2/λ)‖σ(x) − σ(y)‖₂²; firmly nonexpansive for λ ≤ 2, "
        "contractive for λ < 2",
        "all x, y in R^n, λ > 0",
        "Baillon–Haddad for the (λ/2)-smooth convex lse",
        "approached as softmax-lp with p = 2",
        "Nair 2025 corollary 1",
    ),
    Theorem(
        "inf-to-1",
        _GLOBAL,
        "‖σ(x) − σ(y)‖₁ ≤ λ‖x − y‖_∞; at a point ‖M‖_{∞→1} = 4 max_S P(S)(1 − P(S))",
        "all x, y in R^n, n ≥ 2",
        "εᵀMε = 1 − (Σ sᵢεᵢ)² for signs ε, and a positive semidefinite form peaks on the diagonal",
        "attained where some subset has probability ½",
        "taut",
    ),
    Theorem(
        "1-to-inf",
        _GLOBAL,
        "‖σ(x) − σ(y)‖_∞ ≤ (λ/4)‖x − y‖₁; at a point ‖M‖_{1→∞} = s₁(1 − s₁)",
        "all x, y in R^n, n ≥ 2",
        "the largest entry of M stands on the diagonal",
        "attained at s₁ = ½",
        "Nair 2025 section 3",
    ),
    Theorem(
        "1-to-q",
        _GLOBAL,
        "‖σ(x) − σ(y)‖_q ≤ λ·2^{1/q − 2}‖x − y‖₁; at a point ‖M‖_{1→q} = "
        "maxⱼ sⱼ((1−sⱼ)^q + Σ_{i≠j} sᵢ^q)^{1/q}, and ‖M‖_{p→∞} = ‖M‖_{1→p′}",
        "all x, y in R^n, n ≥ 2, 1 ≤ q ≤ ∞",
        "the largest column norm; Σ_{i≠j} sᵢ^q ≤ (1−sⱼ)^q and u(1−u) ≤ 1/4; M is symmetric",
        "attained for n = 2 at s = (½, ½), approached for n ≥ 3 (for q = 1 and ∞ attained)",
        "taut",
    ),
    Theorem(
        "tv-step",
        _GLOBAL,
        "½‖σ(x + d) − σ(x)‖₁ ≤ tanh(λ·osc(d)/4); ‖σ(x + d) − σ(x)‖_p ≤ 2^{1/p} of it",
        "all x, d in R^n",
        "for a set S, logit P(S) moves by at most λ·osc(d); sigmoid(a+b) − sigmoid(a) ≤ tanh(b/4)",
        "attained for n = 2 at x = −d/2",
        "taut",
    ),
    Theorem(
        "entropy-floor",
        _GLOBAL,
        "‖λx‖₂ ≤ c gives H(softmax(λx)) ≥ log(1 + (n−1)β) + c√(n(n−1))·β/(1 + (n−1)β), "
        "β = exp(−c√(n/(n−1)))",
        "‖λx‖₂ ≤ c, n ≥ 2",
        "the minimiser puts one logit up and the others equally down",
        "attained",
        "Zhai 2023 theorem 3.1",
    ),
    Theorem(
        "local-1-inf",
        _LOCAL,
        "‖M‖₁ = ‖M‖_∞ = 2s₁(1 − s₁)",
        _POINT,
        "the absolute row sum is 2sᵢ(1 − sᵢ), and the largest probability wins: if s₁ > ½ every "
        "other sᵢ ≤ 1 − s₁ < ½",
        "equality",
        "Nair 2025 proposition 2",
    ),
    Theorem(
        "local-2",
        _LOCAL,
        "‖M‖₂ is the root μ in (s₂, s₁) of Σ sᵢ/(sᵢ − μ) = 0, and s₁ when s₁ = s₂; "
        "the eigenvector is vᵢ ∝ sᵢ/(sᵢ − μ)",
        "the point x, n ≥ 2 (the norm is 0 for n = 1)",
        "secular equation of a diagonal matrix minus a rank-one matrix",
        "equality",
        "taut, after Golub 1973",
    ),
    Theorem(
        "local-2-bracket",
        _LOCAL,
        "½(s₁ + s₂ − (s₁ − s₂)²) ≤ ‖M‖₂ ≤ s₁(1 − s₁ + s₂)",
        _POINT,
        "lower: Rayleigh quotient of e₁ − e₂; upper: Yudin 2025",
        "both sides attained for n = 2",
        "Yudin 2025 (upper), taut (lower)",
    ),
    Theorem(
        "dual",
        _LOCAL,
        "‖M‖_p = ‖M‖_{p′}",
        _POINT,
        "M is symmetric",
        "equality",
        "taut",
    ),
    Theorem(
        "local-p-bracket",
        _LOCAL,
        "‖Mv‖_p/‖v‖_p ≤ ‖M‖_p ≤ ‖M‖₁^θ ‖M‖₂^{1−θ} with θ = |1 − 2/p|",
        "the point x, any v ≠ 0",
        "Riesz–Thorin between 1 and 2, or 2 and ∞; the lower side is an evaluation",
        "upper attained for n = 2, whatever p is",
        "taut; Nair 2025 proposition 1 interpolates 1 to ∞",
    ),
    Theorem(
        "local-p-dual",
        _LOCAL,
        "for p > 2 a maximiser of ‖Mv‖_p/‖v‖_p has at most one index with |vᵢ| < γᵢ|vᵢ − ⟨s,v⟩|, "
        "γᵢ = (sᵢ/B)^{p/(p−2)} for any B ≥ ‖M‖_p; weak duality over the other entries, a scan of "
        "(v₁, v₁ − ⟨s,v⟩) and branch and bound then prove ‖M‖_p ≤ K",
        "the point x, 1 < p < ∞, by dual also p < 2",
        "two such indices would allow a direction along which the quotient grows",
        "K is within 0.1 % of the lower side on most rows, within 1 % on all rows of the benchmark",
        "taut",
    ),
    Theorem(
        "radius",
        _LOCAL,
        "for ‖δ‖_∞ ≤ r the log-odds of every sᵢ range exactly over log(sᵢ/(1−sᵢ)) ± 2λr; "
        "the largest 1- and ∞-constant in the box is maxᵢ 2u(1−u) over those intervals",
        "the box ‖δ‖_∞ ≤ r around x",
        "move one logit up and all others down, or the reverse",
        "attained",
        "taut",
    ),
    Theorem(
        "bounded-logits",
        _LOCAL,
        "osc(λx) ≤ R gives s₁ ≤ 1/(1 + (n−1)e^{−R}); while that is below ½ the l_p constant is at "
        "most λ·2s₁(1−s₁) there, below λ/2",
        "osc(λx) ≤ R, n ≥ 2",
        "s₁ is largest when all others sit R below it; 2u(1−u) grows up to ½",
        "attained for p = 1, ∞",
        "taut",
    ),
)
