"""Transformers with a bound for all inputs: it holds, is kept by training, and is certify's own."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import taut
from taut.control import LipschitzTransformer, WeightLimits, lipschitz_like
from taut.networks import certify

ATTENTION = ["dot_product", "cosine", "l2"]
NORMS = ["centre", "rms", "layer"]
SMALL = {"tokens": 4, "width": 8, "layers": 2, "heads": 2}


def text(**options) -> LipschitzTransformer:
    torch.manual_seed(0)
    return LipschitzTransformer.of_text(6, **{**SMALL, "target": 2.0, **options}).double()


def images(**options) -> LipschitzTransformer:
    torch.manual_seed(0)
    sizes = {"image": (1, 4, 4), "patch": 2, "width": 8, "layers": 2, "heads": 2, "target": 1.0}
    return LipschitzTransformer.of_images(3, **{**sizes, **options}).double()


@torch.no_grad()
def shaken(model: LipschitzTransformer, size: float, seed: int = 0) -> LipschitzTransformer:
    """Wild weights, brought back into their limits."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.add_(size * torch.randn_like(parameter))
    WeightLimits(model).start().stop()
    return model


@pytest.mark.parametrize(
    ("attention", "activation", "pool"),
    list(itertools.product(ATTENTION, ["gelu", "maxmin"], [None, "mean", "all"])),
)
@pytest.mark.parametrize("size", [0.1, 10.0])
def test_the_target_is_kept_whatever_the_weights_are(attention, activation, pool, size):
    options = {"attention": attention, "activation": activation, "sharpness": 0.4 + size / 10}
    model = images(**options, pool=pool) if pool else text(**options)
    certificate = shaken(model, size).certificate()
    assert 0 < certificate.upper <= model.target * (1 + 1e-9)
    assert certificate.rounding == "proved"


@pytest.mark.parametrize(("attention", "norm"), list(itertools.product(ATTENTION, NORMS)))
def test_the_target_is_kept_with_norm_layers(attention, norm):
    """With attention and feed-forward networks alone, at their limits."""
    options = {"attention": attention, "norm": norm, "activation": "maxmin"}
    for model in (images(**options), text(**options)):
        with torch.no_grad():
            for block in model.blocks:
                block.attention_share.fill_(1.0)
        certificate = shaken(model, 0.0).certificate()
        assert 0.1 < certificate.upper / model.target <= 1 + 1e-9


@pytest.mark.parametrize("attention", ATTENTION)
def test_the_budget_of_attention_is_its_constant(attention):
    """With orthogonal maps, the certificate of attention is what its factor divides by."""
    model = text(attention=attention, sharpness=0.8, heads=2)
    layer = model.blocks[0].attention
    ball = taut.Ball(layer.reach, shape=(4, 8))
    found = certify(layer, ball, norm="token", measure=False).bound.upper[0]
    assert found * model.budget.attention == pytest.approx(1.0, rel=1e-5)  # orthogonal in float32
    model = images(attention=attention, sharpness=0.8)
    layer = model.blocks[0].attention
    ball = taut.Ball(layer.reach, shape=(4, 8))
    found = certify(layer, ball, norm="l2", measure=False).bound.upper[0]
    assert found <= float(layer.l2_constant().detach()) * (1 + 1e-5)


@pytest.mark.parametrize(("kind", "norm"), [("dot_product", None), ("l2", "layer")])
def test_the_certificate_is_that_of_certify(kind, norm):
    model = shaken(text(attention=kind, norm=norm), 1.0)
    found = certify(model, taut.Everywhere(shape=(4, 8)), norm="token", measure=False).bound
    assert model.certificate("token").upper == found.upper[0]
    assert model.certificate("token").theorem == found.theorem
    assert model.certificate().upper == pytest.approx(found.upper[0] * (8 / 6) ** 0.5, rel=1e-12)
    assert str(model.certificate().norm) == "largest token RMS"
    model = shaken(images(attention=kind, norm=norm), 1.0)
    both = [
        certify(model, taut.Everywhere(shape=(1, 4, 4)), norm=norm, measure=False).bound.upper[0]
        for norm in ("l2", "token")
    ]
    assert model.certificate().upper == min(both)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ATTENTION)
def test_no_input_moves_the_logits_farther(seed, kind):
    """Ascent over pairs of embeddings, in the largest token."""
    norm = [None, *NORMS][seed]
    model = shaken(text(attention=kind, norm=norm, sharpness=3.0), 3.0, seed)
    bound = model.certificate("token").upper
    x = (3 * torch.randn(32, 4, 8, dtype=torch.float64)).requires_grad_()
    d = torch.randn_like(x).requires_grad_()
    optimizer = torch.optim.Adam([x, d], lr=0.1)
    worst = 0.0
    for _ in range(60):
        step = 1e-2 * d / d.norm(dim=-1, keepdim=True).amax(dim=1, keepdim=True)
        moved = model(inputs_embeds=x + step) - model(inputs_embeds=x)
        ratio = moved.norm(dim=-1).amax(dim=1) / step.norm(dim=-1).amax(dim=1)
        worst = max(worst, float(ratio.detach().max()))
        optimizer.zero_grad()
        (-ratio.sum()).backward()
        optimizer.step()
    assert 0.02 * bound < worst <= bound


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_training_stays_within_the_target(kind):
    torch.manual_seed(0)
    model = LipschitzTransformer.of_text(6, **SMALL, target=2.0)
    maps = [p for n, p in model.named_parameters() if n.startswith("blocks") and p.ndim == 2]
    maps = [p for p in maps if p.shape[0] != 2]  # tables of positions
    if kind == "muon":
        optimizer = torch.optim.Muon(maps, lr=0.5)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.3)
    limits = WeightLimits(model).start(optimizer)
    ids = torch.randint(0, 6, (8, 4))
    first = None
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        first = float(loss.detach()) if first is None else first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows = limits.verify()
        assert all(row.holds for row in rows), [str(row) for row in rows if not row.holds]
    assert float(loss.detach()) < first


def test_weights_that_break_the_limits_are_told():
    model = text()
    limits = WeightLimits(model).start()
    with torch.no_grad():
        model.blocks[0].first.mul_(100.0)
    rows = {row.name: row.holds for row in limits.verify()}
    assert not rows["blocks.0.first"]
    assert not rows[""]
    limits.after_step()
    assert all(row.holds for row in limits.verify())


def test_a_target_that_is_missed_by_little_is_missed():
    model = shaken(text(), 1.0)
    limits = WeightLimits(model)
    model.target = model.certificate().upper
    assert limits.verify()[-1].holds
    model.target *= 1 - 1e-9
    assert not limits.verify()[-1].holds


def test_a_share_outside_its_range_counts_in_the_certificate():
    model = shaken(text(), 1.0)
    before = model.certificate().upper
    with torch.no_grad():
        model.blocks[0].attention_share.fill_(-4.0)
    assert model.certificate().upper > before


def test_positions_are_free():
    """Sharp positions change what is attended to, and nothing in the largest token's bound."""
    model = shaken(text(), 1.0)
    before = model.certificate().upper
    with torch.no_grad():
        model.blocks[0].attention.position.mul_(1e3)
    assert model.certificate().upper == before


def test_causal_models_do_not_look_ahead():
    model = text()
    ids = torch.randint(0, 6, (2, 4))
    other = ids.clone()
    other[:, 3] = (other[:, 3] + 1) % 6
    assert torch.equal(model(ids)[:, :3], model(other)[:, :3])
    assert not torch.equal(model(ids)[:, 3], model(other)[:, 3])


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (text, {"target": 0.0}, "target"),
        (text, {"target": float("nan")}, "target"),
        (text, {"heads": 3}, "not a multiple of heads"),
        (text, {"activation": "swish2"}, "activation must be one of"),
        (text, {"attention": "l3"}, "attention must be"),
        (text, {"pool": "max"}, "pool must be"),
        (text, {"norm": "batch"}, "norm must be"),
        (text, {"sharpness": -1.0}, "sharpness"),
        (images, {"patch": 3}, "multiple of the patch"),
    ],
)
def test_bad_input_is_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_bad_models_and_inputs_are_refused():
    with pytest.raises(TypeError, match="LipschitzTransformer"):
        WeightLimits(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="bfloat16"):
        WeightLimits(text().bfloat16())
    with pytest.raises(ValueError, match="takes 4 tokens"):
        text()(torch.zeros(1, 5, dtype=torch.long))
    with pytest.raises(TypeError, match="give words"):
        text()()
    with pytest.raises(ValueError, match="images of 4 patches, got 1"):
        images()(torch.zeros(1, 1, 2, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="leave out norm"):
        images().certificate("token")
    broken = text()
    with torch.no_grad():
        broken.output.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"NaN|not a number|finite"):
        WeightLimits(broken).start()


def test_models_of_the_size_of_others():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=2, n_head=2)
    model = lipschitz_like(config, target=3.0)
    assert model(torch.zeros(1, 6, dtype=torch.long)).shape == (1, 6, 11)
    assert model.blocks[0].first.shape == (32, 8)
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=8, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=16,
    )  # fmt: skip
    model = lipschitz_like(config, target=1.0, outputs=3, activation="maxmin")
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    with pytest.raises(TypeError, match="pass words=, tokens="):
        lipschitz_like(encoder, target=1.0)
    with pytest.raises(TypeError, match="no sizes that are known"):
        lipschitz_like(nn.Linear(2, 2), target=1.0)


@pytest.mark.parametrize(("causal", "pool"), [(False, "mean"), (True, "mean"), (False, None)])
def test_the_bound_in_l2_holds_for_fewer_tokens(causal, pool):
    """The mean of n tokens has the constant 1/√n; without the others tokens are seen by more."""
    model = text(outputs=3, causal=causal, pool=pool, layers=1, attention="l2", sharpness=1e-3)
    block = model.blocks[0]
    with torch.no_grad():
        block.attention_share.fill_(0.0 if pool else 1.0)
        block.mlp_share.zero_()
        if not pool:  # each of four tokens looks for its own; without the last, two for the same
            block.attention.position.zero_()
            for distance, score in ((-1, 40.0), (3, 20.0), (1, 10.0)):
                block.attention.position[:, distance + 3] = score
    bound = WeightLimits(model).start().model.certificate("l2").upper
    margins = model.margin_constants()[0, 1]
    found = []
    for tokens in (1, 2, 3, 4):
        x = 0.2 * torch.randn(1, tokens, 8, dtype=torch.float64)
        derivative = torch.func.jacrev(lambda x: model(inputs_embeds=x))(x)[0]
        found.append(torch.linalg.matrix_norm(derivative.reshape(-1, x.numel()), 2).item())
        rows = derivative.reshape(-1, 3, x.numel())
        assert (rows[:, 0] - rows[:, 1]).norm(dim=-1).max() <= margins
    assert 0.9 * bound < max(found) <= bound
    assert max(found) > 1.3 * found[-1]


@pytest.mark.parametrize("attention", ATTENTION)
def test_the_target_is_kept_by_texts_whose_tokens_stand_side_by_side(attention):
    for head in (None, 4):
        model = shaken(text(outputs=3, pool="all", attention=attention, head=head), 1.0)
        for share in ("attention_share", "mlp_share"):
            getattr(model.blocks[0], share).data.fill_(1.0)
        assert 0.01 * model.target < model.certificate().upper <= model.target * (1 + 1e-9)
        assert model.certificate("token").upper <= 4**0.5 * model.certificate("l2").upper * 1.001
        assert all(row.holds for row in WeightLimits(model).verify())
