"""The rounding of certificates: every operation against arithmetic of fifty digits."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
mpmath = pytest.importorskip("mpmath")
nn = torch.nn

import taut.networks as tt  # noqa: E402
from taut.networks.operations.normalisation import FixedNorm  # noqa: E402
from taut.networks.region import start  # noqa: E402
from taut.networks.rules.attention_functions import cosine_heads  # noqa: E402

CPU = torch.device("cpu")
WIDTH, TOKENS = 12, 5


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.mp.workdps(50):
        yield


def exactly(tensor):
    """The same numbers, to be calculated with in fifty digits."""
    return np.vectorize(mpmath.mpf, otypes=[object])(tensor.detach().double().numpy())


def each(function):
    return np.vectorize(function, otypes=[object])


def linear(x, weight, bias=None):
    y = x @ exactly(weight).T
    return y if bias is None else y + exactly(bias)


def normalised(x, gain, shift, epsilon, *, centred):
    z = x - x.mean(axis=-1, keepdims=True) if centred else x
    z = z / each(mpmath.sqrt)((z**2).mean(axis=-1, keepdims=True) + mpmath.mpf(epsilon))
    z = z if gain is None else z * exactly(gain)
    return z if shift is None else z + exactly(shift)


def gelu(x):
    return each(lambda t: t / 2 * (1 + mpmath.erf(t / mpmath.sqrt(2))))(x)


def silu(x):
    return each(lambda t: t / (1 + mpmath.exp(-t)))(x)


def softmax(scores):
    weights = each(mpmath.exp)(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention(x, heads, bias):
    """Heads one by one, with their norms and a fixed term of the scores."""
    q, k, v = (linear(x, *part) for part in (heads.query, heads.key, heads.value))
    outputs = []
    for h in range(heads.heads):
        queries, keys, values = (np.split(part, heads.heads, axis=-1)[h] for part in (q, k, v))
        for norm in {heads.query_norm} - {None}:
            options = {"centred": False}
            queries = normalised(queries, norm.gain, None, norm.epsilon, **options)
            keys = normalised(keys, norm.gain, None, norm.epsilon, **options)
        scores = mpmath.mpf(heads.scale) * (queries @ keys.T)
        outputs.append(softmax(scores + exactly(bias[h])) @ values)
    return linear(np.concatenate(outputs, axis=-1), *heads.output)


def unit(u, epsilon):
    """u/√(‖u‖² + epsilon)."""
    return u / each(mpmath.sqrt)((u**2).sum(axis=-1, keepdims=True) + mpmath.mpf(epsilon))


def cosine_attention(x, heads, *, nu, scale, epsilon):
    """Heads one by one, their queries, keys and values of length below 1."""
    parts = [linear(x, *part) for part in (heads.query, heads.key, heads.value)]
    outputs = []
    for h in range(heads.heads):
        q, k, v = (unit(np.split(part, heads.heads, axis=-1)[h], epsilon) for part in parts)
        outputs.append(mpmath.mpf(nu) * (softmax(mpmath.mpf(scale) * (q @ k.T)) @ v))
    return linear(np.concatenate(outputs, axis=-1), *heads.output)


def distance_attention(x, heads, bias=None):
    """Heads one by one, by the distances of their queries."""
    root, outputs = mpmath.sqrt(heads.width), []
    u = linear(x, *heads.query)
    for h in range(heads.heads):
        own = np.split(u, heads.heads, axis=-1)[h]
        apart = ((own[:, None] - own[None]) ** 2).sum(axis=-1)
        if heads.value is None:
            scores, values = exactly(bias[h]) - mpmath.mpf(heads.scale) * apart, own
        else:
            wq, wv = (np.split(exactly(part[0]), heads.heads)[h] for part in heads[:2])
            values = own @ wq @ wv.T / root + np.split(exactly(heads.value[1]), heads.heads)[h]
            scores = -apart / root
        outputs.append(softmax(scores) @ values)
    return linear(np.concatenate(outputs, axis=-1), *heads.output)


def random(*shape, size=1.0):
    return size * torch.randn(*shape, dtype=torch.float64)


def affine(outputs, inputs):
    return random(outputs, inputs, size=inputs**-0.5), random(outputs)


def operations(norm, seed):
    """What the interpreter makes of exact tokens, and what fifty digits make of them."""
    torch.manual_seed(seed)
    run = tt.Interpreter(norm, 0.0, CPU)
    # Tokens far from 0 and weights with a common part, so that sums cancel.
    x = random(1, TOKENS, WIDTH, size=10.0 ** (seed % 5)) + 10.0 ** (seed % 7)
    here, z = start(x, 0.0), exactly(x[0])
    weight, bias = affine(9, WIDTH)
    yield "linear", run.linear(here, weight, bias), linear(z, weight, bias)
    gain, shift = random(WIDTH), random(WIDTH)
    for centred in (True, False):
        found = run.normalise(here, gain, shift, 1e-5, centred=centred)
        yield "norm", found, normalised(z, gain, shift, 1e-5, centred=centred)
    yield "centre", run.centre(here), z - z.mean(axis=-1, keepdims=True)
    yield "add", run.add(here, run.scale(here, gain)), z + z * exactly(gain)
    yield "shift", run.shift(here, random(TOKENS, WIDTH) * 0 + gain), z + exactly(gain)
    mean, variance = random(WIDTH, size=10.0), random(WIDTH).square()
    fixed = FixedNorm(gain / (variance + 1e-5).sqrt(), mean, shift)
    spread = each(mpmath.sqrt)(exactly(variance) + mpmath.mpf(1e-5))
    truth = (z - exactly(mean)) / spread * exactly(gain) + exactly(shift)
    yield "batch norm", run.batch_norm(here, fixed), truth
    places = torch.arange(TOKENS * WIDTH).reshape(TOKENS, WIDTH).mT.contiguous()
    yield "rearrange", run.rearrange(here, places), z.T
    yield "mean", run.mean(here), z.mean(axis=0, keepdims=True)
    near = start(x / x.abs().max() * 9, 0.0)
    w = exactly(near.centre[0])
    yield "activation", run.activation(near, nn.GELU()), gelu(w)
    second = affine(7, 9)
    yield (
        "mlp",
        run.mlp(near, (weight, bias), nn.GELU(), second),
        linear(gelu(linear(w, weight, bias)), *second),
    )
    up = affine(9, WIDTH)
    yield (
        "gated",
        run.gated(near, (weight, bias), nn.SiLU(), up, second),
        linear(silu(linear(w, weight, bias)) * linear(w, *up), *second),
    )
    parts = [affine(WIDTH, WIDTH) for _ in range(4)]
    scores = random(3, TOKENS, TOKENS, size=3.0)
    for normed in (None, tt.HeadNorm(random(WIDTH // 3), 1e-6)):
        heads = tt.Heads(*parts, 3, 3, 0.4, query_norm=normed, key_norm=normed)
        yield "attention", run.attention(near, heads, bias=scores), attention(w, heads, scores)
    options = {"nu": 2.1, "scale": 1.3, "epsilon": 0.07}
    heads = tt.Heads(*parts, 3, 3, 0.4)
    found = run.attention(near, cosine_heads(heads, **options))
    yield "cosine attention", found, cosine_attention(w, heads, **options)
    distances = tt.DistanceHeads(parts[0], parts[2], parts[3], 3)
    yield "l2 attention", run.distance_attention(near, distances), distance_attention(w, distances)
    tied = tt.DistanceHeads(parts[0], None, parts[3], 3, 0.3)
    found = run.distance_attention(near, tied, bias=scores)
    yield "l2 attention, tied", found, distance_attention(w, tied, scores)

    router, choices = random(5, WIDTH), [affine(7, WIDTH) for _ in range(5)]
    for top, among in ((2, True), (2, False), (5, True)):
        found = run.mixture(
            near, router, lambda t, e: run.linear(t, *choices[e]), top=top, among_chosen=among
        )
        yield "mixture", found, mixture(w, router, choices, top, among)


def mixture(x, router, experts, top, among_chosen):
    """Tokens one by one."""
    found = []
    for token in x:
        logits = exactly(router) @ token
        chosen = sorted(range(len(logits)), key=lambda e: -logits[e])[:top]
        read = chosen if among_chosen else list(range(len(logits)))
        weights = softmax(np.array([logits[e] for e in read])[None])[0]
        parts = [linear(token[None], *experts[e])[0] for e in chosen]
        found.append(
            sum(weights[read.index(e)] * part for e, part in zip(chosen, parts, strict=True))
        )
    return np.array(found)


@pytest.mark.parametrize("norm", ["l2", "token"])
@pytest.mark.parametrize("seed", range(8))
def test_no_operation_errs_by_more_than_it_says(norm, seed):
    for name, found, truth in operations(norm, seed):
        apart = exactly(found.centre[0]) - truth
        tokens = each(mpmath.sqrt)((apart**2).sum(axis=-1))
        error = tokens.max() if norm == "token" else mpmath.sqrt((tokens**2).sum())
        assert error <= found.drift[0], name
        assert found.drift[0] <= 1e-7 * max(found.length[0], 1.0), name  # and by not much more


def cancelling(size):
    """A linear map whose outputs are sums of numbers and their negatives, in some order."""
    torch.manual_seed(0)
    row = size * torch.randn(32, dtype=torch.float64)
    row = torch.cat((row, -row))
    first = nn.Linear(64, 2, bias=False).double()
    last = nn.LayerNorm(2, eps=1e-10, elementwise_affine=False).double()
    with torch.no_grad():
        first.weight.copy_(torch.stack((row[torch.randperm(64)], row[torch.randperm(64)])))
    return nn.Sequential(first, last), torch.ones(1, 64, dtype=torch.float64)


@pytest.mark.parametrize("prove", [True, False])
def test_what_rounding_has_left_of_zeros_is_not_a_variance(prove):
    """Both outputs are 0, so the norm layer has its largest constant, whatever was computed."""
    module, x = cancelling(1e14)
    computed = module[0](x)[0].detach()
    assert abs(float(computed[0] - computed[1])) > 1e-3  # of exactly 0
    slope = 1 / math.sqrt(1e-10)
    found = tt.certify(module, x, measure=False, prove_rounding=prove)
    difference = module[0].weight.detach()
    exact = slope * float((difference[0] - difference[1]).norm()) / math.sqrt(2)
    assert exact * (1 - 1e-9) <= found.bound.upper[0]


def chain(depth):
    """Layers whose constants multiply quickly."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(depth)]
    module = nn.Sequential(*layers).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(4.0)
    return module, torch.randn(2, 3, 8, dtype=torch.float64)


def test_certificates_say_whether_their_rounding_is_proved():
    shallow, deep = (tt.certify(*chain(depth), measure=False) for depth in (1, 6))
    assert shallow.bound.rounding == "proved"
    assert shallow.to_dict()["rounding"] == "proved"
    assert "estimated" not in str(shallow)
    assert deep.bound.rounding == "estimated"
    assert deep.to_dict()["rounding"] == "estimated"
    assert "rounding in this bound is estimated" in str(deep)
    insisted = tt.certify(*chain(6), measure=False, prove_rounding=True)
    assert insisted.bound.rounding == "proved"
    assert (insisted.bound.upper > deep.bound.upper).all()
    both = (tt.certify(*chain(1), measure=False, prove_rounding=p).bound for p in (True, False))
    assert len({tuple(bound.upper) for bound in both}) == 1


def test_radii_are_proved_unless_a_constant_is_executed():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    assert tt.certified_radius(net, x).rounding == "proved"
    constant = nn.Sequential(nn.Linear(4, 8), nn.Softmax(dim=-1), nn.Linear(8, 3)).double()
    assert tt.certified_radius(constant, x).rounding == "estimated"
    assert tt.certified_radius(constant, x, executed=False).rounding == "proved"
    assert tt.local_lipschitz(net, x).rounding == "estimated"
