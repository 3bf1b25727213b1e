"""Masks of attention: every shape that broadcasts counts every query, on all domains alike."""

from __future__ import annotations

import math

import pytest

import taut

torch = pytest.importorskip("torch")
nn = torch.nn

import taut.networks as tt  # noqa: E402
from taut.networks.operations.attention_parameters import Heads  # noqa: E402

N, WIDTH = 6, 8
MORE = 4  # tokens of the context
PADDED = torch.tensor([[True, True, True, True, False, False]])


def gpt2_block():
    transformers = pytest.importorskip("transformers")
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=WIDTH, n_head=2, n_inner=16)
    config._attn_implementation = "eager"
    return GPT2Block(config, layer_idx=0).eval()


def attention():
    torch.manual_seed(0)
    return nn.MultiheadAttention(WIDTH, 2, batch_first=True).eval()


def encoder_layer():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True, norm_first=True).eval()


def sequence_first_layer():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(WIDTH, 2, 16, norm_first=True).eval()


def decoder_layer():
    torch.manual_seed(0)
    return nn.TransformerDecoderLayer(WIDTH, 2, 16, batch_first=True, norm_first=True).eval()


def transformer():
    torch.manual_seed(0)
    return nn.Transformer(WIDTH, 2, 1, 1, 16, batch_first=True).eval()


def domains():
    torch.manual_seed(1)
    inputs = torch.randn(1, N, WIDTH)
    ball, everywhere = taut.Ball(1.0, shape=(N, WIDTH)), taut.Everywhere(shape=(N, WIDTH))
    return [ball, everywhere, taut.At(inputs), taut.At(inputs, 0.5)]


def certified(module, domain, **given):
    return tt.certify(module, domain, measure=False, **given).bound.upper


@pytest.mark.parametrize("norm", ["l2", "token"])
@pytest.mark.parametrize("domain", domains(), ids=["ball", "everywhere", "at", "near"])
@pytest.mark.parametrize("make", [gpt2_block, attention, encoder_layer, sequence_first_layer])
def test_a_mask_that_broadcasts_is_the_same_as_the_whole_one(make, domain, norm):
    module = make()
    for row in (torch.ones(1, N, dtype=torch.bool), PADDED):
        whole = certified(module, domain, mask=row.expand(N, N), norm=norm)
        for mask in (row, row[None], row.expand(1, N, N), row[None].expand(1, 1, N, N)):
            assert (certified(module, domain, mask=mask, norm=norm) == whole).all()


def test_columns_are_masks_of_queries():
    """(queries, 1): every query sees all keys; none can be hidden."""
    module, domain = gpt2_block(), taut.Ball(1.0, shape=(N, WIDTH))
    seen = torch.ones(N, 1, dtype=torch.bool)
    assert certified(module, domain, mask=seen) == certified(module, domain, mask=seen.expand(N, N))


@pytest.mark.parametrize("make", [decoder_layer, transformer])
@pytest.mark.parametrize("near", [None, 0.0, 0.5])
def test_masks_of_a_context(make, near):
    module = make()
    torch.manual_seed(1)
    domain, context = (
        taut.Ball(1.0, shape=(count, WIDTH))
        if near is None
        else taut.At(torch.randn(1, count, WIDTH), near)
        for count in (N, MORE)
    )
    row = torch.tensor([[True, True, False, True]])
    whole = certified(module, domain, context=context, context_mask=row.expand(N, MORE))
    for mask in (row, row[None]):
        assert certified(module, domain, context=context, context_mask=mask) == whole
    with pytest.raises(ValueError, match="does not fit 6 queries and 4 keys"):
        certified(module, domain, context=context, context_mask=torch.ones(N, N) > 0)


@pytest.mark.parametrize("domain", domains(), ids=["ball", "everywhere", "at", "near"])
@pytest.mark.parametrize("shape", [(5, N), (N, 5), (1, 5), (2, N, N), (1, 3, N, N), (N,)])
def test_a_mask_that_does_not_fit_is_refused(domain, shape):
    for module in (gpt2_block(), attention()):
        with pytest.raises(ValueError, match=r"a mask of shape .* does not fit 6 queries"):
            certified(module, domain, mask=torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("norm", ["l2", "token"])
@pytest.mark.parametrize("domain", domains(), ids=["ball", "everywhere", "at", "near"])
def test_a_query_without_any_key_is_refused(domain, norm):
    hidden = torch.ones(N, N, dtype=torch.bool)
    hidden[2] = False
    for mask in (hidden, torch.zeros(1, N, dtype=torch.bool)):
        with pytest.raises(ValueError, match="without any key"):
            certified(gpt2_block(), domain, mask=mask, norm=norm)


@pytest.mark.parametrize("domain", domains()[:1] + domains()[2:], ids=["ball", "at", "near"])
def test_padding_masks_of_a_model(domain):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=16,
    )  # fmt: skip
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    assert 0 < certified(model, domain, mask=PADDED)[0] < math.inf
    whole = certified(model.encoder, domain, mask=PADDED.expand(N, N))
    assert certified(model.encoder, domain, mask=PADDED) == whole
    with pytest.raises(ValueError, match="does not fit 6 queries and 6 keys"):
        certified(model, domain, mask=PADDED[:, :5])


def test_masks_of_each_head_near_given_inputs():
    """As many heads as samples: a mask of the heads is not one of the samples."""
    torch.manual_seed(0)
    module = attention()
    x = torch.randn(2, N, WIDTH)
    mask = torch.ones(1, 2, N, N, dtype=torch.bool)
    mask[0, 1] = mask[0, 1].tril()
    # a large radius, at which the bound for bounded tokens is the smaller one
    both = certified(module, taut.At(x, 30.0), mask=mask)
    for b in range(2):
        alone = certified(module, taut.At(x[[b]], 30.0), mask=mask)
        assert both[b] == pytest.approx(alone[0], rel=1e-9)
        full = certified(module, taut.At(x[[b]], 30.0))
        assert both[b] >= 0.999 * full[0]  # one of the heads sees everything


def test_masks_of_rules_are_bool():
    from taut.networks.interpreter import Interpreter
    from taut.networks.region import start

    maps = [(torch.eye(4), None)] * 3
    heads = Heads(*maps, None, 1, 1, 0.5)
    run = Interpreter("l2", 0.0, torch.device("cpu"))
    with pytest.raises(TypeError, match="bool"):
        run.attention(start(torch.zeros(1, 3, 4), 0.0), heads, mask=torch.zeros(3, 3))
