"""Statements about attention maps.

Notation: P = row-wise softmax of the scores, α their factor, Cᵢ = Cov_{Pᵢ} of the values,
D = vⱼ − v̄ᵢ, gᵢⱼ the gradient of a score in the token yⱼ, A = αWkᵀWq, norms of weights spectral.
"""

from taut.theorems.entry import Theorem

_ATTENTION = "Attention"
_KEYS = "all queries, fixed keys, any mask or additive term"

ATTENTION = (
    Theorem(
        "affinity-seed",
        _ATTENTION,
        "‖softmax(αKq′) − softmax(αKq)‖₂ ≤ 2α‖K‖₂‖q′ − q‖₂",
        _KEYS,
        "the softmax was taken to be 2-Lipschitz; ½ is right",
        "never: it is at least four times too large",
        "Zhang et al. 2021 theorem 2.1",
    ),
    Theorem(
        "affinity",
        _ATTENTION,
        "‖softmax(αKq′) − softmax(αKq)‖_p ≤ (α/2)‖K − 1cᵀ‖_p‖q′ − q‖_p for every c",
        _KEYS + ", 1 ≤ p ≤ ∞",
        "softmax-lp, and shift: ⟨q, c⟩ is added to all scores of a row",
        "attained for two keys ±k at q = 0",
        "taut, after Zhang et al. 2021 theorem 2.1 and Nair 2025 theorem 1",
    ),
    Theorem(
        "affinity-diameter",
        _ATTENTION,
        "‖softmax(αKq′) − softmax(αKq)‖_p ≤ α 2^{1/p}/4 · max_{jl}‖kⱼ − kₗ‖_{p′} ‖q′ − q‖_p; never "
        "above affinity, and free of the number of keys",
        _KEYS + ", 1 ≤ p ≤ ∞",
        "s∘(w − ⟨s,w⟩) has positive and negative parts of the same sum, at most osc(w)/4",
        "attained at weights ½ and ½ on the two keys farthest apart, which some mask or additive "
        "term gives",
        "taut",
    ),
    Theorem(
        "affinity-local",
        _ATTENTION,
        "the derivative of softmax(αKq) in q has the norm α‖(Diag(s) − ssᵀ)K‖_p",
        "the query q, fixed keys",
        "chain rule with jacobian",
        "equality",
        "taut",
    ),
    Theorem(
        "scsa",
        _ATTENTION,
        "L₂ ≤ ε^{−1/2}(n²νλ‖Wk‖ + nνλ‖Wq‖ + 2nν‖Wv‖)",
        "rows u/√(‖u‖² + ε), u = Wx, output ν softmax(λQKᵀ)V; all inputs",
        "Qi et al. 2023 with the softmax constant ½",
        "never: scsa-cov is smaller by n^{3/2} in the first term",
        "Nair 2025 theorem 2",
    ),
    Theorem(
        "scsa-cov",
        _ATTENTION,
        "L₂ ≤ νε^{−1/2}(λ‖Wq‖ + √h(λ²/μ²)·‖[μWk; Wv]‖) for every μ > 0, with "
        "h(Γ) = maxⱼ Σᵢ max_p p(1 + Γ·min(1, 4p(1 − p))) over the weights p that can occur; at "
        "most νε^{−1/2}(λ‖Wq‖ + λ√n‖Wk‖ + √n‖Wv‖)",
        "as scsa, any mask",
        "covariances of vectors in the unit ball; Cauchy–Schwarz under Pᵢ",
        "attained by a single token; a search with several reached 0.95 of it",
        "taut",
    ),
    Theorem(
        "attn-local",
        _ATTENTION,
        "‖Df‖₂ ≤ min_θ maxⱼ √((1 + θ)Σᵢ Pᵢⱼκᵢ(w)²/wⱼ + (1 + 1/θ)‖Tⱼ‖²) for all w > 0, with "
        "κᵢ(w)² = ‖Σⱼ Pᵢⱼwⱼ(Wv + Dⱼgᵢⱼᵀ)(Wv + Dⱼgᵢⱼᵀ)ᵀ‖, Tᵢ = αΣⱼ Pᵢⱼ Dⱼkⱼᵀ Wq",
        "at given tokens, any mask, additive term, soft cap, rotation",
        "Cauchy–Schwarz under Pᵢ for keys and values together, exact query blocks",
        "attained by a single token; a search with several reached 0.99 of it and more",
        "taut",
    ),
    Theorem(
        "attn-token",
        _ATTENTION,
        "in the largest l2 norm of a token, ‖Df‖ ≤ maxᵢ (‖Tᵢ‖ + κᵢ) with κᵢ² = ‖WvWvᵀ + ‖gᵢ‖²Cᵢ‖; "
        "for tokens in a ball of radius R at most ‖Wv‖(‖A‖R² + √(1 + ‖A‖²R⁴))",
        "at given tokens, or all tokens of length at most R; any n, any mask",
        "Jensen's inequality under Pᵢ; the mixed term vanishes because D has mean 0",
        "attained by a single token, and by two tokens ±1 with A = 1.2 to eight digits",
        "taut",
    ),
    Theorem(
        "attn-ball",
        _ATTENTION,
        "L₂ ≤ ‖Wv‖(‖A‖R² + √h(‖A‖²R⁴)), h as in scsa-cov; at most ‖Wv‖(√n + ‖A‖R²(1 + √n))",
        "n tokens of length at most R, any mask",
        "attn-local, and a distribution on [−1, 1] with an atom p has variance at most "
        "min(1, 4p(1 − p))",
        "attained by a single token; a search with two reached 0.955 of it",
        "taut",
    ),
    Theorem(
        "attn-castin",
        _ATTENTION,
        "L₂ ≤ √3‖Wv‖√(‖A‖²R⁴(4n + 1) + n)",
        "n tokens of length at most R, no biases",
        "three terms, and (a + b + c)² ≤ 3(a² + b² + c²)",
        "never: attn-ball is smaller",
        "Castin 2024 theorem 3.3; implied by attn-ball",
    ),
    Theorem(
        "l2-kim",
        _ATTENTION,
        "L₂ ≤ √(n/w)(4ω + 1)√(Σ_h‖Wq‖⁴‖Wv‖²)‖Wo‖ with ω = W₀((n − 1)/e) and w the width of a head",
        "L2 self-attention with tied weights, all inputs",
        "a mean of squared distances under softmax(−distances) is at most ω",
        "never: l2-attention is smaller",
        "Kim 2021 theorem 3.2, corrected",
    ),
    Theorem(
        "l2-attention",
        _ATTENTION,
        "L₂ ≤ w^{−1/2}(√((n + 1)/2) + 2ω + 2√(ω₂ω(n − 1)))‖Wq‖‖[Wo Wv Wqᵀ]_h‖, "
        "ω = W₀((n − 1)/e), ω₂ = W₀(1/e); in the largest l2 norm of a token at most "
        "w^{−1/2}(1 + 4ω)‖Wo‖(Σ_h‖Wq‖²‖WvWqᵀ‖²)^{1/2}",
        "as l2-kim; any mask under which every token sees itself",
        "covariances under Pᵢ; no other token weighs more than the token itself",
        "attained by a single token",
        "taut",
    ),
)
