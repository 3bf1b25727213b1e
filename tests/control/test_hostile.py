"""What a hostile tester has broken once: each case here gave a wrong number without a word."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from torch.utils.checkpoint import checkpoint  # noqa: E402

from taut import control  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn


def layer(width=8, heads=2):
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(width, heads, 16, batch_first=True, dropout=0.0)


class Cross(nn.Module):
    """Attention to another sequence, with a mask for its padding."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, bias=False)

    def forward(self, queries, keys, padding, need_weights):
        return self.attention(
            queries, keys, keys, key_padding_mask=padding, need_weights=need_weights
        )[0]


@pytest.mark.parametrize("need_weights", [False, True])
def test_queries_of_another_sequence_are_no_padding(need_weights):
    """Both sequences have five tokens; two keys are padding, and no query."""
    torch.manual_seed(0)
    model = Cross().double()
    constraint = control.Orthogonality(model, "AM", strength=1.0).start()
    queries, keys = torch.randn(2, 1, 5, 8, dtype=torch.float64)
    padding = torch.tensor([[False, False, False, True, True]])
    model(queries, keys, padding, need_weights)
    wq, wk, _ = model.attention.in_proj_weight.chunk(3)
    total = 0.0
    for h in (0, 1):
        part = slice(4 * h, 4 * h + 4)
        scores = (queries[0] @ wq.T)[:, part] @ (keys[0] @ wk.T)[:, part].T / 2
        a = scores[:, :3].softmax(-1)
        total = total + (a.T @ a - torch.eye(3)).square().sum()
    torch.testing.assert_close(constraint.penalty(), total)
    mine, theirs = (
        torch.autograd.grad(x, model.attention.in_proj_weight, retain_graph=True)[0]
        for x in (constraint.penalty(), total)
    )
    torch.testing.assert_close(mine, theirs)


def test_gradients_are_added_in_a_closure():
    """As Lightning and LBFGS call their optimisers."""
    x = torch.randn(2, 3, 8)

    def moved(call):
        model = layer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        before = call != "loss"
        constraint = control.Orthogonality(model, ["LA", "LF"], strength=1e-2, before_step=before)
        constraint.start(optimizer)

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().sum() + constraint.penalty()
            loss.backward()
            return loss

        if call == "keyword":
            optimizer.step(closure=closure)
        else:
            optimizer.step(closure)
        return model.state_dict()

    wanted = moved("loss")
    for call in ("place", "keyword"):
        found = moved(call)
        for name in wanted:
            torch.testing.assert_close(found[name], wanted[name], msg=name)


def test_a_checkpoint_of_the_whole_model_draws_the_same():
    found = []
    for whole in (False, True):
        model = layer()
        constraint = control.Orthogonality(model, "AM", strength=1.0, probes=2).start()
        x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
        y = checkpoint(model, x, use_reentrant=False) if whole else model(x)
        (constraint.penalty() + 0 * y.sum()).backward()
        assert constraint.state_dict() == {"passes": 1}
        found.append(model.self_attn.in_proj_weight.grad)
    torch.testing.assert_close(*found)


def test_sigma_keeps_order_frozen_weights_and_checkpoints():
    model = layer()
    names = [name for name, _ in model.named_parameters()]
    model.linear1.weight.requires_grad_(False)
    sigma = control.SigmaReparametrisation(model).start()
    assert not model.linear1.parametrizations.weight[0].gain.requires_grad
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        model.linear2.parametrizations.weight.original.add_(0.2 * torch.randn(8, 16))
    gradients = []
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for whole in (False, True):
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
        model.zero_grad()
        y = checkpoint(model, x, use_reentrant=False) if whole else model(x)
        y.square().sum().backward()
        gradients.append(model.linear2.parametrizations.weight.original.grad.clone())
    torch.testing.assert_close(*gradients)
    sigma.bake()
    assert [name for name, _ in model.named_parameters()] == names
    assert list(model.state_dict()) == list(layer().state_dict())
    with pytest.raises(RuntimeError, match="baked"):
        sigma.gains()
    nn.init.zeros_(model.linear2.weight)
    with pytest.raises(ValueError, match="is zero"):
        control.SigmaReparametrisation(model)


def test_layers_that_share_weights_are_all_watched():
    first, second = layer(), layer()
    second.self_attn.in_proj_weight = first.self_attn.in_proj_weight
    second.self_attn.out_proj.weight = first.self_attn.out_proj.weight
    with torch.no_grad():
        first.norm2.weight *= 50
    model = nn.Sequential(first, second)
    clip = control.QKClip(model, limit=1.0).start()
    x = torch.randn(2, 3, 8)
    model(x)
    rows = clip.verify()
    assert {row.name for row in rows} == {"0.self_attn", "1.self_attn"}
    most = max(row.largest for row in rows)
    assert most > 100
    clip.after_step()
    model(x)  # the largest scores are those of the second layer, whose input is the same size
    assert max(row.largest for row in clip.verify()) < 0.05 * most
    once = control.Orthogonality(model, "LA", strength=1.0).start()
    alone = control.Orthogonality(first, "LA", strength=1.0).start()
    assert once.values()["LA"] == pytest.approx(alone.values()["LA"])


def test_a_clip_is_refused_where_norms_undo_it():
    model = nn.Sequential(layer())
    control.swap_attention(model, "cosine")
    with pytest.raises(ValueError, match="cosine attention"):
        control.QKClip(model)
    swapped, _ = tiny("gpt2")
    control.swap_attention(swapped, "cosine")
    with pytest.raises(ValueError, match="cosine attention"):
        control.QKClip(swapped)
    attention = nn.Module()
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        setattr(attention, name, nn.Linear(4, 4))
    attention.q_layernorm = nn.LayerNorm(4)
    with pytest.raises(ValueError, match="q_layernorm"):
        control.QKClip(nn.ModuleDict({"attention": attention}))


def test_a_clip_reaches_the_biases_of_maps_from_other_widths():
    torch.manual_seed(0)

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
            nn.init.constant_(self.attention.in_proj_bias, 5.0)

        def forward(self, q, k):
            return self.attention(q, k, k, need_weights=False)[0]

    model, q, k = Wide(), torch.randn(1, 3, 8), torch.randn(1, 3, 6)
    clip = control.QKClip(model, limit=1.0).start()
    model(q, k)
    assert max(row.largest for row in clip.verify()) > 10
    clip.after_step()
    model(q, k)
    assert all(row.holds for row in clip.verify())
    with pytest.raises(ValueError, match="different widths"):
        control.Orthogonality(model, "LA").start().values()
    assert control.Orthogonality(model, "LA", join="each").start().values()["LA"] > 0


def test_a_clip_of_a_pass_that_sees_nothing():
    model = Cross()
    clip = control.QKClip(model, limit=1.0).start()
    model(torch.randn(1, 3, 8), torch.randn(1, 3, 8), torch.ones(1, 3, dtype=torch.bool), True)
    before = model.attention.in_proj_weight.clone()
    clip.after_step()
    assert torch.equal(before, model.attention.in_proj_weight)


def test_a_constraint_on_a_part_has_its_own_paths():
    model = nn.Sequential(layer())
    control.Orthogonality(model, "AM").start()
    clip = control.QKClip(model[0], limit=1e-3).start()
    model(torch.randn(2, 3, 8))
    assert [row.name for row in clip.verify()] == ["self_attn", "self_attn"]
    clip.after_step()


def test_caps_of_encoder_decoders_and_of_several_models():
    encoder, decoder = (tiny(name)[0].config for name in ("bert", "gpt2"))
    decoder.is_decoder = decoder.add_cross_attention = True
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    torch.manual_seed(0)
    model = transformers.EncoderDecoderModel(config).eval()
    ids = torch.randint(0, 20, (1, 4))
    cap = control.SoftCap(model, limit=1e-3).start()
    assert all(row.holds for row in cap.verify())
    rows = cap.measure(input_ids=ids, decoder_input_ids=ids)
    assert any("encoder" in row.name for row in rows)
    assert all(row.holds for row in rows)
    both = nn.ModuleList([tiny("gpt2")[0], tiny("bloom")[0]])
    before = both[0].config._attn_implementation
    with pytest.raises(ValueError, match="by itself"):
        control.SoftCap(both)
    assert both[0].config._attn_implementation == before


def test_local_constants_of_a_module_that_is_called_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = layer()

        def forward(self, x):
            return self.inner(0.01 * self.inner(x))

    torch.manual_seed(0)
    model = Twice()
    sharp = control.LocalConstant(model, limit=0.1, rows=4).start()
    model(3 * torch.randn(2, 4, 8))
    (both,) = sharp.verify()
    assert both.name == "inner.self_attn"
    alone = control.LocalConstant(model.inner, limit=0.1, rows=4).start()
    torch.manual_seed(0)
    Twice()
    model.inner(3 * torch.randn(2, 4, 8))
    assert both.largest == pytest.approx(alone.verify()[0].largest)


def test_constraints_refuse_what_they_cannot_do():
    model = layer()
    for call, match in (
        (lambda: control.Orthogonality("gpt2").start(), "torch.nn.Module"),
        (lambda: control.Orthogonality(model, probes=-1).start(), "probes"),
        (lambda: control.Projection(model, limit="1"), "limit"),
        (lambda: control.Projection(model, limit=1e-40), "limit must be between"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            call()
    half = layer().half()
    with torch.no_grad():
        half.linear1.weight.fill_(30.0)
    assert control.Orthogonality(half, "LF").start().values()["LF"] == pytest.approx(
        control.Orthogonality(layer_with(30.0), "LF").start().values()["LF"], rel=1e-2
    )
    broken = nn.Sequential(layer(), layer())
    with torch.no_grad():
        broken[1].linear1.weight.fill_(float("nan"))
    first = broken[0].linear1.weight.clone()
    with pytest.raises(ValueError, match="NaN"):
        control.Projection(broken, limit=0.1).start()
    assert torch.equal(first, broken[0].linear1.weight)
    watched = layer()
    control.Orthogonality(watched, "AM").start()
    with pytest.raises(ValueError, match="listens to"):
        control.SoftCap(watched).start()


def layer_with(number):
    model = layer()
    with torch.no_grad():
        model.linear1.weight.fill_(number)
    return model


def test_the_monitor_knows_tokens_first_and_masks_by_place():
    torch.manual_seed(0)

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 4)

        def forward(self, x):
            return self.attention(x, x, x)[0]

    found = control.Monitor(First()).measure(torch.randn(8, 2, 8))
    assert len({key.split("/")[2] for key in found if "head_" in key}) == 4
    model, inputs = tiny("bert")
    ids = inputs["input_ids"]
    mask = torch.ones_like(ids)
    mask[:, 3:] = 0
    monitor = control.Monitor(model.eval())
    named = monitor.measure(input_ids=ids, attention_mask=mask)
    assert named == monitor.measure(ids, mask)
    assert named != monitor.measure(ids)


def test_the_monitor_leaves_lists_dicts_and_generators():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.losses, self.counts = layer(), [], {}
            self.source = torch.Generator().manual_seed(0)

        def forward(self, x):
            noise = torch.randn(x.shape, generator=self.source)
            self.losses.append(x.sum())
            self.counts["passes"] = self.counts.get("passes", 0) + 1
            return self.inner(x + noise)

    model = Counting()
    state = model.source.get_state()
    control.Monitor(model).measure(torch.randn(2, 3, 8))
    assert model.losses == []
    assert model.counts == {}
    assert torch.equal(state, model.source.get_state())


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_padding_costs_nothing_in_local_constants(implementation):
    """Of a sequence with padding, in the encoder, the decoder and between them."""
    transformers = pytest.importorskip("transformers")
    config = transformers.MarianConfig(
        vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
        decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2,
        max_position_embeddings=32, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        dropout=0.0, attn_implementation=implementation,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8)
    sharp = control.LocalConstant(model, limit=0.01, rows=32).start()  # all rows
    x, y = torch.randint(3, 30, (1, 7)), torch.randint(3, 30, (1, 5))
    found = []
    for more in (0, 6):
        pads = torch.zeros(1, more, dtype=torch.long)
        model(
            input_ids=torch.cat([x, pads], 1), attention_mask=torch.cat([x * 0 + 1, pads], 1),
            decoder_input_ids=torch.cat([y, pads], 1),
            decoder_attention_mask=torch.cat([y * 0 + 1, pads], 1),
        )  # fmt: skip
        terms = {path: float(term.detach()) for path, term in sharp._terms.items()}
        found.append({p: v for p, v in terms.items() if "encoder_attn" not in p})
    assert len(found[0]) == 2
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    sharp.penalty().backward()


def text():
    return control.LipschitzTransformer.of_text(5, tokens=3, width=8, layers=1, heads=2, target=1.0)


@pytest.mark.parametrize("assign", ["load", "exchange"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: control.Projection(layer(), limit=1.0).start(),
        lambda: control.Orthogonality(layer(), "VAR-III", strength=1e-3).start(),
        lambda: control.Orthogonality(layer(), "LA", strength=1e-3, before_step=True),
        lambda: control.WeightLimits(text()).start(),
    ],
)
def test_weights_that_the_model_has_no_more_are_not_verified(make, assign):
    """They would hold their limit for ever, whatever the model computes with."""
    constraint = make()
    assert all(row.holds for row in constraint.verify())
    model = constraint.model
    if assign == "load":
        model.load_state_dict({k: 9 * v for k, v in model.state_dict().items()}, assign=True)
    else:
        for module in model.modules():
            for name, weight in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(9 * weight.detach()))
    with pytest.raises(RuntimeError, match="has other parameters than when"):
        constraint.verify()
    if constraint.running and constraint.parameters():
        with pytest.raises(RuntimeError, match="make the constraint and the optimiser anew"):
            constraint.after_step()
