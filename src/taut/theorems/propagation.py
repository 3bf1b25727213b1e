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
        "|xy − x₀y₀ − x₀(y − y₀) − y₀(x − x₀)| ≤ r·s for |x − x₀| ≤ r, |y − y₀| ≤ s",
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
        "ellipsoid-algebra",
        _PROPAGATION,
        "write E(K) = {Lz : |z|₂ ≤ 1} for K = LLᵀ, whose support function is √(aᵀKa): "
        "E(K₁) + E(K₂) lies in E(K₁/θ + K₂/(1 − θ)) for 0 < θ < 1, W·E(K) is E(WKWᵀ), x∘y lies in "
        "E(K₁∘K₂) for x in E(K₁) and y in E(K₂), and the box |x| ≤ b in E(diag(b·Σb))",
        "all positive semidefinite matrices",
        "Cauchy's inequality; x∘y is a linear function of z₁z₂ᵀ, whose Frobenius norm is |z₁||z₂|",
        "attained by proportional ellipsoids, and by squares of one entry",
        "classical; taut",
    ),
    Theorem(
        "ellipsoid-norm",
        _PROPAGATION,
        "for tokens y + δ, δ = αy + δ⊥ with δ⊥ orthogonal to y, s = δ⊥/(1 + α) and "
        "ω = |s|²/(dσ²) + (ε/σ²)((1 + α)⁻² − 1), a norm layer is gain/σ·(y + s)(1 + ω)^(−1/2), "
        "with d the width and σ² the mean square of y plus ε; its terms of second order are "
        "−y|δ⊥|²/(2dσ²) − αδ⊥, which for δ = a + b are those of a and the bilinear form of b and "
        "a + b/2; the others lie in the ellipsoids of the series of α²/(1 + α) and (1 + ω)^(−1/2), "
        "where the numbers |s|²/(dσ²) of all tokens also lie in diag((λt)²), t being the largest "
        "of each and λ of Σ|s|²/(dσ²t)",
        "RMSNorm, and LayerNorm after its mean was subtracted; y ≠ 0, |α| < 1 and |ω| < 1",
        "a quadratic form zᵀQz is at most ‖Q‖_F; ellipsoid-algebra for all other products",
        "approached by sets of one direction as they shrink",
        "taut",
    ),
    Theorem(
        "ellipsoid-activation",
        _PROPAGATION,
        "for x + a + b with a in E(G) and b in E(K) Taylor's series of an activation has terms aᵏ "
        "in E(G∘…∘G), 2b(a + b/2), and (a + b)ᵏ − aᵏ in k²E(K∘F∘…∘F) for G ≤ F and a + b in E(F); "
        "GELU's k-th derivative, k ≥ 2, is (−1)ᵏ(He₍ₖ₋₂₎ − Heₖ)e^(−x²/2)/√(2π), at most "
        "0.4335(√(k−2)! + √k!)",
        "exact GELU; other activations by their lines of affine-activation, as a box",
        "ellipsoid-algebra, Taylor's theorem and Cramér's inequality for Hermite's polynomials",
        "approached by sets of one direction as they shrink",
        "taut",
    ),
    Theorem(
        "ellipsoid-attention",
        _PROPAGATION,
        "for centred scores c = u + η, η = u_b + σ, outputs o, their linear change x + x_b, "
        "w = δv − x, w_b = δv_b − x_b and ζ = Σp(e^c − 1 − c) ≥ 0 a head's output moves by "
        "x + x_b + [Σp(v − o)(e^c − 1 − u − u_b) + Σp(e^c − 1)(w + w_b)]/(1 + ζ), where u, x, w "
        "are linear in the input and u_b, x_b, w_b all else; the parts Σp(v − o)uᵏ/k! + "
        "Σpwuᵏ⁻¹/(k − 1)!, those of u_b and u + u_b/2, and Σp((v − o)u + w)σ each lie in the "
        "ellipsoid of their forms, of all queries and heads together",
        "dot-product attention with any mask, bias, rotation and shared heads, without a soft cap",
        "Σp′(y − o − x − x_b) for p′ = pe^c/(1 + ζ), as Σp′ = 1 and Σpc = 0; ellipsoid-algebra",
        "approached by sets of one direction as they shrink",
        "taut",
    ),
    Theorem(
        "affine-attention-below",
        _PROPAGATION,
        "for a row a, b = a·v₀ + λV centred under p, |δpⱼ| ≤ Pⱼ, |a·δvⱼ| ≤ Vⱼ, |λⱼ| ≤ 1 and "
        "centred scores |cⱼ| ≤ sⱼ: the output moves by at least Σ(pⱼ + λⱼPⱼ)a·δvⱼ + "
        "Σ pⱼbⱼ(kⱼ + mⱼcⱼ) − (1 − e^(−g))·max(N, 0) − Σ PⱼVⱼ, with kⱼ + 1 = e^t(1 − t), mⱼ = e^t "
        "for any t where bⱼ > 0, kⱼ + 1 = cosh sⱼ, mⱼ = sinh(sⱼ)/sⱼ where bⱼ < 0, and "
        "N ≥ Σ pb(e^c − 1)",
        "dot-product attention with any mask, bias, soft cap, rotation and shared heads",
        "(P ∓ δp)(V ∓ a·δv) ≥ 0; δp = p(e^(c−γ) − 1) with 0 ≤ γ ≤ g; the exponential lies above "
        "its tangents and below its chord",
        "attained by values that are all equal and do not move",
        "taut; products as in McCormick (1976)",
    ),
    Theorem(
        "l1-near-reference",
        _PROPAGATION,
        "Σₖ|a·vₖ| ≤ √(Σₖwₖ)·√(Σₖ(a·vₖ)²/wₖ) for all weights w > 0, with equality for a = a₀ and "
        "wₖ = |a₀·vₖ| > 0",
        "all vectors",
        "Cauchy's inequality for √w and |a·v|/√w",
        "attained at the reference a₀ and its multiples",
        "classical",
    ),
    Theorem(
        "split-multipliers",
        _PROPAGATION,
        "let tₙ = Gₙ·δ + Σₘ Jₙₘyₘ + hₙ within eₙ, yₙ = φ(tₙ), in order, and f ≥ R·δ + Σ Aₙyₙ − "
        "Σ Qₙtₙ + h − e; for any Pₙ, with A′ₘ = Aₘ + Σₙ(Pₙ − Qₙ)Jₙₘ: f ≥ (R + Σ(Pₙ − Qₙ)Gₙ)·δ + "
        "h + Σ(Pₙ − Qₙ)hₙ − e − Σ|Pₙ − Qₙ|eₙ + Σ min(A′ₙφ(t) − Pₙt); where only sign·t ≥ 0 "
        "counts and Pₙ = A′ₙ·slope − β·sign with β ≥ 0, the minimum is 0 or more",
        "networks whose other operations are affine within an error; ReLU and leaky ReLU",
        "Σ(P − Q)t = Σ(P − Q)(G·δ + Jy + h ± e); on a branch φ is a line, and β·sign·t ≥ 0 is "
        "subtracted",
        "attained where all signs are known and the multipliers solve the dual linear program",
        "taut; multipliers of split ReLUs as in β-CROWN (Wang et al. 2021)",
    ),
    Theorem(
        "ellipsoid-sum",
        _PROPAGATION,
        "if |a·eᵢ| ≤ √(aᵀCᵢa) for every a, then |a·Σ Mᵢeᵢ| ≤ √(aᵀ(Σ MᵢCᵢMᵢᵀ/wᵢ)a) for all matrices "
        "Mᵢ and weights wᵢ > 0 with Σw ≤ 1; a box |eⱼ| ≤ hⱼ has C = diag(hⱼΣh)",
        "errors that add up behind linear maps",
        "Cauchy's inequality: (Σ√xᵢ)² ≤ Σxᵢ/wᵢ",
        "attained by ellipsoids of one shape with weights √(tr Cᵢ)",
        "classical; ellipsoidal outer bounds as in state estimation (Schweppe 1968)",
    ),
    Theorem(
        "ellipsoid-product",
        _PROPAGATION,
        "if x = Xz and y = Yz with |z| ≤ 1, then |Σ cⱼxⱼyⱼ| ≤ √(cᵀ(XXᵀ∘YYᵀ)c), and |Σ cⱼxⱼᵏ| ≤ "
        "√(cᵀ(XXᵀ)^{∘k} c) for powers k ≥ 1 entry by entry",
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
        "errors Bᵢeᵢ that arise in between, the next such node has L′ = A·L and the ellipsoid of "
        "Ae + ΣBᵢeᵢ",
        "inputs within r of a given one, as in affine-rows",
        "affine-rows as far as the node; ellipsoid-sum",
        "attained by linear networks, where e = 0",
        "taut",
    ),
)
