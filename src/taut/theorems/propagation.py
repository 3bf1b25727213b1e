"""Statements about bounds that are propagated through networks near an input."""

from taut.theorems.entry import Theorem

_PROPAGATION = "Bound propagation"

PROPAGATION = (
    Theorem(
        "affine-rows",
        _PROPAGATION,
        "if a·N(x) differs from a·L(x) + c(a) by at most e(a) for every row a and every operation "
        "N of a network, then the value of a row on its output differs from that of the row pulled "
        "back to the input, plus all c, by at most the sum of all e; a row R on the input moves by "
        "at most ‖R∘scale‖_q·r on ‖δ/scale‖_p ≤ r, 1/p + 1/q = 1",
        "inputs within r of a given one in l1, l2 or l∞, over all or some entries",
        "induction over the operations from the output to the input; Hölder's inequality",
        "attained by linear networks",
        "taut; backward linear bounds as in CROWN (Zhang et al. 2018)",
    ),
    Theorem(
        "affine-activation",
        _PROPAGATION,
        "φ(t) − φ(m) − λ(t − m) lies between the extremes of its values on a grid of step h of the "
        "interval, widened by κh²/8 if φ′ is κ-Lipschitz; for max(t, st), s ≤ 1, it lies below the "
        "chord and above each line αt with s ≤ α ≤ 1",
        "intervals around m, any slope λ",
        "Taylor's theorem between neighbouring points; convexity",
        "attained by the chord of ReLU at both ends",
        "classical",
    ),
    Theorem(
        "affine-product",
        _PROPAGATION,
        "|xy − x₀y₀ − x₀(y − y₀) − y₀(x − x₀)| ≤ rs for |x − x₀| ≤ r, |y − y₀| ≤ s",
        "all numbers",
        "the difference is (x − x₀)(y − y₀)",
        "attained at the corners",
        "classical",
    ),
    Theorem(
        "affine-norm",
        _PROPAGATION,
        "for y = y₀ + δ, σ₀² = |y₀|²/d + ε, t = y₀·δ/(dσ₀²), w = |δ|²/(dσ₀²) ≤ w̄ and "
        "φ = (1 + 2t + w)^(−1/2): a·(y/σ − y₀/σ₀)σ₀ = a·δ − (a·y₀)t + (a·y₀)(φ − 1 + t) + "
        "(a·δ)(φ − 1), where −w̄/2 ≤ φ − 1 + t ≤ max t²/(1 + t) over both ends of t",
        "RMSNorm, and LayerNorm after its mean was subtracted; t > −1",
        "w ≥ t² by Cauchy's inequality; (1 + 2t + w)^(−1/2) + t is least at 2t + w = 0",
        "approached by δ orthogonal to y₀ as it shrinks, and attained by δ along y₀ if ε = 0",
        "taut",
    ),
    Theorem(
        "softmax-remainder",
        _PROPAGATION,
        "if the scores of a row move by δs, centred under its weights to |cⱼ| ≤ aⱼ, then "
        "p′ⱼ − pⱼ − pⱼcⱼ lies between −pⱼg (−pⱼ(1 + aⱼ − e^(aⱼ−g)) if g > aⱼ) and "
        "pⱼ(e^(aⱼ) − 1 − aⱼ), with g = log(1 + Σ p(e^a − 1 − a)); p′ⱼ between pⱼe^(−aⱼ−g) and "
        "min(1, pⱼe^(aⱼ))",
        "all rows of scores",
        "p′ = pe^(c−γ) with 0 ≤ γ = log Σ pe^c ≤ g; e^c − 1 − c grows with |c|, more to the right",
        "approached from above by a key of vanishing weight",
        "taut",
    ),
    Theorem(
        "softmax-joint",
        _PROPAGATION,
        "if cⱼ = uⱼ·δ + ρⱼ then Σ wⱼcⱼ² ≤ (√S + ‖√w ρ‖)² for w ≥ 0, with S = λ_max(√w uuᵀ √w) on "
        "|δ|₂ ≤ 1, N times that on |δ|_∞ ≤ 1, the largest column of Σ wu² on |δ|₁ ≤ 1; so "
        "g ≤ Σ pψc², Σ bⱼ·remainderⱼ ≤ Σ bpψc² for b ≥ 0 and ‖p′ − p‖₂ ≤ ‖pχc‖ + ‖p‖g, with "
        "ψ = (e^a − 1 − a)/a², χ = (e^a − 1)/a",
        "scores that are near a linear function of N entries of the input",
        "a convex function is largest at a corner; both ψ and χ grow with c ≤ a; "
        "|e^(c−g) − 1| ≤ |e^c − 1| + g",
        "attained by ρ = 0 and the first eigenvector",
        "taut",
    ),
    Theorem(
        "affine-attention",
        _PROPAGATION,
        "for a row a on the output Σ pⱼvⱼ of a head, β = a·v₀ centred under p and scores "
        "scale·q·kⱼ: the output moves by Σ pⱼ a·δvⱼ + Σ pⱼβⱼ·scale(q₀·δkⱼ + δq·k₀ⱼ), within the "
        "sum of "
        "Σ|pⱼβⱼ|Eⱼ, Eⱼ ≥ scale|δq·δkⱼ|, the remainder of softmax under β, and Σⱼ|δpⱼ||a·δvⱼ|",
        "dot-product attention with any mask, bias, soft cap, rotation and shared heads",
        "Σδp = 0, so that β counts up to a constant; softmax-remainder",
        "attained by values that are all equal and do not move",
        "taut",
    ),
    Theorem(
        "ellipsoid-sum",
        _PROPAGATION,
        "if |a·eᵢ| ≤ √(aᵀCᵢa) for every a, then |a·Σ Mᵢeᵢ| ≤ √(aᵀ(Σ MᵢCᵢMᵢᵀ/wᵢ)a) for all matrices "
        "Mᵢ and weights wᵢ > 0 with Σw ≤ 1; a box |eⱼ| ≤ hⱼ has C = diag(hⱼΣh)",
        "errors that add up behind linear maps",
        "Cauchy's inequality: (Σ√xᵢ)² ≤ Σxᵢ/wᵢ",
        "attained by ellipsoids of one shape with weights √tr Cᵢ",
        "classical; ellipsoidal outer bounds as in state estimation (Schweppe 1968)",
    ),
    Theorem(
        "ellipsoid-product",
        _PROPAGATION,
        "if x = Xz and y = Yz with |z| ≤ 1, then |Σ cⱼxⱼyⱼ| ≤ √(cᵀ(XXᵀ∘YYᵀ)c), and |Σ cⱼxⱼᵏ| ≤ "
        "√(cᵀ(XXᵀ)^∘k c) for powers k ≥ 1 entry by entry",
        "all matrices X, Y and coefficients c",
        "Σ cⱼ(xⱼ·z)(yⱼ·z) is the inner product of Σ cⱼxⱼ⊗yⱼ and z⊗z, whose norm is at most 1",
        "attained if all rows of X and Y are along one vector",
        "taut; the kernel of polynomials (Aronszajn 1950) with Cauchy's inequality",
    ),
    Theorem(
        "affine-checkpoint",
        _PROPAGATION,
        "if every path of a network passes a node whose deviation is L·u + e with |a·e| ≤ √(aᵀCa) "
        "for every a, then a row R on it differs from (RL)·u by at most √(RᵀCR); behind rows A and "
        "errors Bᵢeᵢ that arise in between, the next such node has L′ = AL and the ellipsoid of "
        "Ae + ΣBᵢeᵢ",
        "inputs within r of a given one, as in affine-rows",
        "affine-rows as far as the node; ellipsoid-sum",
        "attained by linear networks, where e = 0",
        "taut",
    ),
)
