"""Games of any number of players in arbitrary precision: regrets, and equilibria near a point."""

from __future__ import annotations

import itertools

from flint import arb, arb_mat, ctx

BITS = 300


def exact_strategies(strategies):
    """What floating-point weights stand for: themselves over their sums."""
    ctx.prec = BITS
    parts = [[arb(float(w)) for w in own] for own in strategies]
    return [[w / sum(own, arb(0)) for w in own] for own in parts]


def expected(payoff, i, strategies):
    """What each strategy of player i gains against the others."""
    gains = [arb(0) for _ in strategies[i]]
    for profile in itertools.product(*(range(len(own)) for own in strategies)):
        weight = arb(float(payoff[profile]))
        for j, k in enumerate(profile):
            weight = weight * strategies[j][k] if j != i else weight
        gains[profile[i]] += weight
    return gains


def softmax(logits):
    top = max(float(z.mid()) for z in logits)
    weights = [(z - top).exp() for z in logits]
    return [w / sum(weights, arb(0)) for w in weights]


def true_regrets(payoffs, tau, strategies):
    """For each player τKL(x ‖ σ(U/τ)) and max U − U·x, as lower bounds of the exact numbers."""
    found = []
    own = exact_strategies(strategies)
    for i, payoff in enumerate(payoffs):
        gains = expected(payoff, i, own)
        answer = softmax([g / arb(float(tau)) for g in gains])
        pairs = [(p, q) for p, q in zip(own[i], answer, strict=True) if p != 0]
        divergence = sum((p * (p.log() - q.log()) for p, q in pairs), arb(0))
        mean = sum((p * g for p, g in zip(own[i], gains, strict=True)), arb(0))
        best = max((g for g in gains), key=lambda g: float(g.mid()))
        found.append((float((arb(float(tau)) * divergence).mid()), float((best - mean).mid())))
    return found


def equilibrium_near(payoffs, tau, strategies, rounds=12):
    """The logit equilibrium that Newton's method finds from these strategies, as floats."""
    ctx.prec = BITS
    tau = arb(float(tau))
    tiny = arb(1e-300)
    sizes = [len(own) for own in strategies]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    own = exact_strategies(strategies)
    z = [(w + tiny).log() for part in own for w in part]
    for _ in range(rounds):
        own = [softmax(z[s : s + n]) for s, n in zip(starts, sizes, strict=True)]
        gains = [expected(p, i, own) for i, p in enumerate(payoffs)]
        left = [
            z[starts[i] + a] - g / tau for i, part in enumerate(gains) for a, g in enumerate(part)
        ]
        J = arb_mat(len(z), len(z))
        for k in range(len(z)):
            J[k, k] = 1
        for i, j in itertools.permutations(range(len(sizes)), 2):
            for b in range(sizes[j]):
                pure = list(own)
                pure[j] = [arb(int(c == b)) for c in range(sizes[j])]
                for a, g in enumerate(expected(payoffs[i], i, pure)):
                    J[starts[i] + a, starts[j] + b] = -(g - gains[i][a]) * own[j][b] / tau
        step = J.solve(arb_mat(len(z), 1, left))
        z = [arb((z[k] - step[k, 0]).mid()) for k in range(len(z))]
        if max(abs(float(step[k, 0].mid())) for k in range(len(z))) < 1e-40:
            return [
                [float(w.mid()) for w in softmax(z[s : s + n])]
                for s, n in zip(starts, sizes, strict=True)
            ]
    raise AssertionError("the oracle did not converge")
