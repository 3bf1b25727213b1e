"""Layers with a Lipschitz guarantee: what they compute, where they fit, and what they promise."""

from __future__ import annotations

import copy
import itertools
import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from taut import attention  # noqa: E402
from taut.control import CosineAttention, L2Attention, swap_attention  # noqa: E402
from tests.helpers import attention_attack as attack  # noqa: E402
from tests.helpers import attention_oracle as oracle  # noqa: E402

nn = torch.nn
WIDE = {"dtype": torch.float64}
KINDS = {"cosine": CosineAttention, "l2": L2Attention}


def layer_of(kind, width=6, heads=2, *, size=1.0, seed=0, **options):
    """A layer with random weights and biases, its dtype double."""
    torch.manual_seed(seed)
    layer = KINDS[kind](width, heads, **WIDE, **options).eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * size / math.sqrt(width))
    return layer


def plain(layer, x, y=None, *, term=0.0):
    """The layer on one sequence, head by head; ``term`` is added to the scores."""
    y = x if y is None else y
    heads, outputs, every = layer.num_heads, [], []
    if isinstance(layer, CosineAttention):
        weights, biases = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
        parts = [
            torch.chunk(z @ w.T + b, heads, dim=-1)
            for z, w, b in zip((x, y, y), weights, biases, strict=True)
        ]
        for q, k, v in zip(*parts, strict=True):
            q, k, v = (
                u / torch.sqrt((u * u).sum(-1, keepdim=True) + layer.epsilon) for u in (q, k, v)
            )
            p = torch.softmax(layer.scale * q @ k.T + term, dim=-1)
            outputs.append(layer.nu * p @ v)
            every.append(p)
    else:
        wq, wv = layer.in_proj_weight.chunk(2)
        for q, v in zip(wq.chunk(heads), wv.chunk(heads), strict=True):
            u, root = x @ q.T, math.sqrt(len(q))
            z = -((u[:, None] - u[None]) ** 2).sum(-1) / root
            p = torch.softmax(z + term, dim=-1)
            outputs.append(p @ x @ (q.T @ q / root) @ v.T)
            every.append(p)
    return layer.out_proj(torch.cat(outputs, dim=-1)), torch.stack(every)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_layers_compute_what_they_say(kind, heads):
    layer = layer_of(kind, heads=heads, batch_first=True)
    x = torch.randn(3, 5, 6, **WIDE)
    found, weights = layer(x, x, x, average_attn_weights=False)
    short, none = layer(x, x, x, need_weights=False)
    assert none is None
    torch.testing.assert_close(short, found)
    for row, output, p in zip(x, found, weights, strict=True):
        right, every = plain(layer, row)
        torch.testing.assert_close(output, right)
        torch.testing.assert_close(p, every)


def test_one_head_is_the_attention_that_is_bounded():
    """The oracles against which taut.attention.cosine and l2 are tested."""
    x = torch.randn(5, 4, **WIDE)
    layer = layer_of("cosine", 4, 1, bias=False, scale=2.0, nu=3.0, epsilon=0.5)
    right = oracle.cosine(*layer.in_proj_weight.chunk(3), x, scale=2.0, nu=3.0, epsilon=0.5)
    torch.testing.assert_close(layer(x, x, x)[0], right @ layer.out_proj.weight.T)
    layer = layer_of("l2", 4, 2, bias=False)
    right = oracle.neighbours(*layer.in_proj_weight.chunk(2), layer.out_proj.weight, x, heads=2)
    torch.testing.assert_close(layer(x, x, x)[0], right)


GRID = list(
    itertools.product(
        KINDS,
        [True, False],
        ["batch", "one"],
        ["none", "bool", "float", "each head", "causal"],
        [None, "bool", "float"],
    )
)


@pytest.mark.parametrize(("kind", "first", "shape", "masked", "padded"), GRID)
def test_interface_is_that_of_torch(kind, first, shape, masked, padded):
    """Shapes as torch gives them, and rows equal to the plain computation under the same masks."""
    if masked == "each head" and padded == "float":
        padded = "bool"  # torch warns about masks of two types; here both are taken
    layer = layer_of(kind, batch_first=first)
    torch_layer = nn.MultiheadAttention(6, 2, batch_first=first, **WIDE).eval()
    batch, n = 3, 5
    x = torch.randn(batch, n, 6, **WIDE)
    hidden = torch.zeros(batch, n, n, dtype=torch.bool)
    options, term = {}, torch.zeros(batch, 2, n, n, **WIDE)
    if masked == "causal":
        options = {"attn_mask": torch.ones(n, n, dtype=torch.bool).triu(1), "is_causal": True}
        hidden |= options["attn_mask"]
    elif masked == "bool":
        options["attn_mask"] = torch.rand(n, n) < 0.4
        options["attn_mask"].fill_diagonal_(False)
        hidden |= options["attn_mask"]
    elif masked == "float":
        options["attn_mask"] = -torch.rand(n, n, **WIDE).fill_diagonal_(0.0)
        term = term + options["attn_mask"]
    elif masked == "each head":
        count = 2 * (1 if shape == "one" else batch)
        options["attn_mask"] = torch.rand(count, n, n) < 0.4
        options["attn_mask"].diagonal(dim1=1, dim2=2).fill_(False)
        each = options["attn_mask"].view(-1, 2, n, n).expand(batch, 2, n, n)
        term = term.masked_fill(each, -math.inf)
    if padded is not None:
        padding = torch.zeros(batch, n, dtype=torch.bool)
        padding[0, 3:] = True
        options["key_padding_mask"] = padding
        hidden |= padding[:, None]
        if padded == "float" or masked == "float":
            options["key_padding_mask"] = torch.zeros(batch, n, **WIDE).masked_fill(
                padding, -math.inf
            )
            if options.get("attn_mask") is not None and options["attn_mask"].dtype == torch.bool:
                options["attn_mask"] = torch.zeros(n, n, **WIDE).masked_fill(
                    options["attn_mask"], -math.inf
                )
    if kind == "l2":
        hidden &= ~torch.eye(n, dtype=torch.bool)
    term = term.masked_fill(hidden[:, None], -math.inf)
    rows = range(1 if shape == "one" else batch)
    if shape == "one":
        given = x[0]
        if padded is not None:
            options["key_padding_mask"] = options["key_padding_mask"][0]
    else:
        given = x if first else x.transpose(0, 1)
    for need, average in ((True, True), (True, False), (False, True)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            like = torch_layer(
                given, given, given, need_weights=need, average_attn_weights=average, **options
            )
        found, weights = layer(
            given, given, given, need_weights=need, average_attn_weights=average, **options
        )
        assert found.shape == like[0].shape
        assert found.dtype == like[0].dtype
        assert (weights is None) == (like[1] is None)
        for i in rows:
            output = found if shape == "one" else found[i] if first else found[:, i]
            right = torch.cat([  # one head at a time has its own mask
                _head(layer, x[i], h, term[i, h]) for h in range(2)
            ], dim=-1)  # fmt: skip
            torch.testing.assert_close(output, layer.out_proj(right))
        if weights is not None:
            assert weights.shape == like[1].shape
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
            assert ((weights == 0) == (like[1] == 0)).all() or kind == "l2"


def _head(layer, x, h, term):
    """What head h gives, before the output projection."""
    alone = copy.deepcopy(layer)
    with torch.no_grad():
        alone.out_proj.weight.copy_(torch.eye(layer.embed_dim))
        alone.out_proj.bias.zero_()
    width = layer.head_dim
    return plain(alone, x, term=term)[0][:, h * width : (h + 1) * width]


@pytest.mark.parametrize("need", [True, False])
def test_cross_attention(need):
    layer = layer_of("cosine", batch_first=True)
    x, y = torch.randn(2, 4, 6, **WIDE), torch.randn(2, 7, 6, **WIDE)
    hidden = torch.zeros(2, 7, dtype=torch.bool)
    hidden[1, 5:] = True
    found, weights = layer(x, y, y, key_padding_mask=hidden, need_weights=need)
    torch.testing.assert_close(found[0], plain(layer, x[0], y[0])[0])
    torch.testing.assert_close(found[1], plain(layer, x[1], y[1, :5])[0])
    assert weights is None or weights.shape == (2, 4, 7)
    with pytest.raises(ValueError, match="self-attention only"):
        layer_of("l2", batch_first=True)(x, y, y)


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_see_nothing(kind, need):
    """Cosine attention gives them 0; in L2 attention they see themselves. Gradients are finite."""
    layer = layer_of(kind)
    x = torch.randn(4, 6, **WIDE, requires_grad=True)
    hidden = torch.tensor([[True] * 4] + [[False] * 4] * 3)
    found, _ = layer(x, x, x, attn_mask=hidden, need_weights=need)
    if kind == "cosine":
        torch.testing.assert_close(found[0], layer.out_proj.bias)
    else:
        alone = x[:1]
        torch.testing.assert_close(found[:1], layer(alone, alone, alone)[0])
    found.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_no_token_sees_another_better_than_itself():
    layer = layer_of("l2")
    x = torch.randn(4, 6, **WIDE)
    term = torch.randn(4, 4, **WIDE)
    cut = (term - term.diagonal()[:, None]).clamp(max=0)
    torch.testing.assert_close(layer(x, x, x, attn_mask=term)[0], plain(layer, x, term=cut)[0])


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind, need):
    layer = layer_of(kind, 4, 2)
    x = torch.randn(3, 4, **WIDE, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x, *values):
        given = dict(zip(names, values, strict=True))
        extra = {"is_causal": True, "need_weights": need}
        return torch.func.functional_call(layer, given, (x, x, x), extra)[0]

    assert torch.autograd.gradcheck(run, (x, *values))


@pytest.mark.parametrize("kind", KINDS)
def test_biases_and_zero_tokens(kind):
    """At tokens of zeros everything is smooth."""
    layer = layer_of(kind, 4, 2, bias=False)
    x = torch.zeros(3, 4, **WIDE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x, x, x)[0], x)
    assert torch.autograd.gradgradcheck(lambda x: layer(x, x, x)[0], x)


def test_state_dicts():
    torch_layer = nn.MultiheadAttention(6, 2, **WIDE)
    layer = CosineAttention(6, 2, **WIDE)
    layer.load_state_dict(torch_layer.state_dict())
    for kind in KINDS:
        layer = layer_of(kind, dropout=0.5)
        other = KINDS[kind](6, 2, **WIDE).eval()
        other.load_state_dict(layer.state_dict())
        x = torch.randn(4, 6, **WIDE)
        torch.testing.assert_close(other(x, x, x)[0], layer(x, x, x)[0])


@pytest.mark.parametrize("need", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_dropout(kind, need):
    layer = layer_of(kind, dropout=0.5)
    x = torch.randn(20, 6, **WIDE)
    torch.testing.assert_close(layer(x, x, x)[0], plain(layer, x)[0])
    layer.train()
    found = layer(x, x, x, need_weights=need)[0]
    assert not torch.allclose(found, plain(layer, x)[0])
    assert str(layer.lipschitz(20).domain).endswith("dropout off")
    assert "dropout" not in str(layer_of(kind).lipschitz(20).domain)


@pytest.fixture
def without_onednn(monkeypatch):
    """Its kernels for bfloat16 die on processors that do not have what they claim to have."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)


@pytest.mark.usefixtures("without_onednn")
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(kind):
    """Autocast, and weights in bfloat16, near to what double precision gives."""
    layer = layer_of(kind, 16, 2, batch_first=True)
    x = torch.randn(2, 9, 16, **WIDE)
    right = layer(x, x, x)[0]
    hidden = torch.zeros(2, 9, dtype=torch.bool)
    single = copy.deepcopy(layer).float()
    for need in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = x.float()
            found = single(z, z, z, key_padding_mask=hidden, need_weights=need)[0]
        torch.testing.assert_close(found.double(), right, atol=0.05, rtol=0.05)
        half, y = copy.deepcopy(layer).bfloat16(), x.bfloat16()
        found = half(y, y, y, is_causal=False, need_weights=need)[0]
        assert found.dtype == torch.bfloat16
        assert half.lipschitz(9).upper == pytest.approx(layer.lipschitz(9).upper, rel=0.02)
        torch.testing.assert_close(found.double(), right, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_compile(kind):
    layer = layer_of(kind, batch_first=True)
    x = torch.randn(2, 5, 6, **WIDE, requires_grad=True)
    hidden = torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 3:] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own
        fast = torch.compile(layer, backend="aot_eager", fullgraph=True)
        for options in ({}, {"key_padding_mask": hidden, "need_weights": False}):
            right = layer(x, x, x, **options)[0]
            found = fast(x, x, x, **options)[0]
            torch.testing.assert_close(found, right)
            torch.testing.assert_close(
                torch.autograd.grad(found.sum(), x)[0], torch.autograd.grad(right.sum(), x)[0]
            )


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"num_heads": 4}, "multiple"),
        ({"dropout": 1.0}, "dropout"),
        ({"scale": 0.0}, "scale"),
        ({"nu": -1.0}, "nu"),
        ({"epsilon": math.inf}, "epsilon"),
    ],
)
def test_bad_options(wrong, match):
    with pytest.raises(ValueError, match=match):
        CosineAttention(**{"embed_dim": 6, "num_heads": 2, **wrong})


def test_bad_input():
    layer = layer_of("cosine")
    x = torch.randn(4, 6, **WIDE)
    for wrong in ((x[:, :5],) * 3, (x, x[None], x[None]), (x, x, x[:3])):
        with pytest.raises(ValueError, match="must be"):
            layer(*wrong)
    with pytest.raises(ValueError, match="attn_mask must be of shape"):
        layer(x, x, x, attn_mask=torch.zeros(4, 5))
    with pytest.raises(ValueError, match="key_padding_mask must be of shape"):
        layer(x, x, x, key_padding_mask=torch.zeros(5))
    with pytest.raises(TypeError, match="boolean or floating"):
        layer(x, x, x, attn_mask=torch.zeros(4, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match="any, causal or none"):
        layer.lipschitz(3, mask="some")
    with pytest.raises(ValueError, match="self-attention"):
        layer.lipschitz(3, context=4, mask="causal")


# The promise.


def slope(layer, x, y=None, **options):
    """Norm of the derivative at a sequence, or at queries and keys."""
    if y is None:
        full = oracle.derivative(lambda z: layer(z, z, z, **options)[0], x)
    else:
        full = oracle.derivative(lambda a, b: layer(a, b, b, **options)[0], x, y)
    return float(oracle.spectral(full.detach()))


@pytest.mark.theorem("scsa-cov", "holds")
@pytest.mark.parametrize("seed", range(60))
def test_no_cosine_layer_breaks_its_bound(seed):
    rng = np.random.default_rng(seed)
    heads, n = int(rng.choice([1, 2, 4])), int(rng.integers(1, 9))
    width = heads * int(rng.integers(1, 4))
    scale, nu, epsilon = (float(10 ** rng.uniform(-1, 1)) for _ in range(3))
    size = 10 ** rng.uniform(-1, 0.5)
    layer = layer_of(
        "cosine", width, heads, size=size, seed=seed, scale=scale, nu=nu, epsilon=epsilon
    )
    x = torch.as_tensor(rng.normal(size=(n, width)) * 10 ** rng.uniform(-1, 0.5))
    y = torch.as_tensor(rng.normal(size=(n + 2, width)))
    hidden = torch.as_tensor(rng.random((n, n)) < 0.5)
    anything, causal, without = (
        layer.lipschitz(n, mask=mask).upper for mask in ("any", "causal", "none")
    )
    assert max(without, causal) <= anything * (1 + 1e-12)
    assert slope(layer, x) <= without
    assert slope(layer, x, is_causal=True) <= causal
    assert slope(layer, x, attn_mask=hidden) <= anything
    assert slope(layer, x, attn_mask=5 * torch.randn(n, n, **WIDE)) <= anything
    for mask in ("any", "none"):
        assert slope(layer, x, y) <= layer.lipschitz(n, context=n + 2, mask=mask).upper


@pytest.mark.theorem("l2-attention", "holds")
@pytest.mark.parametrize("seed", range(60))
def test_no_l2_layer_breaks_its_bound(seed):
    rng = np.random.default_rng(seed)
    heads, n = int(rng.choice([1, 2, 4])), int(rng.integers(1, 9))
    width = heads * int(rng.integers(1, 4))
    layer = layer_of("l2", width, heads, size=10 ** rng.uniform(-0.5, 0.5), seed=seed)
    x = torch.as_tensor(rng.normal(size=(n, width)) * 10 ** rng.uniform(-1, 1))
    bound = layer.lipschitz(n).upper
    hidden = torch.as_tensor(rng.random((n, n)) < 0.5)
    assert slope(layer, x) <= bound
    assert slope(layer, x, is_causal=True) <= bound
    assert slope(layer, x, attn_mask=hidden) <= bound
    assert slope(layer, x, attn_mask=3 * torch.randn(n, n, **WIDE)) <= bound
    assert slope(layer, x, key_padding_mask=hidden[0]) <= bound


def test_one_head_has_the_bound_of_taut_attention():
    layer = layer_of("cosine", 4, 1, scale=2.0, nu=3.0, epsilon=0.5)
    wq, wk, wv = layer.in_proj_weight.detach().chunk(3)
    right = attention.cosine(wq, wk, wv, n=7, scale=2.0, nu=3.0, epsilon=0.5).upper
    outer = float(oracle.spectral(layer.out_proj.weight.detach()))
    assert layer.lipschitz(7, mask="none").upper == pytest.approx(right * outer, rel=0.02)
    for n in (7, 300):
        right = attention.cosine(wq, wk, wv, n=n, scale=2.0, nu=3.0, epsilon=0.5, causal=True).upper
        found = layer.lipschitz(n, mask="causal").upper
        assert found == pytest.approx(right * outer, rel=0.03)
        assert found <= layer.lipschitz(n).upper


def climb(layer, n, *, steps=120, seed=0, **options):
    """The layer with the weights, and the slope, that ascent over tokens and weights ends in."""
    torch.manual_seed(seed)
    names = [name for name, _ in layer.named_parameters() if name != "out_proj.bias"]
    start = [torch.randn(n, layer.embed_dim, **WIDE)]
    start += [layer.get_parameter(name).detach() for name in names]

    def score(p):
        given = dict(zip(names, p[1:], strict=True))
        found = oracle.derivative(
            lambda z: torch.func.functional_call(layer, given, (z, z, z), options)[0], p[0]
        )
        # About as large as the bound, so that weights do not just grow.
        if isinstance(layer, CosineAttention):
            size = sum(oracle.spectral(w) for w in given["in_proj_weight"].chunk(3))
        else:
            wq, wv = given["in_proj_weight"].chunk(2)
            size = oracle.spectral(wq) ** 2 * oracle.spectral(wv)
        return oracle.spectral(found) / (size * oracle.spectral(given["out_proj.weight"]))

    _, where = attack.ascend(score, [t.numpy() for t in start], steps=steps, rate=0.1)
    with torch.no_grad():
        for name, value in zip(names, where[1:], strict=True):
            layer.get_parameter(name).copy_(oracle.tensor(value))
    return slope(layer, oracle.tensor(where[0]), **options)


@pytest.mark.parametrize(
    ("kind", "heads", "n", "mask", "least"),
    [
        ("cosine", 1, 2, "none", 0.7),
        ("cosine", 1, 4, "causal", 0.7),
        ("cosine", 2, 3, "none", 0.9),
        ("cosine", 2, 6, "any", 0.9),
        ("l2", 1, 2, "any", 0.4),
        ("l2", 1, 6, "any", 0.3),
        ("l2", 2, 3, "any", 0.4),
    ],
)
def test_ascent_comes_near_the_bound_and_not_above(kind, heads, n, mask, least):
    """So ``least`` times the bound would fail."""
    options = {"is_causal": True} if mask == "causal" else {}
    if mask == "any" and kind == "cosine":
        options["attn_mask"] = torch.zeros(n, n, **WIDE)
        options["attn_mask"][:, 0] = 2.0
    made = {"scale": 3.0, "nu": 1.0, "epsilon": 1.0} if kind == "cosine" else {}
    said = {"mask": mask} if kind == "cosine" else {}
    best = 0.0
    for seed in range(2):
        layer = layer_of(kind, heads, heads, seed=seed, **made)
        found = climb(layer, n, seed=seed, **options)
        bound = layer.lipschitz(n, **said).upper
        assert found <= bound
        best = max(best, found / bound)
    assert best > least


@pytest.mark.parametrize("kind", KINDS)
def test_one_token_attains_the_bound(kind):
    """The layer is then linear, or nearly so near 0: 0.99 times the bound fails."""
    layer = layer_of(kind, 3, 1, bias=False)
    with torch.no_grad():  # norms of products are products of norms only if the matrices fit
        layer.out_proj.weight.copy_(torch.eye(3))
        if kind == "l2":
            layer.in_proj_weight[:3] = torch.eye(3)
    bound = layer.lipschitz(1).upper
    true = slope(layer, torch.zeros(1, 3, **WIDE))
    assert 0.99 * bound < true <= bound


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_of_the_weights_of_now(kind):
    layer = layer_of(kind)
    before = layer.lipschitz(5).upper
    with torch.no_grad():
        layer.out_proj.weight.mul_(3.0)
    assert layer.lipschitz(5).upper == pytest.approx(3 * before)


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss(kind):
    torch.manual_seed(0)
    layer = KINDS[kind](8, 2, batch_first=True)
    x, target = torch.randn(16, 6, 8), torch.randn(16, 6, 8)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.02)
    losses = []
    for _ in range(20):
        loss = (layer(x, x, x, need_weights=False)[0] - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.95 * losses[0]
    assert math.isfinite(layer.lipschitz(6).upper)


# In models.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype.*")
def test_encoder_layers_do_not_take_their_fast_path(kind, by_hand, batch_first):
    """In evaluation mode, without gradients, torch would compute dot-product attention."""
    torch.manual_seed(0)
    one = nn.TransformerEncoderLayer(6, 2, 8, batch_first=batch_first, **WIDE)
    model = nn.TransformerEncoder(one, 2, enable_nested_tensor=batch_first).eval()
    if by_hand:
        for inner in model.layers:
            inner.self_attn = layer_of(kind, batch_first=batch_first)
    else:
        names = [swapped.name for swapped in swap_attention(model, kind)]
        assert names == ["layers.0.self_attn", "layers.1.self_attn"]
    x = torch.randn(2, 5, 6, **WIDE)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    z = x if batch_first else x.transpose(0, 1)
    right = model(z, src_key_padding_mask=padding)  # with gradients
    alone = model(z[1:, :3] if batch_first else z[:3, 1:])
    with torch.no_grad():
        found = model(z, src_key_padding_mask=padding)
    if not batch_first:
        right, found, alone = (t.transpose(0, 1) for t in (right, found, alone))
    torch.testing.assert_close(found[0], right[0])
    torch.testing.assert_close(found[1, :3], right[1, :3])
    torch.testing.assert_close(found[1, :3], alone[0])


def test_swap_keeps_weights_and_flags():
    torch.manual_seed(0)
    model = nn.Transformer(8, 2, 2, 2, 16, batch_first=True, **WIDE)
    model.decoder.layers[0].self_attn.requires_grad_(False)
    model.decoder.layers[1].self_attn = model.decoder.layers[0].self_attn
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.encoder.eval()
    swapped = swap_attention(model, "cosine", scale=4.0)
    assert len(swapped) == 6
    assert all(isinstance(s.module, CosineAttention) and s.module.scale == 4.0 for s in swapped)
    after = model.state_dict()
    assert set(after) == set(before)
    assert all((after[name] == before[name]).all() for name in before)
    first, second = (inner.self_attn for inner in model.decoder.layers)
    assert first is second
    assert not first.in_proj_weight.requires_grad
    assert not first.out_proj.bias.requires_grad
    assert first.training
    assert not model.encoder.layers[0].self_attn.training
    x = torch.randn(2, 5, 8, **WIDE)
    assert model(x, x).shape == x.shape
    bound = swapped[-1].lipschitz(5, context=5)
    assert bound.upper == swapped[-1].module.lipschitz(5, context=5).upper


def test_swap_to_l2_keeps_queries_and_values():
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, **WIDE))
    old = model[0].self_attn
    with torch.no_grad():
        old.in_proj_bias.normal_()
    (swapped,) = swap_attention(model, "l2")
    new, (q, _, v) = swapped.module, old.in_proj_weight.chunk(3)
    assert (new.in_proj_weight == torch.cat([q, v])).all()
    assert (new.out_proj.weight == old.out_proj.weight).all()
    shift = old.out_proj(old.in_proj_bias.chunk(3)[2])
    torch.testing.assert_close(new.out_proj.bias, shift)


def test_swap_refuses_and_changes_nothing():
    with pytest.raises(ValueError, match="no attention to swap"):
        swap_attention(nn.Sequential(nn.Linear(2, 2)), "cosine")
    with pytest.raises(ValueError, match="pass the module that holds it"):
        swap_attention(nn.MultiheadAttention(4, 2), "cosine")
    with pytest.raises(ValueError, match="cosine or l2"):
        swap_attention(nn.Linear(2, 2), "dot")
    with pytest.raises(TypeError, match="no options"):
        swap_attention(nn.TransformerEncoderLayer(4, 2), "l2", scale=1.0)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        swap_attention(3, "l2")
    with pytest.raises(ValueError, match="another sequence"):
        swap_attention(nn.TransformerDecoderLayer(4, 2), "l2")
    model = nn.Sequential(
        nn.TransformerEncoderLayer(4, 2), nn.ModuleList([nn.MultiheadAttention(4, 2, kdim=3)])
    )
    with pytest.raises(ValueError, match="kdim"):
        swap_attention(model, "cosine")
    assert isinstance(model[0].self_attn, nn.MultiheadAttention)
