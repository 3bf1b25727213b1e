"""Squared derivatives in scores, keys and values, against autograd on explicit noise."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from taut.models import attention_gradients, attention_sums  # noqa: E402
from tests.helpers.toy_attention import ToyAttention, token_ids, toy  # noqa: E402

PADDED = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


def sums(model, ids, weights, **inputs):
    with attention_gradients(model) as mode:
        output = model(ids, **inputs)
    return mode.backward(output, weights), mode


def by_autograd(ids, weights, **inputs):
    """The same from leaves of noise in the model that is written out."""
    model, found = toy("written"), []
    samples, n = ids.shape
    heads, width = ToyAttention.heads, ToyAttention.width
    for layer in model.layers:
        shapes = {"scores": (n, n), "keys": (n, width), "values": (n, width)}
        layer.noise = {
            name: torch.zeros(samples, heads, *shape, dtype=torch.float64, requires_grad=True)
            for name, shape in shapes.items()
        }
    (model(ids, **inputs) * weights).sum().backward()
    for layer in model.layers:
        found.append({k: v.grad.square().sum(dim=(-2, -1)) for k, v in layer.noise.items()})
    return found


@pytest.mark.parametrize(
    ("form", "masked"),
    [("fused", False), ("fused", True), ("written", False), ("written", True), ("causal", False)],
)
@pytest.mark.parametrize("cells", [1, 1 << 20])
def test_sums_are_those_of_autograd(form, masked, cells, monkeypatch):
    monkeypatch.setattr(attention_sums, "CELLS", cells)  # one query at a time, and all at once
    ids = token_ids()
    inputs = {"attention_mask": PADDED} if masked else {}
    weights = torch.randn(2, 6, 5, dtype=torch.float64)
    if masked:
        weights = weights * PADDED[..., None]
    found, mode = sums(toy(form), ids, weights, **inputs)
    assert [(each.path, each.call) for each in found] == [("layers.0", 1), ("layers.1", 1)]
    assert not mode.unseen
    for each, wanted in zip(found, by_autograd(ids, weights, **inputs), strict=True):
        assert each.reason == ""
        for kind, value in wanted.items():
            torch.testing.assert_close(getattr(each, kind), value, rtol=1e-9, atol=1e-12)


def test_padding_does_not_count_in_the_power_of_keys():
    ids, weights = token_ids(), torch.randn(2, 6, 5, dtype=torch.float64) * PADDED[..., None]
    for form in ("fused", "written"):
        (first, _), _ = sums(toy(form), ids, weights, attention_mask=PADDED)
        short, _ = sums(toy(form), ids[1:, :4], weights[1:, :4])
        torch.testing.assert_close(first.key_power[1:], short[0].key_power)
        torch.testing.assert_close(first.value_power[1:], short[0].value_power)
        torch.testing.assert_close(first.keys[1:], short[0].keys)


def test_several_backward_passes_and_the_model_left_as_it_was():
    model, ids = toy(), token_ids()
    frozen = model.head.weight.requires_grad_(False)
    one, other = torch.randn(2, 2, 6, 5, dtype=torch.float64)
    before = model(ids)
    with attention_gradients(model) as mode:
        output = model(ids)
    found = [mode.backward(output, weights)[0].scores for weights in (one, other, one)]
    torch.testing.assert_close(found[0], found[2])
    assert not torch.allclose(found[0], found[1])
    torch.testing.assert_close(output, before, rtol=0, atol=0)
    assert [w.requires_grad for w in model.parameters()] == [
        w is not frozen for w in model.parameters()
    ]
    assert all(w.grad is None for w in model.parameters())
    assert all("forward" not in vars(m) and not m._forward_hooks for m in model.modules())


def test_bfloat16_is_close_to_float32():
    ids, weights = token_ids(), torch.randn(2, 6, 5)
    wide, _ = sums(toy().float(), ids, weights)
    narrow, _ = sums(toy().bfloat16(), ids, weights.bfloat16())
    for a, b in zip(wide, narrow, strict=True):
        for kind in ("scores", "keys", "values", "key_power", "value_power"):
            assert getattr(b, kind).dtype == torch.float64
            torch.testing.assert_close(getattr(b, kind), getattr(a, kind), rtol=0.1, atol=1e-4)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_torch_multi_head_attention(need_weights, batch_first):
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first).double().eval()
    x, weights = torch.randn(2, 3, 4, 8, dtype=torch.float64)
    hidden = torch.ones(4, 4, dtype=torch.bool).triu(1)
    if not batch_first:
        x, weights = x.transpose(0, 1), weights.transpose(0, 1)
    with attention_gradients(attention) as mode:
        output, _ = attention(x, x, x, need_weights=need_weights, attn_mask=hidden)
    (found,) = mode.backward(output, weights)
    w, b = attention.in_proj_weight.detach(), attention.in_proj_bias.detach()
    tokens = x if batch_first else x.transpose(0, 1)
    q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in (tokens @ w.T + b).chunk(3, -1))
    noise = torch.zeros(3, 2, 4, 4, dtype=torch.float64, requires_grad=True)
    k = k.detach().requires_grad_(True)
    z = (q @ k.transpose(-1, -2) / 2 + noise).masked_fill(hidden, -torch.inf)
    o = (z.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
    o = attention.out_proj(o)
    (o * (weights if batch_first else weights.transpose(0, 1))).sum().backward()
    torch.testing.assert_close(found.scores, noise.grad.square().sum(dim=(-2, -1)))
    torch.testing.assert_close(found.keys, k.grad.square().sum(dim=(-2, -1)))
    assert torch.nn.functional.has_torch_function is torch.overrides.has_torch_function


def test_what_is_not_seen_says_why():
    ids, weights = token_ids(), torch.randn(2, 6, 5, dtype=torch.float64)
    found, mode = sums(toy("einsum"), ids, weights)
    assert found == []
    assert mode.unseen.keys() == {"layers.0", "layers.1"}
    assert "values" in mode.unseen["layers.0"]
    found, mode = sums(toy("detached"), ids, weights)
    assert all(each.scores is None and "gradient" in each.reason for each in found)


@pytest.mark.parametrize("fused", [True, False])
def test_a_layout_that_is_not_known_is_not_guessed(fused):
    class Grouped(torch.nn.Module):
        num_heads = 4

        def forward(self, x):
            if fused:
                return torch.nn.functional.scaled_dot_product_attention(x, x, x)
            return (x @ x.transpose(-1, -2)).softmax(dim=-1) @ x

    model, x = Grouped(), torch.randn(1, 2, 2, 5, 3)  # two groups of two heads
    with attention_gradients(model) as mode:
        output = model(x)
    (found,) = mode.backward(output, torch.ones_like(output))
    assert found.scores is None
    assert "(samples, heads, tokens, width)" in found.reason


def test_a_row_that_sees_nothing_and_changes_in_place():
    class Odd(torch.nn.Module):
        num_heads = 1

        def forward(self, x):
            mask = torch.tensor([[False, False], [True, True]])
            o = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)
            o = torch.nan_to_num(o)
            o.mul_(2)
            return o

    x = torch.randn(1, 1, 2, 3, dtype=torch.float64)
    with attention_gradients(Odd()) as mode:
        output = Odd()(x)
    (found,) = mode.backward(output, torch.ones_like(output))
    assert torch.isfinite(found.scores).all()
    assert (found.scores > 0).all()
