"""Heads, samples and padding are known by where the rows come from, whatever the layout."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut import audit  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn
B, N, H, D = 3, 8, 4, 5  # samples, tokens, heads, width of a head
BLOCK = 4


class Attention(nn.Module):
    """Attention of every block to itself, by a function of q, k and v, each (b, n, h·d)."""

    def __init__(self, inner):
        super().__init__()
        torch.manual_seed(0)
        self.maps = nn.Linear(H * D, 3 * H * D)
        self.maps.weight.data *= 4
        self.inner = inner

    def forward(self, x):
        return self.inner(*self.maps(x).chunk(3, dim=-1))


def split(t):
    """(b, h, blocks, i, d)"""
    return t.reshape(B, N // BLOCK, BLOCK, H, D).permute(0, 3, 1, 2, 4)


def blocks_last(q, k, v):
    return torch.softmax(split(q) @ split(k).mT, dim=-1) @ split(v)


def blocks_second(q, k, v):
    q, k, v = (split(t).transpose(1, 2) for t in (q, k, v))
    return torch.softmax(q @ k.mT, dim=-1) @ v


def heads_in_batch(q, k, v):
    q, k, v = (split(t).flatten(0, 1) for t in (q, k, v))
    return torch.softmax(q @ k.mT, dim=-1) @ v


def all_in_batch(q, k, v):
    q, k, v = (split(t).flatten(0, 2) for t in (q, k, v))
    return torch.softmax(torch.bmm(q, k.mT), dim=-1) @ v


def heads_third(q, k, v):
    """(b, n, h, j), by einsum"""
    q, k, v = (split(t).permute(0, 2, 3, 1, 4).flatten(0, 1) for t in (q, k, v))
    weights = torch.softmax(torch.einsum("nihd,njhd->nihj", q, k), dim=-1)
    return torch.einsum("nihj,njhd->nihd", weights, v)


def heads_first(q, k, v):
    """(h, b·blocks, i, j)"""
    q, k, v = (split(t).permute(1, 0, 2, 3, 4).flatten(1, 2) for t in (q, k, v))
    return torch.softmax(q @ k.mT, dim=-1) @ v


def heads_before_samples(q, k, v):
    """(h·b·blocks, i, j)"""
    q, k, v = (split(t).permute(1, 0, 2, 3, 4).flatten(0, 2) for t in (q, k, v))
    return torch.softmax(q @ k.mT, dim=-1) @ v


def grouped(q, k, v):
    """(b·blocks, groups, heads of a group, i, j); keys are those of all heads all the same"""
    q, k, v = (split(t).transpose(1, 2).flatten(0, 1) for t in (q, k, v))
    q, k, v = (t.unflatten(1, (2, H // 2)) for t in (q, k, v))
    return torch.softmax(q @ k.mT, dim=-1) @ v


def keys_first(q, k, v):
    """Products of keys and queries, along the first axis"""
    q, k, v = (split(t) for t in (q, k, v))
    return torch.softmax(k @ q.mT, dim=-2).mT @ v


def one_by_one(q, k, v):
    """Scores put together from parts"""
    q, k, v = (split(t) for t in (q, k, v))
    scores = q.new_zeros(B, H, N // BLOCK, BLOCK, BLOCK)
    for block in range(N // BLOCK):
        scores[:, :, block] = q[:, :, block] @ k[:, :, block].mT
    return torch.softmax(scores, dim=-1) @ v


LAYOUTS = [
    blocks_last, blocks_second, heads_in_batch, all_in_batch, heads_third, heads_first,
    heads_before_samples, grouped, keys_first, one_by_one,
]  # fmt: skip


def by_head(record):
    return {
        name: [row[name] for row in record.heads]
        for name in ("rows", "mean", "largest", "sample", "query", "entropy", "top")
    }


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_heads_whatever_the_layout(layout, known):
    torch.manual_seed(1)
    x = torch.randn(B, N, H * D)
    model = Attention(layout)
    if known:
        model.num_heads = H
    found = audit.run(model, [x])
    assert not found.missed
    q, k, _ = model.maps(x).chunk(3, dim=-1)
    scores = (split(q) @ split(k).mT).detach()
    constants = np.asarray(__import__("taut").local_lipschitz(scores, 2).value)
    rows = by_head(found)
    assert rows["rows"] == [B * N] * H
    assert rows["mean"] == pytest.approx(list(constants.mean(axis=(0, 2, 3))), rel=1e-5)
    for head in range(H):
        mine = constants[:, head].reshape(B, N)
        assert rows["largest"][head] == pytest.approx(mine.max(), rel=1e-5)
        place = (rows["sample"][head], rows["query"][head])
        assert place == np.unravel_index(mine.argmax(), mine.shape)


def test_lengths_may_vary():
    model = Attention(lambda q, k, v: torch.softmax(q @ k.mT, dim=-1) @ v)
    record = audit.run(model, [torch.randn(2, n, H * D) for n in (3, 7, 5)])
    assert [row["rows"] for row in record.heads] == [2 * 15]


def test_channels_that_attend_to_channels():
    class Cross(Attention):
        num_heads = H

    def inner(q, k, v):
        q, k, v = (t.unflatten(-1, (H, D)).permute(0, 2, 3, 1) for t in (q, k, v))
        return torch.softmax(q @ k.mT, dim=-1) @ v

    for kind in (Cross, Attention):
        record = audit.run(kind(inner), [torch.randn(B, N, H * D)])
        assert [row["rows"] for row in record.heads] == [B * D] * H


def test_what_stays_unclear_is_not_guessed():
    class Scrambled(nn.Module):
        """Takes its tokens through NumPy, where nobody can follow them."""

        def forward(self, x):
            y = torch.from_numpy(x.numpy().copy())
            return torch.softmax(y @ y.mT, dim=-1) @ y

    record = audit.run(Scrambled(), [torch.randn(B, H, N, D)])
    assert not record.layers
    assert "no known layout" in record.missed[0][1]


@pytest.mark.parametrize("images", [2, 3])
def test_padding_of_text_is_none_of_images(images):
    """A text of 17 tokens beside images of 17: only the text is padded."""
    import transformers

    from tests.helpers.architectures import ENDS, USUAL

    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        text_config={**USUAL.text, **ENDS, "max_position_embeddings": 17},
        vision_config=USUAL.pixels,
        projection_dim=16,
    )
    model = transformers.CLIPModel(config).eval()
    mask = torch.ones(2, 17, dtype=torch.long)
    mask[0, 5:] = 0
    inputs = {
        "input_ids": torch.randint(3, 60, (2, 17)),
        "attention_mask": mask,
        "pixel_values": torch.randn(images, 3, 32, 32),
    }
    heads = audit.run(model, [inputs]).heads
    rows = {row["layer"].split(".")[0]: row["rows"] + row["few"] for row in heads}
    assert rows == {"text_model": 17 + 5, "vision_model": 17 * images}


def test_padding_of_encoder_and_decoder():
    model, inputs = tiny("bart")
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[0, 4:] = 0
    other = torch.ones(2, 7, dtype=torch.long)
    other[1, 2:] = 0
    given = {**inputs, "attention_mask": mask, "decoder_attention_mask": other}
    record = audit.run(model, [given])
    rows = {row["layer"]: row["rows"] for row in record.heads}
    assert {n for name, n in rows.items() if name.startswith("model.encoder")} == {11}
    assert {n for name, n in rows.items() if name.startswith("model.decoder")} == {9}


def test_padding_of_torch_layers():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    record = audit.run(layer, [{"src": torch.randn(3, 5, 8), "src_key_padding_mask": padding}])
    assert [row["rows"] for row in record.heads] == [13, 13]


def test_blocks_of_big_bird():
    """Sparse attention of blocks has the heads that the model has, and each query in each."""
    import transformers

    torch.manual_seed(0)
    config = transformers.BigBirdConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=128, block_size=8, num_random_blocks=1,
        attention_type="block_sparse",
    )  # fmt: skip
    model = transformers.BigBirdModel(config).eval()
    record = audit.run(model, [{"input_ids": torch.randint(3, 60, (2, 96))}])
    assert not record.missed
    assert {layer.state.heads for layer in record.layers} == {4}
    assert sum(row["rows"] for row in record.heads) == 4 * 2 * 96
