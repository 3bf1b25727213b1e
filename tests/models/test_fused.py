"""Fused attention is read as if the model had written out its scores."""

from __future__ import annotations

import importlib
import math
from contextlib import contextmanager

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut import audit, models  # noqa: E402
from taut.models import score_blocks  # noqa: E402
from taut.models.score_blocks import FusedScores, WrittenScores  # noqa: E402
from tests.helpers.architectures import names, tiny  # noqa: E402

functional = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
# Their scores have terms that only the eager implementation has, or there is no other.
WRITTEN = {"gemma2", "gpt-oss", "deberta", "deberta-v2", "mpnet", "xlnet", "longformer", "bloom",
           "falcon"}  # fmt: skip


@contextmanager
def written_out(model):
    """Eager attention, whatever the model prefers."""
    switchable = [m for m in model.modules() if hasattr(m, "set_attn_implementation")]
    before = [(m, m.config._attn_implementation) for m in switchable]
    try:
        for module in switchable:
            module.set_attn_implementation("eager")
        yield
    finally:
        for module, chosen in before:
            module.set_attn_implementation(chosen)


@pytest.mark.parametrize("name", names("capture"))
def test_both_implementations_give_the_same_record(name, monkeypatch):
    """Every number of every head, also samples, queries and counts."""
    model, inputs = tiny(name)
    fused = audit.run(model, [inputs], epsilons=[])
    monkeypatch.setattr(
        importlib.import_module("taut.models.capture"), "readable_attention", written_out
    )
    written = audit.run(model, [inputs], epsilons=[])
    assert not any(layer.fused for layer in written.layers)
    assert all(layer.fused for layer in fused.layers) == (name not in WRITTEN)
    assert [layer.name for layer in fused.layers] == [layer.name for layer in written.layers]
    for mine, theirs in zip(fused.heads, written.heads, strict=True):
        for key, value in mine.items():
            if isinstance(value, float) and not key.endswith("_upper"):
                assert value == pytest.approx(theirs[key], rel=2e-5, abs=1e-7), key
            elif isinstance(value, float):  # a row may be on either side of the end of a bin
                assert value == pytest.approx(theirs[key], rel=2e-5, abs=0.0026), key
            else:
                assert value == theirs[key], key


def reference(reader):
    """The scores by scaled_dot_product_attention's own definition, in double precision."""
    query, key = reader.query.double(), reader.key.double()
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.mT * reader.factor
    if reader.bias is not None:
        bias = reader.bias
        scores = scores.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else scores + bias
    if reader.causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    return scores


CASES = {
    "plain": {},
    "causal": {"causal": True},
    "causal, more keys": {"causal": True, "keys": 23},
    "causal, fewer keys": {"causal": True, "keys": 5},
    "grouped": {"key_heads": 2, "causal": True},
    "one key head": {"key_heads": 1},
    "bias": {"bias": (1, 6, 17, 17)},
    "bias of a sample": {"bias": (3, 1, 1, 17), "key_heads": 3},
    "mask": {"bias": (3, 1, 17, 17), "mask": True},
    "one query": {"queries": 1},
    "one key": {"keys": 1},
}


def made(case, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    queries, keys = case.get("queries", 17), case.get("keys", case.get("queries", 17))
    q = torch.randn(3, 6, queries, 8).to(dtype)
    k = torch.randn(3, case.get("key_heads", 6), keys, 8).to(dtype)
    bias = None
    if "bias" in case:
        bias = torch.randn(case["bias"])
        bias = bias > -0.5 if case.get("mask") else bias.to(dtype)
    return FusedScores(q, k, bias, 0.3, case.get("causal", False))


@pytest.mark.parametrize("size", [1, 40, 300, 5000, 1 << 19])
@pytest.mark.parametrize("name", CASES)
def test_blocks_of_every_size_hold_every_row_once(name, size, monkeypatch):
    monkeypatch.setattr(score_blocks, "BLOCK", size)
    monkeypatch.setattr(score_blocks, "QUERIES", 4)
    reader = made(CASES[name])
    whole = reference(reader)
    assert torch.allclose(reader.whole.double(), whole, atol=1e-5)
    assert reader.shape == tuple(whole.shape[:3])
    assert reader.keys == whole.shape[3]
    found, times = np.full(whole.shape, -math.inf), np.zeros(whole.shape[:3])
    for block in reader.blocks():
        here = np.zeros(whole.shape[:3], dtype=bool)
        block.put(here, np.ones(block.scores.shape[:-1], dtype=bool))
        times += here
        for j in range(block.scores.shape[-1]):
            block.put(found[..., j], block.scores[..., j].numpy())
    assert (times == 1).all()
    np.testing.assert_allclose(found, whole.numpy(), atol=1e-5)
    for index in (0, 7, times.size - 1):
        row = reader.row(index)
        wanted = whole.reshape(-1, reader.keys)[index]
        assert torch.allclose(row.double(), wanted[: len(row)], atol=1e-5)
        assert bool((wanted[len(row) :] == -math.inf).all())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [40, 1 << 19])
def test_chosen_rows_are_measured_like_all(name, size, monkeypatch):
    monkeypatch.setattr(score_blocks, "BLOCK", size)
    fused = made(CASES[name])
    for reader in (fused, WrittenScores(fused.whole)):
        shape = fused.shape
        places = np.broadcast_to(np.arange(shape[2]), shape)
        rows = models.AttentionRows(reader, shape, np.arange(shape[0]), places)
        every = models.measure_rows(rows, [3.0])
        chosen = np.random.default_rng(0).random(shape) < 0.4
        some = models.measure_rows(rows, [3.0], chosen=chosen)
        assert (some.skipped == ~chosen).all()
        assert (some.kept == (every.kept & chosen)).all()
        assert set(some.values) == set(every.values)
        for key, value in some.values.items():
            wanted = every.values[key][chosen]
            np.testing.assert_allclose(value[chosen], wanted, rtol=1e-5, atol=1e-30, err_msg=key)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions(dtype):
    reader = made(CASES["grouped"], dtype)
    (block,) = reader.blocks()
    assert block.scores.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.allclose(block.scores.double(), reference(reader)[..., :17], atol=1e-5)


class Attention(torch.nn.Module):
    """Fused attention of a few heads, as a function of the projections."""

    def __init__(self, heads=4, key_heads=2, **options):
        super().__init__()
        self.heads, self.options = heads, options
        self.query = torch.nn.Linear(16, 4 * heads)
        self.key, self.value = (torch.nn.Linear(16, 4 * key_heads) for _ in range(2))
        self.num_heads = heads

    def forward(self, x):
        q, k, v = (
            each(x).unflatten(-1, (-1, 4)).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        return functional.scaled_dot_product_attention(q, k, v, **self.options)


@pytest.mark.parametrize("mode", ["no_grad", "inference", "grad"])
def test_grouped_heads_of_fused_attention(mode):
    """Keys are shared, not copied, and every head has its own rows."""
    torch.manual_seed(0)
    model, x, seen = Attention(enable_gqa=True, is_causal=True), torch.randn(2, 9, 16), []
    context = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(
        mode, torch.enable_grad
    )
    with context(), audit.capture(model, seen.append) as watch:
        model(x)
    (found,) = seen
    assert not watch.missed
    rows = models.attention_rows(found, watch.inputs, 4)
    assert rows.shape == (2, 4, 9)
    if found.fused:
        assert found.reader.key.shape[1] in (2, 4)
    with torch.no_grad():
        q = model.query(x).unflatten(-1, (4, 4)).transpose(1, 2)
        k = model.key(x).unflatten(-1, (2, 4)).transpose(1, 2).repeat_interleave(2, dim=1)
        scores = (q @ k.mT / 2).masked_fill(torch.ones(9, 9).bool().triu(1), -math.inf)
    assert torch.allclose(rows.scores, scores, atol=1e-5)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("fused", [True, False])
def test_learned_queries_of_heads_that_share_their_keys(key_heads, fused):
    """Nothing but the queries tells such heads apart, and those come from no sample."""

    class Pooling(torch.nn.Module):
        num_heads = 4

        def __init__(self):
            super().__init__()
            self.query = torch.nn.Parameter(torch.randn(1, 4, 5, 8))
            self.key = torch.nn.Linear(16, 8 * key_heads)

        def forward(self, x):
            k = self.key(x).unflatten(-1, (key_heads, 8)).transpose(1, 2)
            q = self.query.expand(len(x), -1, -1, -1)
            if fused:
                return functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)
            k = k.repeat_interleave(4 // key_heads, dim=1)
            return (q @ k.mT / math.sqrt(8)).softmax(-1) @ k

    torch.manual_seed(0)
    model, x = Pooling(), torch.randn(3, 9, 16)
    record = audit.run(model, [x], epsilons=[])
    assert [layer.fused for layer in record.layers] == [fused]
    assert [row["rows"] for row in record.heads] == [15] * 4
    with torch.no_grad():
        k = model.key(x).unflatten(-1, (key_heads, 8)).transpose(1, 2)
        k = k.repeat_interleave(4 // key_heads, dim=1)
        top = (model.query @ k.mT / math.sqrt(8)).softmax(-1).amax(-1)
    wanted = top.mean(dim=(0, 2)).tolist()
    assert [row["top"] for row in record.heads] == pytest.approx(wanted, rel=1e-5)


def test_what_comes_after_fused_attention_is_followed():
    """Its output has the tokens of the queries and the features of the values."""

    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Attention(4, 4)
            self.second = torch.nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            y = self.first(x).transpose(1, 2).flatten(2)
            return self.second(y, y, y, need_weights=False)[0]

    torch.manual_seed(0)
    record = audit.run(Twice().eval(), [torch.randn(3, 6, 16)])
    assert [layer.state.heads for layer in record.layers] == [4, 2]
    assert [layer.fused for layer in record.layers] == [True, True]
    assert [row["rows"] for row in record.heads] == [18] * 6


@pytest.mark.parametrize("name", CASES)
def test_numbers_of_the_kernel_for_gpus_mean_the_same(name, monkeypatch):
    """Its portable form stands in for it: the kernel itself has tests of its own."""
    from taut.models import row_measurements
    from taut.models._gpu_rows.gpu_rows import last_keys
    from taut.models._gpu_rows.portable_rows import portable_rows

    reader = made(CASES[name])
    places = np.broadcast_to(np.arange(reader.shape[2]), reader.shape)
    rows = models.AttentionRows(reader, reader.shape, np.arange(reader.shape[0]), places)
    usual = models.measure_rows(rows, [4.0])

    def stand_in(query, key, bias, factor, offset):
        return portable_rows(query, key, bias, factor, last_keys(query, key, offset, None))

    monkeypatch.setattr(row_measurements, "row_numbers", stand_in)
    found = models.measure_rows(rows, [4.0])
    assert set(found.values) == set(usual.values)
    assert (found.kept == usual.kept).all()
    for key, value in found.values.items():
        np.testing.assert_allclose(value, usual.values[key], rtol=1e-4, atol=1e-6, err_msg=key)
