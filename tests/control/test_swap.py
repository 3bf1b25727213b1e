"""Attention with a Lipschitz guarantee inside models of transformers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut.control import CosineAttention, L2Attention, swap_attention  # noqa: E402
from taut.models import find_projections  # noqa: E402
from tests.helpers import attention_oracle as oracle  # noqa: E402
from tests.helpers.architectures import SMALL, names, reads_context, small  # noqa: E402

nn = torch.nn
KINDS = ("cosine", "l2")
NAMES = [name for name in names("swap") if not reads_context(name)]
OPTIONS = {"cosine": {"scale": 3.0, "nu": 2.0, "epsilon": 0.5}, "l2": {}}


def affine_maps(module):
    """Weights and biases of queries, keys and values."""
    return [(found.weight, found.bias) for found in find_projections(module).values()]


def model_of(name):
    torch.manual_seed(0)
    model = small(name).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # those of a new model are small: nothing would show
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def run(model, tokens, real=None, **options):
    if "ViT" in type(model).__name__:
        return model(pixel_values=tokens, **options)[0]
    return model(input_ids=tokens, attention_mask=real, **options)[0]


def tokens_of(name):
    torch.manual_seed(1)
    if name == "vit":
        return torch.randn(2, 3, 8, 8, dtype=torch.float64)
    return torch.randint(3, 30, (2, 6))


def layer_like(swapped, model, kind):
    """The layer of torch with the weights of an attention module of transformers."""
    module = swapped.module
    (wq, bq), (wk, bk), (wv, bv) = affine_maps(module)
    if hasattr(module, "c_proj"):
        wo, bo = module.c_proj.weight.T, module.c_proj.bias
    elif hasattr(module, "o_proj"):
        wo, bo = module.o_proj.weight, module.o_proj.bias
    else:
        dense = model.get_submodule(swapped.name.rpartition(".")[0]).output.dense
        wo, bo = dense.weight, dense.bias
    options = {"batch_first": True, "dtype": torch.float64, **OPTIONS[kind]}
    make = CosineAttention if kind == "cosine" else L2Attention
    layer = make(len(wo), module.config.num_attention_heads, **options).eval()
    with torch.no_grad():
        layer.out_proj.weight.copy_(wo)
        if kind == "cosine":
            layer.in_proj_weight.copy_(torch.cat([wq, wk, wv]))
            layer.in_proj_bias.copy_(torch.cat([bq, bk, bv]))
            layer.out_proj.bias.copy_(bo)
        else:
            layer.in_proj_weight.copy_(torch.cat([wq, wv]))
            heads = zip(*(t.chunk(layer.num_heads) for t in (wq, wv, bq, bv)), strict=True)
            shift = [v @ q.T @ b / len(b) ** 0.5 + c for q, v, b, c in heads]
            layer.out_proj.bias.copy_(bo + wo @ torch.cat(shift))
    return layer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_the_attention_of_transformers_is_that_layer(name, kind):
    """In every layer of the model, on what flows through it; so it is really called."""
    model = model_of(name)
    tokens = tokens_of(name)
    before, state = run(model, tokens), {k: v.clone() for k, v in model.state_dict().items()}
    swapped = swap_attention(model, kind, **OPTIONS[kind])
    assert len(swapped) == 2
    causal, seen = name.startswith("gpt2"), []

    def watch(module, args, kwargs, output):
        hidden = args[0] if args else kwargs["hidden_states"]
        seen.append((module, hidden, output[0]))

    handles = [s.module.register_forward_hook(watch, with_kwargs=True) for s in swapped]
    after = run(model, tokens)
    for handle in handles:
        handle.remove()
    assert not torch.allclose(before, after)
    assert [module for module, _, _ in seen] == [s.module for s in swapped]
    for (_, hidden, output), one in zip(seen, swapped, strict=True):
        layer = layer_like(one, model, kind)
        if "Self" in type(one.module).__name__:  # what follows stands in another module
            output = model.get_submodule(one.name.rpartition(".")[0]).output.dense(output)
        torch.testing.assert_close(layer(hidden, hidden, hidden, is_causal=causal)[0], output)
        assert one.lipschitz(6).upper == pytest.approx(layer.lipschitz(6).upper)
        assert str(one.lipschitz(6).domain).endswith("dropout off")
    assert all((state[key] == value).all() for key, value in model.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_padding_does_not_matter(name, kind):
    model = model_of(name)
    swap_attention(model, kind, **OPTIONS[kind])
    tokens = tokens_of(name)
    real = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    found = run(model, tokens, real)
    other = tokens.clone()
    other[1, 4:] = 7
    torch.testing.assert_close(found[1, :4], run(model, other, real)[1, :4])
    torch.testing.assert_close(found[1, :4], run(model, tokens[1:, :4])[0])
    assert torch.isfinite(found).all()
    if name == "bert":
        assert not torch.allclose(found[1, :4], run(model, tokens)[1, :4])


def test_caches():
    tokens = tokens_of("gpt2")
    model = model_of("gpt2")
    swap_attention(model, "cosine", **OPTIONS["cosine"])
    whole = model(tokens).logits
    start = model(tokens[:, :4], use_cache=True)
    rest = model(tokens[:, 4:], past_key_values=start.past_key_values, use_cache=True)
    torch.testing.assert_close(rest.logits, whole[:, 4:])
    swap_attention(model, "l2")
    start = model(tokens[:, :4], use_cache=True)
    with pytest.raises(NotImplementedError, match="use_cache=False"):
        model(tokens[:, 4:], past_key_values=start.past_key_values)
    options = {"do_sample": False, "max_new_tokens": 2, "pad_token_id": 0}
    assert model.generate(tokens, use_cache=False, **options).shape == (2, 8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt2", "vit"])
def test_saved_models_come_back(name, kind, tmp_path):
    """With their options, which are in the configuration, once swapped again."""
    model, tokens = model_of(name), tokens_of(name)
    swap_attention(model, kind, **OPTIONS[kind])
    right = run(model, tokens)
    model.save_pretrained(tmp_path)
    other = type(model).from_pretrained(tmp_path).double().eval()
    assert other.config.taut_attention == {"kind": kind, **OPTIONS[kind]}
    swap_attention(other, kind)
    torch.testing.assert_close(run(other, tokens), right)
    if kind == "cosine":
        swap_attention(other, kind, scale=1.0)
        assert other.config.taut_attention["scale"] == 1.0
        assert other.config.taut_attention["nu"] == 2.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gpt2", "bert", "vit"])
def test_the_bound_holds_in_the_model(name, kind):
    model = model_of(name)
    one = swap_attention(model, kind, **OPTIONS[kind])[0]
    x = torch.randn(5, model.config.hidden_size, dtype=torch.float64)

    def attend(z):
        output = one.module(z[None])[0]
        if name == "bert":
            output = model.encoder.layer[0].attention.output.dense(output)
        return output

    mask = {} if kind == "l2" else {"mask": "causal" if name == "gpt2" else "none"}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        true = float(oracle.spectral(oracle.derivative(attend, x)).detach())
    bound = one.lipschitz(5, **mask).upper
    assert true <= bound
    assert true > 0.01 * bound
    assert bound <= one.lipschitz(5).upper


@pytest.mark.parametrize("kind", KINDS)
def test_models_train(kind):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SMALL.gpt2))
    swap_attention(model, kind)
    tokens = tokens_of("gpt2")
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        loss = model(tokens, labels=tokens, use_cache=False).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]


def test_cross_attention_and_models_inside_models():
    inner = transformers.GPT2Model(transformers.GPT2Config(**SMALL.gpt2, add_cross_attention=True))
    model = nn.ModuleDict({"text": inner, "after": nn.TransformerEncoderLayer(16, 2)})
    with pytest.raises(ValueError, match="another sequence"):
        swap_attention(model, "l2")
    assert inner.config._attn_implementation != "taut-l2"
    assert isinstance(model["after"].self_attn, nn.MultiheadAttention)
    swapped = {one.name: one for one in swap_attention(model, "cosine")}
    assert set(swapped) == {
        "after.self_attn",
        *(f"text.h.{i}.{name}" for i in (0, 1) for name in ("attn", "crossattention")),
    }
    cross = swapped["text.h.0.crossattention"]
    with pytest.raises(ValueError, match="context="):
        cross.lipschitz(4)
    bound = cross.lipschitz(4, context=3)
    assert "up to 3 keys" in str(bound.domain)
    x, y = torch.randn(4, 16), torch.randn(3, 16)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        found = oracle.derivative(
            lambda a, b: cross.module.eval()(a[None], encoder_hidden_states=b[None])[0], x, y
        )
    assert oracle.spectral(found) <= bound.upper


@pytest.mark.parametrize("family", ["Marian", "Bart"])
def test_encoders_with_decoders(family):
    """Each attention of a translator, with what flows through it, and its cache while it writes."""
    config = getattr(transformers, f"{family}Config")(
        vocab_size=30, d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
        decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=4,
        max_position_embeddings=16, pad_token_id=0, eos_token_id=1, bos_token_id=1,
        decoder_start_token_id=0, forced_eos_token_id=1,
    )  # fmt: skip
    name = "MarianMTModel" if family == "Marian" else "BartForConditionalGeneration"
    torch.manual_seed(0)
    model = getattr(transformers, name)(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    x, y = torch.randint(3, 30, (2, 6)), torch.randint(3, 30, (2, 5))
    real = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    with pytest.raises(ValueError, match="encoder_attn attends to another sequence"):
        swap_attention(model, "l2")
    before = model(input_ids=x, attention_mask=real, decoder_input_ids=y).logits
    swapped = swap_attention(model, "cosine", epsilon=0.5)
    assert len(swapped) == 3
    seen = []

    def watch(module, args, kwargs, output):
        hidden = args[0] if args else kwargs["hidden_states"]
        seen.append((module, hidden, kwargs.get("key_value_states"), output[0]))

    handles = [one.module.register_forward_hook(watch, with_kwargs=True) for one in swapped]
    after = model(input_ids=x[:1], decoder_input_ids=y[:1]).logits
    for handle in handles:
        handle.remove()
    for module, hidden, other, output in seen:
        one = next(one for one in swapped if one.module is module)
        weights = affine_maps(module)
        layer = CosineAttention(
            16, module.num_heads, batch_first=True, dtype=torch.float64, epsilon=0.5,
            scale=config.taut_attention["scale"], nu=config.taut_attention["nu"],
        ).eval()  # fmt: skip
        # Heads of the two sides have different widths, but options are those of the last one.
        layer.scale = module.config.taut_attention["scale"]
        layer.nu = module.config.taut_attention["nu"]
        with torch.no_grad():
            layer.in_proj_weight.copy_(torch.cat([w for w, _ in weights]))
            layer.in_proj_bias.copy_(torch.cat([b for _, b in weights]))
            layer.out_proj.weight.copy_(module.out_proj.weight)
            layer.out_proj.bias.copy_(module.out_proj.bias)
        keys = hidden if other is None else other
        causal = "decoder" in one.name and other is None
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
        torch.testing.assert_close(layer(hidden, keys, keys, attn_mask=mask)[0], output)
        options = {"context": 6} if other is not None else {}
        assert one.lipschitz(6, **options).upper == pytest.approx(
            layer.lipschitz(6, **options).upper
        )
    masked = model(input_ids=x, attention_mask=real, decoder_input_ids=y).logits
    assert not torch.allclose(before, masked)
    torch.testing.assert_close(
        masked[1:], model(input_ids=x[1:, :4], decoder_input_ids=y[1:]).logits
    )
    torch.testing.assert_close(masked[:1], after)
    written = model.generate(
        input_ids=x, attention_mask=real, num_beams=2, do_sample=False, max_new_tokens=6
    )
    plain = model.generate(
        input_ids=x, attention_mask=real, num_beams=2, do_sample=False, max_new_tokens=6,
        use_cache=False,
    )  # fmt: skip
    assert (written == plain).all()


def test_other_families_are_refused():
    with pytest.raises(ValueError, match="no attention to swap"):
        swap_attention(small("llama"), "cosine")
