"""What a hostile tester broke once: each of these gave a wrong number, or hid an attention."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut import audit  # noqa: E402
from taut.audit.statistics.head_state import HeadState  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

nn = torch.nn
functional = nn.functional


class Attention(nn.Module):
    """Two heads of six queries and keys; ``make`` turns a query into weights."""

    num_heads = 2

    def __init__(self, make):
        super().__init__()
        source = torch.Generator().manual_seed(1)

        def fixed(*shape):
            return nn.Parameter(torch.randn(shape, generator=source).double(), requires_grad=False)

        self.make = make
        self.k, self.v, self.other = fixed(1, 2, 6, 4), fixed(1, 2, 6, 4), fixed(1, 2, 6, 4)
        self.r, self.column = fixed(6, 4), fixed(4, 1)
        self.linear = nn.Linear(4, 6).double()

    def forward(self, q):
        return self.make(self, q)[..., :6] @ self.v


def sm(x):
    return x.softmax(dim=-1)


def overwritten(s, q):
    keys = s.other.clone()
    scores = q @ keys.mT
    keys.zero_()
    return sm(scores)


def refilled(s, q):
    scores = q @ s.k.mT
    scores[..., :3].copy_(q[..., :3] * 50)
    return sm(scores)


DEPENDS = {
    "relative by mm": lambda s, q: sm(q @ s.k.mT + q @ s.r.T),
    "relative by a linear map": lambda s, q: sm(q @ s.k.mT + s.linear(q)),
    "relative by numbers": lambda s, q: sm(q @ s.k.mT + (q.unsqueeze(-2) * s.r).sum(-1)),
    "distance": lambda s, q: sm(q @ s.k.mT - torch.cdist(q, s.other)),
    "base of baddbmm": lambda s, q: sm(torch.baddbmm((q @ s.r.T)[0], q[0], s.k[0].mT)[None]),
    "sink of the query": lambda s, q: sm(torch.cat([q @ s.k.mT, q @ s.column], -1)),
    "where": lambda s, q: sm(torch.where(q[..., :1] > 0, q @ s.k.mT, q @ s.r.T)),
    "clamp by itself": lambda s, q: sm((a := q @ s.k.mT).clamp(max=9 * a.mean(-1, keepdim=True))),
    "transposed": lambda s, q: sm((s.other @ q.mT).mT),
    "mask of the query": lambda s, q: sm((a := q @ s.k.mT).masked_fill(a < a.mean(), -9e9)),
    "alpha": lambda s, q: sm(torch.add(s.r[:, :1], q @ s.k.mT, alpha=7)),
    "its own deviation": lambda s, q: sm((a := q @ s.k.mT) / a.std()),
    "keys overwritten": overwritten,
    "scores refilled": refilled,
}


@pytest.mark.parametrize("name", DEPENDS)
def test_no_affinity_is_claimed_where_the_query_comes_in_again(name):
    q = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(2)).double()
    record = audit.run(Attention(DEPENDS[name]), [q], epsilons=[])
    assert np.isinf([row["affinity_upper"] for row in record.heads]).all()


def test_queries_of_zeros_and_ones_are_no_masks():
    q = torch.zeros(1, 2, 6, 4).double()
    for x in (q, q + torch.eye(6, 4)):
        record = audit.run(Attention(DEPENDS["relative by numbers"]), [x], epsilons=[])
        assert np.isinf([row["affinity_upper"] for row in record.heads]).all()


def zeroed(s, q):
    scores = q @ s.k.mT
    weights = sm(scores)
    scores.zero_()
    return weights


SPOILT = {
    "scores zeroed": zeroed,
    "weights masked": lambda s, q: sm(q @ s.k.mT).masked_fill_(torch.eye(6).bool(), 0.0),
    "dropout in place": lambda s, q: functional.dropout(sm(q @ s.k.mT), 0.5, True, inplace=True),
    "gated in place": lambda s, q: sm(q @ s.k.mT).mul_(5.0),
    "gate first": lambda s, q: torch.ones(6).double() * sm(q @ s.k.mT),
    "where": lambda s, q: torch.where(torch.ones(6).bool(), sm(q @ s.k.mT), 0.0),
    "joined": lambda s, q: torch.cat([sm(q @ s.k.mT), torch.zeros(1, 2, 6, 1)], -1),
    "exponentials of logarithms": lambda s, q: (q @ s.k.mT).log_softmax(-1).exp(),
}


@pytest.mark.parametrize("name", SPOILT)
def test_rows_are_those_of_the_softmax_whatever_becomes_of_them(name):
    q = torch.randn(1, 2, 6, 4, generator=torch.Generator().manual_seed(2)).double()
    plain = audit.run(Attention(lambda s, q: sm(q @ s.k.mT)), [q])
    torch.manual_seed(0)
    found = audit.run(Attention(SPOILT[name]), [q])
    assert found.missed == []
    assert len(found.heads) == 2
    for mine, other in zip(found.heads, plain.heads, strict=True):
        for key in ("rows", "mean", "largest", "entropy", "top", "range"):
            assert mine[key] == pytest.approx(other[key], rel=1e-9)
    json.dumps(found.to_dict(), allow_nan=False)


def test_both_parts_of_a_difference_are_seen_once():
    def differential(s, q):
        return sm(q @ s.k.mT) - 0.5 * sm(q @ s.other.mT)

    record = audit.run(Attention(differential), [torch.randn(1, 2, 6, 4).double()])
    assert (len(record.layers), record.missed) == (2, [])


def test_weights_whose_use_is_not_followed_are_reported():
    class Lost(Attention):
        def forward(self, q):
            return torch.cumprod(self.make(self, q), dim=-1)[..., :3].contiguous()

    record = audit.run(Lost(lambda s, q: sm(q @ s.k.mT)), [torch.randn(1, 2, 6, 4).double()])
    assert record.missed == [("", "weights of a softmax go into cumprod")]
    odd = Attention(lambda s, q: sm((q @ s.k.mT)[None, None])[0, 0])
    found = audit.run(odd, [torch.randn(1, 2, 6, 4).double()])
    assert [row["rows"] for row in found.heads] == [6, 6]
    with pytest.warns(DeprecationWarning, match="script"):
        scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="scripted"):
        audit.run(scripted, [torch.ones(1, 2)])


def test_a_batch_counts_whole_or_not_at_all():
    model, inputs = tiny("gpt2")
    auditor = audit.Auditor(model)
    auditor.add(inputs)
    before = json.dumps(auditor.record.to_dict())

    def stop(*_):
        raise KeyboardInterrupt

    handle = model.transformer.h[1].register_forward_pre_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        auditor.add(inputs)
    handle.remove()
    assert json.dumps(auditor.record.to_dict()) == before
    auditor.add(inputs)
    assert {row["rows"] for row in auditor.record.heads} == {28}


SLOW = """
import os, time, torch
from torch import nn
class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.MultiheadAttention(8, 2, batch_first=True)
        self.b = nn.MultiheadAttention(8, 2, batch_first=True)
    def forward(self, x):
        x = self.a(x, x, x)[0]
        time.sleep(float(os.environ.get("SLOW", 0)))
        with open("batches", "a") as seen:
            seen.write(".")
        return self.b(x, x, x)[0]
def model():
    return Slow().eval()
"""


# A shell's background jobs, tests among them, are deaf to Ctrl-C: a process that is started by this
# line is not. (`preexec_fn` would fork this process, whose threads JAX and torch have started.)
HEARS_CTRL_C = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_ctrl_c_and_the_same_command_again(tmp_path):
    (tmp_path / "mine.py").write_text(SLOW)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(120, 5, 8)).astype("f4"))
    call = [sys.executable, "-m", "taut", "audit", "mine:model", "--data", "x.npy",
            "--batch-size", "2", "--epsilons", "", "--output-dir"]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SLOW": "0.5"}
    expected = json.loads(taut(*call[3:], "a", "--json", cwd=tmp_path).stdout)
    (tmp_path / "batches").unlink()
    running = subprocess.Popen([sys.executable, "-c", HEARS_CTRL_C, *call, "b"], cwd=tmp_path,
                               env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                               text=True)  # fmt: skip
    while running.poll() is None and not (tmp_path / "batches").exists():
        time.sleep(0.05)
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode in (3, 130)
    assert len((tmp_path / "batches").read_text()) < 60
    done = taut(*call[3:], "b", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["samples"] == 120
    for mine, other in zip(found["layers"], expected["layers"], strict=True):
        for key in ("counts", "maxima", "places", "histograms"):
            assert mine[key] == other[key]


def test_padding_of_encoder_and_decoder():
    model, inputs = tiny("bart")
    inputs["attention_mask"] = torch.ones(2, 7, dtype=torch.long)
    inputs["attention_mask"][1, 4:] = 0
    inputs["decoder_input_ids"] = torch.ones(2, 7, dtype=torch.long)
    rows = {
        layer.path: layer.state.counts["rows"][0] for layer in audit.run(model, [inputs]).layers
    }
    assert {n for path, n in rows.items() if ".encoder.layers" in path} == {11}
    assert {n for path, n in rows.items() if ".decoder." in path} == {14}
    inputs["decoder_attention_mask"] = torch.ones(2, 7, dtype=torch.long)
    inputs["decoder_attention_mask"][0, 5:] = 0
    rows = {
        layer.path: layer.state.counts["rows"][0] for layer in audit.run(model, [inputs]).layers
    }
    assert {n for path, n in rows.items() if ".decoder." in path} == {12}


def test_tokens_before_samples():
    layer = nn.TransformerEncoderLayer(8, 2, 16).eval()
    record = audit.run(layer, [torch.randn(12, 5, 8)])
    assert record.samples == 5
    assert {row["rows"] for row in record.heads} == {60}
    assert max(row["sample"] for row in record.heads) < 5


def test_heads_one_after_the_other_are_no_samples():
    class Loop(nn.Module):
        num_heads = 4

        def forward(self, x):
            parts = [sm(h @ h.mT) @ h for h in x.chunk(4, dim=-1)]
            return torch.cat(parts, -1)

    for size in (3, 4, 8):
        record = audit.run(Loop(), [torch.randn(size, 6, 8)])
        assert [row["rows"] for row in record.heads] == [6 * size] * 4


def test_half_precision_has_the_entropy_of_its_scores():
    class Half(nn.Module):
        def forward(self, x):
            return sm((x @ x.mT + 400).bfloat16()).float() @ x

    x = torch.randn(2, 2, 6, 4, generator=torch.Generator().manual_seed(0))
    record = audit.run(Half(), [x])
    p = sm((x @ x.mT + 400).bfloat16().double())
    exact = torch.special.entr(p).sum(-1).mean(dim=(0, 2))
    assert [row["entropy"] for row in record.heads] == pytest.approx(exact.tolist(), abs=1e-3)


def test_text_that_does_not_fit(tmp_path):
    """More tokens than a model has positions, and a model that reads no text."""
    from taut.models.batches import batches, longest
    from taut.models.embedded import embedded_models
    from taut.models.samples import Samples

    model, _ = tiny("vit")
    with pytest.raises(ValueError, match="reads pixel_values, not text"):
        next(batches(Samples("text", ["a"], ""), model, "", [0], size=1, max_length=9))
    folder = embedded_models()["embedded-plain"]
    small, _ = tiny("gpt2")
    samples = Samples("text", ["word " * 500], "")
    with pytest.raises(ValueError, match="is it that of another model"):
        next(batches(samples, small, str(folder), [0], size=1, max_length=9999))
    small.set_input_embeddings(torch.nn.Embedding(5000, small.config.n_embd))
    assert longest(small) < 100
    (batch,) = batches(samples, small, str(folder), [0], size=1, max_length=9999)
    assert batch.inputs["input_ids"].shape[1] == longest(small)


def test_a_merge_that_fails_changes_nothing():
    model, inputs = tiny("gpt2")
    record = audit.run(model, [inputs], norms=[])
    other = audit.run(model, [inputs], norms=[])
    other.layers[1] = audit.LayerRecord("transformer.h.1.attn", 1, HeadState(3))
    before = json.dumps(record.to_dict())
    with pytest.raises(ValueError, match="cannot merge 3 heads into 4"):
        record.merge(other)
    assert json.dumps(record.to_dict()) == before
