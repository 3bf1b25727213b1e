"""The numbers of an audit against an independent slow computation, and its record."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut import audit  # noqa: E402
from taut.audit.record_json import VERSION  # noqa: E402
from tests.helpers.architectures import names, tiny  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

nn = torch.nn
# DeBERTa and torch.compile use what PyTorch is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def slow(weights):
    """Constants of one row of weights by dense linear algebra."""
    p = weights.double().numpy()
    matrix = np.diag(p) - np.outer(p, p)
    return np.linalg.norm(matrix, 2), np.linalg.norm(matrix, 1)


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "qwen3", "vit", "gemma2"])
def test_numbers_agree_with_dense_algebra(name):
    model, inputs = tiny(name)
    record = audit.run(model, [inputs], norms=[])
    seen = []
    with torch.no_grad(), audit.capture(model, seen.append):
        model(**inputs)
    assert len(record.layers) == len(seen)
    for layer, found in zip(record.layers, seen, strict=True):
        for h in range(layer.state.heads):
            rows = found.weights[:, h].reshape(-1, found.weights.shape[-1])
            two, one = np.array([slow(row) for row in rows]).T
            state = layer.state
            assert state.counts["rows"][h] == len(rows)
            assert state.maxima["two"][h] == pytest.approx(two.max(), rel=1e-5)
            assert state.maxima["one"][h] == pytest.approx(one.max(), rel=1e-5)
            assert state.sums["two"][h] == pytest.approx(two.sum(), rel=1e-5)
            entropy = -(rows * rows.clamp(min=1e-30).log()).sum()
            assert state.sums["entropy"][h] == pytest.approx(float(entropy), rel=1e-4, abs=1e-5)
            sample, query = state.places["two"][h]
            at = sample * found.weights.shape[2] + query
            assert two[at] == pytest.approx(two.max(), rel=1e-5)
            assert state.histograms["two"][h].sum() == len(rows)


@pytest.mark.parametrize("name", names("capture"))
def test_every_architecture_can_be_audited(name):
    model, inputs = tiny(name)
    record = audit.run(model, [inputs, inputs], norms=[])
    assert record.complete
    assert record.samples == 4
    assert record.layers
    for row in record.heads:
        assert row["broken"] == 0
        assert 0 <= row["mean"] <= row["largest"] <= 0.5
    expected = {"albert": 2, "clip": 4, "swin": 4}.get(name)
    if expected:
        assert len(record.layers) == expected
    heads = {layer.state.heads for layer in record.layers}
    assert heads == ({2, 4} if name == "swin" else {4})


def test_padding_does_not_count():
    model, inputs = tiny("bert")
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[1, 4:] = 0
    record = audit.run(model, [{**inputs, "attention_mask": mask}])
    assert {row["rows"] for row in record.heads} == {11}
    assert {row["hidden"] for row in record.heads} == {3}


def test_the_order_of_batches_does_not_matter():
    model, _ = tiny("gpt2")
    ids = torch.randint(3, 60, (6, 7))
    whole = audit.run(model, [{"input_ids": ids[i : i + 2]} for i in (0, 2, 4)])
    parts = []
    for start in (4, 0, 2):
        auditor = audit.Auditor(model)
        auditor.add({"input_ids": ids[start : start + 2]}, first=start)
        parts.append(auditor.record)
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    assert merged.samples == whole.samples
    for mine, theirs in zip(merged.layers, whole.layers, strict=True):
        a, b = mine.state, theirs.state
        for group in ("counts", "sums", "rests", "maxima", "places", "histograms"):
            for key in getattr(a, group):
                assert np.array_equal(getattr(a, group)[key], getattr(b, group)[key]), (group, key)
        assert mine.grid.to_dict() == theirs.grid.to_dict()


def test_empirical_constants_stay_between_random_and_the_limit():
    model, inputs = tiny("gpt2")
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight *= 20
    record = audit.run(model, [inputs], norms=[1, 2, 3, math.inf], epsilons=[1e-4, 1e-2, 1.0])
    for layer in record.layers:
        grid = layer.grid
        assert grid.rows > 0
        assert (grid.random <= grid.worst + 1e-6).all()
        assert (grid.worst <= 0.5).all()
        assert (grid.worst[0] <= grid.upper * (1 + 1e-3)).all()
        assert (grid.worst[0] >= 0.98 * grid.lower).all()
    free = audit.run(model, [inputs], norms=[])
    assert free.layers[0].grid is None


def test_how_many_rows_are_sampled():
    """Rows by samples and layer, told apart by their length; what processes saw adds up."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(5, 6, 8)
    (one,) = audit.run(layer, [x]).layers
    (many,) = audit.run(layer, [x], sampled=3, rows=7).layers
    assert (one.grid.rows, many.grid.rows) == (5, 21)
    assert many.grid.counts[2] == many.grid.counts.sum() == 21  # 6 keys: between 4 and 8
    share = many.grid.shares[2] / 21
    assert (share > 0).all()
    assert (share < 1).all()
    again = type(many.grid).from_dict(many.grid.to_dict())
    again.merge(many.grid)
    assert again.counts[2] == 42
    assert again.rows == 42
    with pytest.raises(ValueError, match="rows"):
        audit.run(layer, [x], rows=0)


def test_a_record_survives_the_disk(tmp_path):
    model, inputs = tiny("gpt2")
    record = audit.run(model, [inputs], name="tiny")
    record.save(tmp_path / "a.json")
    again = audit.Record.load(tmp_path / "a.json")
    assert again.to_dict() == record.to_dict()
    assert again.heads == record.heads
    assert json.loads((tmp_path / "a.json").read_text())["taut_audit"] == VERSION
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]
    assert record.model["name"] == "tiny"
    assert len(record.model["weights"]) == 32
    with pytest.raises(OSError, match="cannot write"):
        record.save(tmp_path / "missing" / "a.json")
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(ValueError, match="not a record"):
        audit.Record.load(tmp_path / "b.json")


def test_quantiles_come_from_the_histogram():
    model, inputs = tiny("gpt2")
    record = audit.run(model, [inputs])
    state = record.layers[0].state
    seen = []
    with torch.no_grad(), audit.capture(model, seen.append):
        model(**inputs)
    rows = seen[0].weights[:, 0].reshape(-1, 7)
    two = np.sort([slow(row)[0] for row in rows])
    for share in (0.05, 0.5, 0.95):
        exact = two[math.ceil(share * len(two)) - 1]
        assert state.quantile("two", share)[0] == pytest.approx(exact, abs=0.5 / 200 + 1e-6)


def test_broken_scores_are_counted_and_found():
    model, inputs = tiny("gpt2")
    with torch.no_grad():
        model.transformer.h[1].ln_1.weight[0] = float("nan")
    record = audit.run(model, [inputs])
    rows = record.heads
    assert all(row["broken"] == 0 for row in rows[:4])
    assert all(row["broken"] == 14 and row["rows"] == 0 for row in rows[4:])
    assert "broken scores" in [finding.kind for finding in audit.findings(record)]
    json.dumps(record.to_dict(), allow_nan=False)


def test_findings_have_their_numbers():
    model, inputs = tiny("bert")
    found = {f.kind: f for f in audit.findings(audit.run(model, [inputs]))}
    assert set(found) == {"uniform"}  # as random weights are
    assert "8 of 8 heads" in found["uniform"].text
    with torch.no_grad():
        for layer in model.encoder.layer:
            layer.attention.self.query.weight *= 1000
            layer.attention.self.key.weight *= 1000
    found = {f.kind: f for f in audit.findings(audit.run(model, [inputs]))}
    assert "saturated" in found
    assert "uniform" not in found


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: audit.run(3, []), TypeError, "Module"),
        (lambda: audit.run(nn.Linear(2, 2), []), ValueError, "no data"),
        (lambda: audit.run(nn.Linear(2, 2), [torch.ones(1, 2)]), ValueError, "no attention"),
        (lambda: audit.run(nn.Linear(2, 2), [{}]), ValueError, "tensor"),
    ],
)
def test_bad_input(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT with a tokenizer, saved as people save theirs."""
    import transformers

    place = tmp_path_factory.mktemp("bert")
    model, _ = tiny("bert")
    model.save_pretrained(place)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "ran"]
    (place / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place)
    return place


def command(*arguments, cwd):
    return taut("audit", *arguments, cwd=cwd)


def test_the_command(folder, tmp_path):
    (tmp_path / "lines.txt").write_text("the cat sat\nthe dog ran\n\nthe cat\n")
    done = command(folder, "--data", "lines.txt", "--batch-size", 2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("3 samples", "encoder.layer.*.attention.self", "The most sensitive", "record:"):
        assert words in done.stdout
    (file,) = (tmp_path / "taut-audit").glob("*.json")
    assert file.with_suffix(".html").read_text().startswith("<!DOCTYPE html>")
    first = audit.Record.load(file)
    assert first.complete
    assert set(first.tokens.values()) <= {"[CLS]", "[SEP]", " the", " cat", " sat", " dog", " ran"}
    again = command(folder, "--data", "lines.txt", "--batch-size", 2, "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["layers"] == first.to_dict()["layers"]  # nothing counted twice
    other = command(folder, "--data", "the cat", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    assert len(list((tmp_path / "taut-audit").glob("*.json"))) == 2  # other data, another record


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --data"),
        (("--data", "missing.txt"), "there is no file"),
        (("--data", "x", "--batch-size", "0"), "--batch-size"),
        (("--data", "x", "--output-dir", "file/inside"), "cannot make the folder"),
    ],
)
def test_bad_commands_say_why(arguments, words, folder, tmp_path):
    (tmp_path / "file").write_text("")
    done = command(folder, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow  # test_resume.py has several processes by day, without torchrun
def test_two_processes_give_the_record_of_one(folder, tmp_path):
    words = ["the cat sat", "the dog ran", "the cat", "dog", "the dog sat", "cat", "sat the dog"]
    (tmp_path / "lines.txt").write_text("\n".join(words))
    options = ["--data", "lines.txt", "--batch-size", "2", "--json"]
    alone = json.loads(command(folder, *options, "--output-dir", "a", cwd=tmp_path).stdout)
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "taut", "audit", str(folder), *options, "--output-dir", "b"],
        capture_output=True, text=True, env=env, cwd=tmp_path, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    both = json.loads(done.stdout)
    assert len(list((tmp_path / "b").glob("*.json"))) == 1  # the parts are gone
    for record in (both, alone):  # their commands differ, and with them their checksums
        del record["made"], record["checksum of this file"]
    assert both == alone  # to the last bit of every number


def test_records_are_compared(tmp_path):
    model, inputs = tiny("bert")
    audit.run(model, [inputs], norms=[]).save(tmp_path / "before.json")
    with torch.no_grad():
        model.encoder.layer[1].attention.self.query.weight *= 300
    audit.run(model, [inputs], norms=[]).save(tmp_path / "after.json")

    def run(*arguments):
        return taut("compare", *arguments, cwd=tmp_path)

    done = run("before.json", "after.json")
    assert done.returncode == 0, done.stderr
    assert "encoder.layer.*.attention.self" in done.stdout
    assert "layer 1" in done.stdout
    heads = json.loads(run("before.json", "after.json", "--json").stdout)["heads"]
    assert len(heads) == 8
    assert all(head["change"] == 0 for head in heads[:4])
    assert all(head["change"] != 0 for head in heads[4:])
    assert "at least two" in run("before.json").stderr
    assert "there is no file" in run("before.json", "none.json").stderr


def test_records_and_versions_are_listed(tmp_path):
    def run(*arguments):
        return taut(*arguments, cwd=tmp_path)

    model, inputs = tiny("bert")
    record = audit.run(model, [inputs], name="tiny", norms=[])
    record.save(tmp_path / "a.json")
    (tmp_path / "other.json").write_text("{}")
    listed = run("ls", tmp_path).stdout
    mean = sum(row["mean"] for row in record.heads) / len(record.heads)
    assert listed.startswith(f"{tmp_path / 'a.json'}: tiny, 2 samples, mean {mean:.3f} (exact), ")
    assert listed.endswith("complete, 2023-11-14 22:13\n")
    assert "no folder" in run("ls", "nowhere").stderr
    (tmp_path / "empty").mkdir()
    assert "no audits" in run("ls", "empty").stdout
    versions = run("env").stdout
    for name in ("python", "taut", "numpy", "torch"):
        assert f"{name} " in versions
