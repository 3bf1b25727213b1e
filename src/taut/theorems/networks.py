"""Statements about networks and the modules they are made of."""

from taut.theorems.entry import Theorem

_NETWORKS = "Networks"

NETWORKS = (
    Theorem(
        "spectral",
        _NETWORKS,
        "‖Wx − Wy‖₂ ≤ σ_max(W)‖x − y‖₂, with σ_max² at most the largest eigenvalue of WᵀW plus "
        "what rounding can have taken from it",
        "all inputs",
        "definition; a power iteration would be a lower bound",
        "attained along the first singular vector",
        "classical",
    ),
    Theorem(
        "chain",
        _NETWORKS,
        "the constants of a composition multiply and those of a sum add; in l2 those of a "
        "concatenation add in squares",
        "each map on the inputs that can reach it",
        "triangle inequality",
        "attained by maps that stretch the same direction",
        "classical",
    ),
    Theorem(
        "activation-slope",
        _NETWORKS,
        "φ applied to every coordinate is max(|a|, |b|)-Lipschitz if its slopes lie in [a, b]; "
        "GELU: 1.12891, its tanh form 1.12900, SiLU and QuickGELU 1.09984, Mish 1.08850, Hardswish "
        "3/2, SELU 1.75810",
        "all inputs, every l_p norm",
        "mean value theorem, coordinate by coordinate",
        "attained where the slope is extreme",
        "classical",
    ),
    Theorem(
        "norm-layer",
        _NETWORKS,
        "LayerNorm and RMSNorm with gain g and shift b are max|g|/√(s² + ε)-Lipschitz where the "
        "standard deviation (root mean square) is at least s, max|g|/√ε everywhere; it falls by at "
        "most r/√d within the distance r; outputs are of length at most √d·max|g| + ‖b‖",
        "tokens of width d",
        "the derivative is diag(g)(I − zzᵀ/(‖z‖² + dε))/√(s² + ε) on centred z",
        "attained at constant tokens, along any centred direction, if the gains are equal",
        "classical",
    ),
    Theorem(
        "mlp-split",
        _NETWORKS,
        "W₂φ(W₁x) is (c‖W₂W₁‖ + h‖W₂‖‖W₁‖)-Lipschitz with c = |a + b|/2, h = (b − a)/2, if the "
        "slopes of φ lie in [a, b]",
        "all inputs",
        "φ(t) = (a + b)t/2 + ψ(t) with |ψ′| ≤ h",
        "attained by linear φ, and by W₁ = W₂ = 1 with b the larger slope",
        "taut; the split is the loop transformation of control theory",
    ),
    Theorem(
        "gated-mlp",
        _NETWORKS,
        "W_d(φ(W_gx)∘(W_ux)) is ‖W_d‖·min(U‖W_g‖ + S‖W_u‖, √(U² + S²)‖[W_g; W_u]‖)-Lipschitz "
        "with U = max|φ′|·max|W_ux|, S = max|φ(W_gx)| over coordinates",
        "where these maxima hold",
        "product rule; diagonal matrices have the norm of their largest entry",
        "attained in one dimension by φ linear on one side of its kink",
        "taut",
    ),
    Theorem(
        "probe",
        _NETWORKS,
        "‖D‖^{2k} ≤ maxᵢ‖(DᵀD)^k gᵢ‖/t but for a probability of at most (t√(2/π))^r, for r "
        "independent Gaussian gᵢ and any t > 0",
        "any matrix D that does not depend on the gᵢ",
        "‖Bg‖ ≥ ‖B‖|⟨v, g⟩| for the first singular vector v, and |N(0, 1)| ≤ t has a probability "
        "of at most t√(2/π)",
        "the bound is ‖D‖·(|g|/t)^{1/2k} for D of rank one, so it falls to ‖D‖ as k grows",
        "classical",
    ),
    Theorem(
        "attn-core",
        _NETWORKS,
        "attention as a map of queries, keys and values: L ≤ ‖Wo‖(η‖Wq‖ + min(√A‖Wv‖ + √B‖Wk‖, "
        "√(maxⱼ Aⱼ + Bⱼ/μ²)‖[μWk; Wv]‖)), the maximum over heads of η = α√(λ(v)λ(k)), "
        "A = ‖P‖², Bⱼ = Σᵢ Pᵢⱼα²|qᵢ|²λᵢ(v), with λ the norm of a covariance under a row of P",
        "at given tokens; near them with weights grown by e^{2Δ}; for tokens of bounded length "
        "with the largest of each; any mask, bias, rotation, soft cap and norm of queries and keys",
        "Cauchy–Schwarz under Pᵢ; heads act on different coordinates, so the largest counts",
        "attained by a single token with proportional Wo and Wv",
        "taut",
    ),
    Theorem(
        "attn-heads-token",
        _NETWORKS,
        "attention in H heads, in the largest token, on tokens of length ≤ R: L ≤ ‖Wq‖·min(‖Wo‖ "
        "max_h α‖V_h‖‖K_h‖R², ‖[α‖K_h‖R²·O_hV_h]_h‖) + min(‖Wo‖(Σ_h‖V_h‖²(1 + c_h²))^{1/2}, "
        "√H‖[√(1 + c_h²)·O_hV_h]_h‖), c_h = α(‖Q_h‖R + |b_h|)‖K_h‖R; free of the number of tokens",
        "tokens of bounded length; any mask and any fixed term of the scores, such as learnt "
        "positions; no rotations, cap, or norms of queries and keys",
        "what a key's token adds is V + α(vⱼ − v̄)(Kᵀq)ᵀ, whose parts are uncorrelated under the "
        "weights, so that their squares add up",
        "attained for one head: two opposite keys of equal weight and a query at right angles to "
        "them give √(1 + c²) + c",
        "taut",
    ),
    Theorem(
        "margin-radius",
        _NETWORKS,
        "a classifier with the logits z = Wf(x) keeps its class a within the smallest "
        "(z_a − z_b)/C_{ab}, with C_{ab} = min(√2·L, F‖w_a − w_b‖), L the constant of z, F that "
        "of f and w_a a row of W",
        "all inputs of a domain that holds the ball",
        "z_a − z_b is the product of z with a vector of length √2, and of f with w_a − w_b",
        "attained by linear classifiers; √2·L by those with orthonormal rows",
        "classical",
    ),
    Theorem(
        "l2-ball",
        _NETWORKS,
        "L2 attention of H heads with scores −α‖uᵢ − uⱼ‖² plus anything fixed, u = W_hx, and the "
        "averages of u mapped by M_h and Wo, has the constant ‖Wo‖((Σ_hκ_h²‖W_h‖²‖M_h‖²)^{1/2} + "
        "2α max_hΛ_h‖M_h‖·‖Wq‖) in the largest token, and ‖Wo‖‖Wq‖max_h‖M_h‖(√k κ_h + 2αΛ_h) in "
        "l2, with Λ_h = ‖W_h‖²R², κ_h² = 1 + 4αΛ_h·max(4αΛ_h − 1, 0) and k the largest sum of a "
        "column of weights",
        "tokens of length at most R; any mask, any number of tokens",
        "what a key adds to the average and what it changes in the weights have opposite signs, so "
        "that their mixed term is negative",
        "approached as α falls, by tokens that see only themselves; at scores within ±½ ascent "
        "reaches 0.86 of it",
        "taut",
    ),
    Theorem(
        "mixture",
        _NETWORKS,
        "Σ_{e∈S} p_e(x)E_e(x) is (max L_e + ½ℓ max‖w_a − w_b‖)-Lipschitz with p = softmax(Wx) over "
        "the chosen experts S or over all, w_e the rows of W, L_e the constants of the experts and "
        "‖E_e(x)‖ ≤ ℓ",
        "where the experts S of each token do not change: within r of tokens whose logits differ "
        "by more than ‖w_a − w_b‖r for all a in S and b outside; everywhere if S is all experts",
        "the weights change by a covariance of outputs and logits",
        "attained by two opposite constant experts of equal weight; with fewer experts than all, "
        "the map jumps where logits are equal and has no constant on all inputs",
        "taut",
    ),
    Theorem(
        "averaged-mlp",
        _NETWORKS,
        "x ↦ k·x + pW₂φ(W₁x) with slopes of φ in [a, b] has L ≤ ‖kI + pcW₂W₁‖ + |p|h‖W₂‖‖W₁‖, "
        "c = (a + b)/2, h = (b − a)/2",
        "all inputs",
        "φ(t) = c·t + ψ(t) with |ψ′| ≤ h",
        "attained by a linear φ (h = 0)",
        "taut",
    ),
    Theorem(
        "nonexpansive",
        _NETWORKS,
        "the projection of every token onto a ball, and sorting its entries in pairs, are "
        "1-Lipschitz; neither makes a token longer",
        "all inputs, in l2 and in the largest token",
        "projections onto convex sets are nonexpansive; a permutation that changes where two "
        "entries are equal keeps lengths of differences or shortens them",
        "attained inside the ball, where it is the identity",
        "classical",
    ),
)
