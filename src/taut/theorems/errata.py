"""Where the sources are wrong or silent, and what this library implements."""

from taut.theorems.entry import Erratum

ERRATA = (
    Erratum("Nair 2025 example 1", "ratio ≈ 0.4999999504472",
            "0.49999999504436 (50-digit arithmetic): a 9 was dropped in print"),
    Erratum("Nair 2025 example 2", "‖M(s)v‖_p = ½ − 2δ(1−δ) for v = 2^{−1/p}(1, −1, 0, …)",
            "½ − δ: ⟨s,v⟩ = 0, so M(s)v = s∘v; the sequence still tends to ½, faster"),
    Erratum("Nair 2025 section 4.3", "objective + τ(H(x) − H(y))",
            "−τH(x) + τH(y), the sign that the stated iteration solves"),
    Erratum("Nair 2025 theorem 3, proof", "‖Aᵀ‖_p = ‖A‖_p",
            "only p = 2; in general ‖Aᵀ‖_p = ‖A‖_{p′}"),
    Erratum("Nair 2025 theorem 3", "factor ‖A‖²/(4τ²) with damping α",
            "that is the factor of T; the damped iteration has (1−α) + α·factor"),
    Erratum("Nair 2025 abstract", "local constant strictly below ½ for 1 < p < ∞",
            "needs n ≥ 3; at n = 2 it is attained"),
    Erratum("Nair 2025 lemma 3, appendix A.2", "1 < p < ∞ in one line", "1 ≤ p ≤ ∞"),
    Erratum("Nair 2025 figure 4", "1.9996 is an average over states",
            "it is near the largest ratio; the average over states and directions is 1.08"),
    Erratum("Newhouse et al. 2025", "a formula for the Lipschitz constant of a transformer",
            "no bound for several heads: a block within the limits moves 1.85 times as far"),
    Erratum("lecture notes property 5(c)", "α→−∞ concentrates on the maximum", "on the minimum"),
    Erratum("lecture notes property 5, corollary", "ties tend to 1/ε", "1/(number of maxima)"),
    Erratum("lecture notes equation 37", "property 2 implies", "property 3"),
    Erratum("Zhang et al. 2021 theorem 2.1", "constant 2", "½"),
    Erratum("Kim 2021 theorem 3.2 (l2)", "√(Σ‖Wq‖²‖Wv‖²)",
            "√(Σ‖Wq‖⁴‖Wv‖²): Wq → t·Wq, x → x/t multiplies the derivative by t², the bound by t"),
    Erratum("Zhang et al. 2021 section 2.2", "AᵀA ≈ I makes the rows of A orthonormal",
            "the columns; for square A both; for a row-stochastic A only permutations reach it"),
    Erratum("Zhang et al. 2021 section 2.1", "how P is concatenated is not said",
            "stacked, so that PᵀP is d×d and the constraint can be met"),
)  # fmt: skip
