"""QKClip on fused attention and on multi-head latent attention."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import control  # noqa: E402
from taut.models import (  # noqa: E402
    Products,
    Scores,
    find_latent_attention,
    largest_scores,
    score_blocks,
)

nn = torch.nn


def deepseek(kind="DeepseekV3", **options):
    torch.manual_seed(0)
    settings = {
        "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1,
        "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 12, "q_lora_rank": 16,
        "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "head_dim": 4,
        "max_position_embeddings": 64, **options,
    }  # fmt: skip
    config = getattr(transformers, f"{kind}Config")(**settings)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def scores_of(model, ids):
    """The largest score of every head by hand: what the attention function is called with."""
    found = []

    def spy(module, query, key, value, attention_mask, scaling=None, **_):
        scores = (query @ key.mT * scaling).float()
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        found.append(scores.masked_fill(~causal, -torch.inf).amax(dim=(0, 2, 3)))
        return (scores.masked_fill(~causal, -torch.inf).softmax(-1) @ value).transpose(1, 2), None

    before = model.config._attn_implementation
    transformers.AttentionInterface.register("spy", spy)
    model.config._attn_implementation = "spy"
    try:
        with torch.no_grad():
            model(input_ids=ids, use_cache=False)
    finally:
        model.config._attn_implementation = before
    return torch.cat(found)


@pytest.mark.parametrize("kind", ["DeepseekV2", "DeepseekV3"])
@pytest.mark.parametrize("rank", [16, None])
@pytest.mark.parametrize("alpha", [0.5, 0.25])
def test_latent_attention_is_clipped_head_by_head(kind, rank, alpha):
    model = deepseek(kind, q_lora_rank=rank)
    for found in find_latent_attention(model):  # heads of very different sizes
        with torch.no_grad():
            found.query.parameter.mul_(20)
            found.query.parameter[: found.plain + found.rotary].mul_(0.001)
    ids = torch.randint(0, 50, (2, 9))
    before = scores_of(model, ids)
    limit = float(before.max()) / 3
    clip = control.QKClip(model, limit=limit, alpha=alpha).start()
    rows = {name: p.detach().clone() for name, p in model.named_parameters()}
    model(input_ids=ids, use_cache=False)
    measured = torch.tensor([row.largest for row in clip.verify()])
    torch.testing.assert_close(measured, before, rtol=1e-5, atol=1e-6)
    clip.after_step()
    changed = [name for name, p in model.named_parameters() if not torch.equal(p, rows[name])]
    query = "q_proj" if rank is None else "q_b_proj"
    assert all(query in name or "kv_b_proj" in name for name in changed)
    first = find_latent_attention(model)[0]
    share = limit / before[: first.heads]
    share = torch.where(before[: first.heads] > limit, share, torch.ones_like(share))
    for weight, parts in (
        (first.query, ((first.plain, alpha), (first.rotary, 1.0))),
        (first.key_value, ((first.plain, 1 - alpha), (first.value, 0.0))),
    ):
        ratio = (weight.matrix() / rows[weight.name]).reshape(
            first.heads, -1, weight.matrix().shape[1]
        )
        expected = torch.cat([(share**power)[:, None].expand(-1, n) for n, power in parts], dim=1)
        torch.testing.assert_close(ratio, expected[:, :, None].expand_as(ratio), rtol=1e-4, atol=0)
    clip.stop()
    # the first layer reads what it read before; its scores are at the limit exactly
    after = scores_of(model, ids)[: first.heads]
    torch.testing.assert_close(after, before[: first.heads].clamp(max=limit), rtol=1e-4, atol=1e-6)


def test_alpha_and_limit_are_checked():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    for options in ({"alpha": 1.5}, {"alpha": float("nan")}, {"alpha": "half"}, {"limit": -1.0}):
        with pytest.raises((ValueError, TypeError), match=next(iter(options))):
            control.QKClip(layer, **options)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_alpha_divides_the_factor_between_queries_and_keys(alpha):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.randn(3, 5, 8)
    before = layer.self_attn.in_proj_weight.detach().clone()
    clip = control.QKClip(layer, limit=0.01, alpha=alpha).start()
    layer(x)
    share = 0.01 / torch.tensor([row.largest for row in clip.verify()])
    clip.after_step()
    ratio = layer.self_attn.in_proj_weight / before
    expected = torch.cat([share**alpha, share ** (1 - alpha), torch.ones(2)]).repeat_interleave(4)
    torch.testing.assert_close(ratio, expected[:, None].expand_as(ratio))
    layer(x)
    assert all(row.holds for row in clip.verify())


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_scores_in_blocks_are_those_of_all_at_once(causal, masked, monkeypatch):
    monkeypatch.setattr(score_blocks, "BLOCK", 40)  # a few rows
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 17, 4), torch.randn(2, 3, 17, 4)
    bias = None
    scores = 0.3 * (q @ k.mT)
    if masked:
        hidden = torch.rand(2, 1, 17, 17) < 0.5
        hidden[..., 0] = False
        bias = torch.randn(2, 1, 17, 17).masked_fill(hidden, torch.finfo(torch.float32).min)
        scores = scores.masked_fill(hidden, -torch.inf)
    if causal:
        scores = scores.masked_fill(~torch.ones(17, 17).tril().bool(), -torch.inf)
    for absolute in (False, True):
        sizes = scores.masked_fill(scores == -torch.inf, 0.0).abs() if absolute else scores
        expected = sizes.amax(dim=(0, 2, 3))
        found = largest_scores(Products("", q, k, bias, 0.3, causal), absolute=absolute)
        torch.testing.assert_close(found, expected)
        written = largest_scores(Scores("", scores, scores.softmax(-1)), absolute=absolute)
        torch.testing.assert_close(written, expected)


def test_nan_in_fused_scores_is_not_lost():
    q = torch.randn(1, 2, 5, 4)
    q[0, 1, 3] = torch.nan
    found = largest_scores(Products("", q, torch.randn(1, 2, 5, 4), None, 1.0, True))
    assert found.isnan().tolist() == [False, True]


def test_no_matrix_of_all_scores_is_made():
    """Of 2,048 tokens all scores of one head would be 16 MB; blocks are 4 MB."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor):
                largest = max(largest, result.numel())
            return result

    q, k = torch.randn(1, 2, 2048, 8), torch.randn(1, 2, 2048, 8)
    with Sizes():
        largest_scores(Products("", q, k, None, 1.0, True))
    assert largest <= 1 << 20
