"""Orthogonality penalties: exact values and gradients, however models keep their weights."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut import control  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn
NAMES = ("gpt2", "bert", "llama", "qwen2", "qwen3", "vit", "t5", "marian", "bart", "distilbert")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def naive(w):
    return (w.mT @ w - torch.eye(w.shape[1], dtype=w.dtype)).square().sum()


@pytest.mark.theorem("ortho-cert", "holds")
@pytest.mark.theorem("ortho-cert", "falsifiable")
@pytest.mark.theorem("ortho-cert", "attained")
def test_the_penalty_is_a_certificate():
    torch.manual_seed(0)
    nearest = 0.0
    for trial in range(300):
        shape = torch.randint(1, 9, (2,)).tolist()
        w = torch.randn(shape, dtype=torch.float64) * 10 ** (trial % 5 - 2)
        sigma = torch.linalg.matrix_norm(w, 2) ** 2
        bound = 1 + naive(w).sqrt()
        assert sigma <= bound * (1 + 1e-12)
        nearest = max(nearest, float(sigma / bound))
    assert nearest > 0.99  # so 0.99 times the bound is exceeded
    w = torch.diag(torch.tensor([3.0, 1.0, 1.0], dtype=torch.float64))
    assert float(1 + naive(w).sqrt()) == pytest.approx(9.0, rel=1e-12)


@pytest.mark.theorem("ortho-gram", "holds")
@pytest.mark.theorem("ortho-gram", "falsifiable")
@pytest.mark.theorem("ortho-gram", "attained")
@pytest.mark.theorem("ortho-gram", "derivative")
@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (4, 9), (1, 7), (7, 1)])
def test_the_smaller_gram_gives_the_same(shape):
    from taut.control.constraints.gram_penalty import GramPenalty

    torch.manual_seed(0)
    w = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert GramPenalty.apply(w).item() == pytest.approx(naive(w).item(), rel=1e-12)
    (mine,) = torch.autograd.grad(GramPenalty.apply(w), w)
    (theirs,) = torch.autograd.grad(naive(w), w)
    assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-12)
    more = torch.randn(3, shape[1], dtype=torch.float64, requires_grad=True)
    assert torch.allclose(GramPenalty.apply(w, more), naive(torch.cat((w, more))))
    assert torch.autograd.gradcheck(GramPenalty.apply, (w, more))


def weights(model, block):
    """The matrices (out, in) of a block, read from the model by hand."""
    modules = dict(model.named_modules())
    module = modules[block.path]
    if isinstance(module, nn.MultiheadAttention):
        return [*module.in_proj_weight.chunk(3), module.out_proj.weight]
    if hasattr(module, "c_attn"):
        return [*module.c_attn.weight.T.chunk(3), module.c_proj.weight.T]
    return [dict(model.named_parameters())[w.name] for w in block.weights.values()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("join", ["stack", "beside", "each"])
def test_linear_maps_of_attention(name, join):
    model, _ = tiny(name)
    model = model.double()
    constraint = control.Orthogonality(model, "LA", strength=1.0, join=join).start()
    total = 0.0
    for block in constraint.blocks:
        if block.kind != "attention":
            continue
        q, k, v, o = weights(model, block)
        if join == "stack":
            total = total + naive(torch.cat((q, k, v, o.mT)))
        elif join == "beside":
            total = total + naive(torch.cat((q.mT, k.mT, v.mT, o), dim=1))
        else:
            total = total + sum(map(naive, (q, k, v, o)))
    assert torch.allclose(constraint.penalty(), total, rtol=1e-10)
    assert constraint.values() == {"LA": pytest.approx(total.item(), rel=1e-9)}


@pytest.mark.parametrize("name", NAMES)
def test_gradients_before_a_step_are_those_of_the_loss(name):
    model, _ = tiny(name)
    model = model.double()
    constraint = control.Orthogonality(model, ["LA", "LF"], strength=0.3).start()
    constraint.penalty().backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    constraint.add_gradients()
    found = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert set(found) == set(expected)
    for n in found:
        assert torch.allclose(found[n], expected[n], rtol=1e-10, atol=1e-12), n
    constraint.add_gradients()  # adds to what is there
    for n, p in model.named_parameters():
        if n in expected:
            assert torch.allclose(p.grad, 2 * expected[n], rtol=1e-10, atol=1e-12)


def plain_affinity(q, k, factor, bias=None, causal=False):
    """Sum over samples and heads of ‖AᵀA − I‖² on real queries and keys, written out."""
    scores = factor * q @ k.mT
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    total = 0.0
    for group in scores.flatten(0, -3):
        keys = (group > -9e3).any(dim=0)
        rows = keys if len(keys) == len(group) else torch.ones(len(group), dtype=torch.bool)
        a = group.softmax(dim=-1)[rows][:, keys]
        total = total + naive(a)
    return total


@pytest.mark.parametrize("shape", [(600, 258), (258, 600), (512, 256), (300, 299)])
@pytest.mark.parametrize("triangular", [False, True])
def test_products_from_blocks(shape, triangular):
    from taut.control.constraints.gram_penalty import GramPenalty, gram_matrix

    torch.manual_seed(0)
    w = torch.randn(2, *shape, dtype=torch.float64)
    w = w.tril() if triangular else w
    torch.testing.assert_close(gram_matrix(w, triangular=triangular), w.mT @ w)
    v = w[0].requires_grad_()
    (mine,) = torch.autograd.grad(GramPenalty.apply(v), v)
    (plain,) = torch.autograd.grad(naive(v), v)
    torch.testing.assert_close(mine, plain)


def test_large_heads_and_their_gradient():
    """So many tokens that products are made from blocks, with and without a causal mask."""
    from taut.control.constraints.affinity_penalty import AffinityOptions, AffinityPenalty

    for causal in (False, True):
        torch.manual_seed(0)
        q, k = torch.randn(2, 2, 300, 4, dtype=torch.float64).unbind(0)
        q.requires_grad_()
        scores = q @ k.mT * 0.7
        if causal:
            scores = scores.masked_fill(torch.ones(300, 300).triu(1).bool(), -torch.inf)
        value = sum(naive(a) for a in scores.softmax(-1))
        found = AffinityPenalty.apply(q, k, None, AffinityOptions(0.7, causal, 0, None))
        torch.testing.assert_close(found, value)
        slopes = [torch.autograd.grad(x, q)[0] for x in (found, value)]
        torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("tokens", [(6, 6), (4, 7), (7, 4)])
@pytest.mark.parametrize("case", ["plain", "causal", "padding", "bias"])
def test_affinity_and_its_gradient(tokens, case):
    from taut.control.constraints.affinity_penalty import AffinityOptions, AffinityPenalty

    torch.manual_seed(0)
    n, m = tokens
    q, k = (2 * torch.randn(6, t, 3, dtype=torch.float64) for t in tokens)
    bias = None
    if case == "padding":
        bias = torch.zeros(6, 1, m, dtype=torch.float64).expand(6, n, m).clone()
        bias[2:4, :, m - 2 :] = -math.inf
    if case == "bias":
        bias = torch.randn(1, n, m, dtype=torch.float64).requires_grad_(True)
    q.requires_grad_(True)
    k.requires_grad_(True)
    asked = AffinityOptions(0.7, case == "causal", 0, None)
    mine = AffinityPenalty.apply(q, k, bias, asked)
    wanted = [q, k] + ([bias] if case == "bias" else [])
    theirs = plain_affinity(q, k, 0.7, bias, case == "causal")
    assert mine.item() == pytest.approx(theirs.item(), rel=1e-10)
    for a, b in zip(
        torch.autograd.grad(mine, wanted), torch.autograd.grad(theirs, wanted), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-9)


def test_affinity_in_pieces_is_the_same(monkeypatch):
    from taut.control.constraints import affinity_penalty as _affinity

    torch.manual_seed(0)
    q, k = torch.randn(2, 10, 8, 4, dtype=torch.float64).unbind(0)
    asked = _affinity.AffinityOptions(1.0, False, 0, None)
    whole = _affinity.AffinityPenalty.apply(q, k, None, asked)
    monkeypatch.setattr(_affinity, "AT_ONCE", 130)
    assert torch.allclose(_affinity.AffinityPenalty.apply(q, k, None, asked), whole)


def test_the_estimate_is_unbiased():
    from taut.control.constraints.affinity_penalty import AffinityOptions, AffinityPenalty

    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 9, 4, dtype=torch.float64).unbind(0)
    q.requires_grad_(True)
    exact = AffinityPenalty.apply(q, k, None, AffinityOptions(1.0, False, 0, None))
    (slope,) = torch.autograd.grad(exact, q)
    generator = torch.Generator().manual_seed(0)
    tries = [
        AffinityPenalty.apply(q, k, None, AffinityOptions(1.0, False, 4, generator))
        for _ in range(2000)
    ]
    values = torch.stack(tries).detach()
    error = float(values.std()) / math.sqrt(len(values))
    assert abs(values.mean().item() - exact.item()) < 5 * error
    (mean,) = torch.autograd.grad(torch.stack(tries).mean(), q)
    assert float((mean - slope).norm() / slope.norm()) < 0.1
    one = AffinityPenalty.apply(
        q, k, None, AffinityOptions(1.0, False, 3, torch.Generator().manual_seed(1))
    )
    assert torch.autograd.gradcheck(
        lambda q: AffinityPenalty.apply(
            q, k, None, AffinityOptions(1.0, False, 3, torch.Generator().manual_seed(1))
        ),
        (q,),
    )
    assert one.ndim == 0


@pytest.mark.parametrize("name", [*NAMES, "gemma2", "opt", "bloom", "falcon", "deberta-v2"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_attention_of_models(name, implementation):
    """The penalty of a model against the weights that it gives out; and the output is as before."""
    model, inputs = tiny(name)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    model.set_attn_implementation("eager")
    model.train()
    with torch.no_grad():
        output = model(**inputs, output_attentions=True)
    given = [
        getattr(output, k, None)
        for k in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
    ]
    maps = [a for group in given if group for a in group]
    expected = 0.0
    for a in maps:
        for sample in a.flatten(0, 1).double():
            expected += float(naive(sample)) / len(a)
    try:
        model.set_attn_implementation(implementation)
    except ValueError:  # there is no such implementation
        assert implementation == "sdpa"
        assert not model._supports_sdpa
        return
    hooks = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    constraint = control.Orthogonality(model, "AM", strength=1.0).start()
    torch.manual_seed(0)
    watched = model(**inputs)[0]
    assert constraint.penalty().item() == pytest.approx(expected, rel=1e-4)
    constraint.penalty().backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    constraint.bake()
    torch.manual_seed(0)
    assert torch.equal(model(**inputs)[0], watched)
    after = [(dict(m._forward_hooks), dict(m._forward_pre_hooks)) for m in model.modules()]
    assert after == hooks


@pytest.mark.parametrize("need_weights", [False, True])
def test_attention_of_torch(need_weights):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).train()
    constraint = control.Orthogonality(layer, "AM", strength=1.0).start()
    x = torch.randn(3, 6, 8)
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[1, 4:] = True
    layer(x, x, x, key_padding_mask=padding, need_weights=need_weights)
    found = constraint.penalty()
    with torch.no_grad():
        _, maps = layer(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    expected = 0.0
    for a, hidden in zip(maps, padding, strict=True):
        expected += sum(float(naive(h[~hidden][:, ~hidden])) for h in a) / 3
    assert found.item() == pytest.approx(expected, rel=1e-5)
    found.backward()
    assert layer.in_proj_weight.grad.abs().sum() > 0


def test_stacks_of_torch_are_found():
    model = nn.Transformer(16, 4, 2, 1, 32, batch_first=True)
    blocks = control.find_blocks(model)
    assert [b.kind for b in blocks].count("attention") == 4
    assert [b.kind for b in blocks].count("feed-forward") == 3
    assert len(control.find_blocks(model, only="decoder.*")) == 3
    text = str(control.Orthogonality(model, "VAR-III", strength=1e-6).start())
    assert "AM + LA + LF, strength 1e-06, on" in text
    assert "encoder.layers.0.self_attn.in_proj_weight[0:16]" in text


def test_verify_agrees_with_singular_values():
    model, _ = tiny("gpt2")
    constraint = control.Orthogonality(model, ["LA", "LF"], strength=1.0).start()
    for row in constraint.verify():
        proved, sigma = row.certificates
        assert row.holds
        assert row.largest <= sigma.upper <= proved.upper
        assert sigma.upper == pytest.approx(row.largest, rel=1e-10)
        assert (proved.theorem, sigma.theorem) == (("ortho-cert",), ("spectral",))
        for bound in row.certificates:
            assert (bound.kind, str(bound.norm), bound.rounding) == ("upper", "l2", "proved")
    q, k, v, o = weights(model, control.find_blocks(model)[0])
    stacked = torch.cat((q, k, v, o.mT)).double().detach()
    assert constraint.verify()[0].largest == pytest.approx(float(torch.linalg.svdvals(stacked)[0]))
    with torch.no_grad():  # exactly orthogonal: nothing to pull at
        for block in constraint.blocks:
            for weight in block.weights.values():
                shape = weight.matrix().shape
                tall = torch.linalg.qr(torch.randn(max(shape), min(shape)))[0]
                weight.replace(tall if shape[0] >= shape[1] else tall.mT)
    again = control.Orthogonality(model, ["LA"], strength=1.0, join="each").start().verify()
    for row in again:
        assert row.largest == pytest.approx(1.0, abs=1e-5)
        proved = row.certificates[0].upper
        wide = (proved**2 - 1) ** 2 > 1  # more columns than rows: they cannot all be orthogonal
        assert wide or proved < 1.03


def test_it_can_be_met():
    """Stacked maps reach the least value; an optimiser gets there."""
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    constraint = control.Orthogonality(model, ["LA", "LF"], strength=1.0, before_step=True)
    constraint.start(optimizer)
    before = constraint.values()
    for _ in range(400):
        optimizer.zero_grad()
        optimizer.step()
    after = constraint.values()
    assert after["LA"] < 1e-6 < before["LA"]
    assert after["LF"] == pytest.approx(8.0, abs=1e-3)  # the second map, 8 by 16, has rank 8
    constraint.stop()
    optimizer.zero_grad()
    optimizer.step()
    assert constraint.values() == after  # nothing pulls any more


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"parts": "VAR-IV"}, "parts must be one of"),
        ({"parts": []}, "parts must be one of"),
        ({"strength": -1.0}, "strength"),
        ({"strength": math.nan}, "strength"),
        ({"join": "sideways"}, "join"),
        ({"only": "nothing.*"}, "matches 'nothing"),
    ],
)
def test_bad_input(given, words):
    model = nn.TransformerEncoderLayer(8, 2, 16)
    with pytest.raises(ValueError, match=words):
        control.Orthogonality(model, **given)
    with pytest.raises(ValueError, match="no attention or feed-forward"):
        control.Orthogonality(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="LF constrains feed-forward, and none"):
        control.Orthogonality(nn.MultiheadAttention(8, 2), "VAR-III")
    unseen = control.Orthogonality(model, "AM").start()
    with pytest.raises(RuntimeError, match="no attention was seen"):
        unseen.penalty()
