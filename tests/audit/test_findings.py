"""What is said about records: comparisons, findings, quantiles."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from taut import audit  # noqa: E402
from taut.audit.sinks import Sinks  # noqa: E402
from taut.audit.statistics.head_state import HeadState  # noqa: E402
from taut.cli.comparison_table import show_comparison  # noqa: E402
from taut.cli.record_table import show_record  # noqa: E402
from taut.models import (  # noqa: E402
    AttentionRows,
    RowMeasurements,
    WrittenScores,
    measure_rows,
)


def made(layers=5, heads=2, **changes):
    torch.manual_seed(0)
    blocks = [
        torch.nn.TransformerEncoderLayer(4 * heads, heads, 16, batch_first=True)
        for _ in range(layers)
    ]
    record = audit.run(
        torch.nn.Sequential(*blocks).eval(), [torch.randn(3, 9, 4 * heads)], name="m", epsilons=[]
    )
    record.data = {"kind": "text", "samples": 3, "source": "a.txt", "digest": "aa"}
    record.settings = {"max_length": 256, "logits": None}
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def shown(capsys, *records, tmp_path):
    files = []
    for number, record in enumerate(records):
        files.append(tmp_path / f"record{number}.json")
        record.save(files[-1])
    show_comparison(files, 50, as_json=False)
    text = capsys.readouterr().out
    show_comparison(files, 50, as_json=True)
    return text, json.loads(capsys.readouterr().out)


def test_only_what_can_be_compared_is(capsys, tmp_path):
    small, large = made(layers=2), made(layers=3)
    heads = audit.compare(small, large)
    assert [head.change is None for head in heads] == [False] * 4 + [True] * 2
    text, found = shown(capsys, small, large, tmp_path=tmp_path)
    assert "different layers" in text
    assert "0.0000" not in text
    assert (found["kind"], found["heads"], found["lost"]) == ("distributions", [], 2)
    assert len(found["quantiles"]) == 2
    means = [row["mean"] for row in small.heads]
    assert found["quantiles"][0] == pytest.approx(np.quantile(means, (0.05, 0.25, 0.5, 0.75, 0.95)))
    same, found = shown(capsys, small, made(layers=2), tmp_path=tmp_path)
    assert found["kind"] == "heads"
    assert [head["change"] for head in found["heads"]] == [0.0] * 4
    assert "0 rose, 0 fell and 4 stayed the same" in same


def test_a_first_look_is_not_set_against_exact_constants(capsys, tmp_path):
    exact, bounds = made(layers=2), made(layers=2)
    bounds.settings = {**bounds.settings, "quick": True}
    text, found = shown(capsys, exact, bounds, tmp_path=tmp_path)
    assert found["kind"] == "distributions"
    assert "others are bounds" in text
    assert "stayed" not in text


def test_heads_without_rows_have_no_change(capsys, tmp_path):
    full, empty = made(layers=2), made(layers=2)
    layer = empty.layers[1]
    layer.many, layer.few = layer.many.empty(), layer.few.empty()
    text, found = shown(capsys, full, empty, tmp_path=tmp_path)
    assert (found["kind"], len(found["heads"]), found["lost"]) == ("heads", 2, 2)
    assert "2 heads are not in every record" in text


def test_trainings_over_steps(capsys, tmp_path):
    for name, factor in (("a", 1.0), ("b", 0.5)):
        (tmp_path / name).mkdir()
        for step in (20, 100, 3):
            record = made(layers=2)
            for layer in record.layers:
                layer.state.sums["two"] *= factor * step / 100
            record.save(tmp_path / name / f"step-{step}.json")
    (tmp_path / "b" / "step-3.json").unlink()
    folders = [tmp_path / "a", tmp_path / "b"]
    show_comparison(folders, 5, as_json=True, page=tmp_path / "page.html")
    found = json.loads(capsys.readouterr().out)
    assert [step["step"] for step in found["trainings"]["a"]] == [3, 20, 100]
    means = [step["mean"] for step in found["trainings"]["a"]]
    assert means == sorted(means)
    assert found["kind"] == "heads"
    assert all(head["change"] < 0 for head in found["heads"])
    page = (tmp_path / "page.html").read_text()
    assert "Mean constant of all heads over training" in page
    show_comparison(folders, 5, as_json=False)
    assert "over training" in capsys.readouterr().out
    (tmp_path / "b" / "final.json").write_bytes((tmp_path / "b" / "step-20.json").read_bytes())
    with pytest.raises(ValueError, match="no step in its name"):
        show_comparison(folders, 5, as_json=True)
    with pytest.raises(ValueError, match="either files of records, or folders"):
        show_comparison([tmp_path / "a", tmp_path / "b" / "final.json"], 5, as_json=True)
    with pytest.raises(ValueError, match="two folders"):
        show_comparison([tmp_path / "a"], 5, as_json=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"data": {"kind": "text", "samples": 3, "source": "b.txt", "digest": "bb"}},
            "data differ",
        ),
        ({"data": {}}, "not recorded"),
        ({"settings": {"max_length": 128, "logits": None}}, "max_length 256, 128"),
        ({"model": {"name": "m", "class": "Other"}}, "Sequential, Other"),
        ({"complete": False}, "partial"),
    ],
)
def test_what_else_differs_is_said(changes, said, capsys, tmp_path):
    text, found = shown(capsys, made(), made(**changes), tmp_path=tmp_path)
    assert said in text
    assert any(said in line for line in (*found["differences"], *found["reasons"]))
    text, found = shown(capsys, made(), made(), tmp_path=tmp_path)
    assert found["differences"] == found["reasons"] == []
    assert said not in text


def kinds(record):
    return [finding.kind for finding in audit.findings(record)]


def calm(layers=5, heads=2):
    """A record in which nothing stands out."""
    record = made(layers, heads)
    for layer in record.layers:
        state = layer.state
        rows = state.counts["rows"]
        state.sums["two"] = 0.08 * rows
        state.sums["evenness"] = 0.5 * rows
        state.sums["first"] = 0.2 * rows
        state.maxima["range"][:] = 5.0
    return record


def test_heads_far_above_the_others_are_found():
    record = calm()
    assert kinds(record) == []
    state = record.layers[2].state
    state.sums["two"][1] = 0.25 * state.counts["rows"][1]  # 3.1 times the others
    (finding,) = audit.findings(record)
    assert finding.kind == "far above the others"
    assert finding.heads == ("2.self_attn head 1",)
    assert "3 times the median" in finding.text
    state.sums["two"][1] = 0.2 * state.counts["rows"][1]  # 2.5 times
    assert kinds(record) == []
    few = calm(layers=1)
    few.layers[0].state.sums["two"] *= [1, 5]  # of two heads none is typical
    assert kinds(few) == []
    still = calm()
    for layer in still.layers:
        layer.state.sums["two"] *= 1e-3
    still.layers[0].state.sums["two"][0] *= 5
    assert kinds(still) == []  # five times nothing is nothing


def test_scores_that_no_softmax_can_bear_are_found():
    record = calm()
    for layer in record.layers:
        layer.state.maxima["range"][0] = 100.0
    assert kinds(record) == []
    record.layers[0].state.maxima["range"][0] = 194.0
    (finding,) = audit.findings(record)
    assert finding.kind == "wide scores"
    assert "194" in finding.text
    # The limit is where the smallest weight becomes 0 in float32.
    for apart, gone in ((103.0, False), (104.0, True)):
        weights = torch.softmax(torch.tensor([0.0, -apart]), dim=-1)
        assert (weights[1].item() == 0.0) is gone


@pytest.mark.parametrize(
    ("operations", "advice"),
    [
        (["aten._native_multi_head_attention.default"], "attn_implementation='sdpa'"),
        (["weights of a softmax go into cumprod"], "How scores are seen"),
        (["flash_attn._flash_attn_forward.default", "runs in another thread"], "How scores"),
    ],
)
def test_what_to_do_about_missed_attention_depends_on_the_operation(operations, advice):
    record = calm()
    record.missed = [(f"layer {i}", operation) for i, operation in enumerate(operations)]
    (found,) = [one for one in audit.findings(record) if one.kind == "missed"]
    assert advice in found.advice


def test_where_nothing_stands_out_it_is_said_what_was_looked_for(capsys, tmp_path):
    record = calm()
    show_record(record, 3)
    text = " ".join(capsys.readouterr().out.split())
    looked_for = audit.findings(record).looked_for
    assert "attention sinks" in looked_for
    assert "consequence" not in looked_for  # nothing was estimated
    assert f"Nothing stands out. Looked for: {looked_for}" in text
    audit.write_report(record, tmp_path / "a.html")
    assert looked_for in (tmp_path / "a.html").read_text()
    record.layers[0].state.maxima["range"][0] = 194.0
    show_record(record, 3)
    assert "Nothing stands out" not in capsys.readouterr().out


def test_quantiles_are_said_to_be_upper_ends(capsys, tmp_path, monkeypatch):
    """A quantile is at most what is shown, and more than that less the width of a bin."""
    torch.manual_seed(1)
    record = made(layers=1)
    rows = torch.rand(2, 50) / 2
    state = HeadState(1)
    values = {name: rows[:1, None].numpy() for name in (*state.sums, *state.maxima, "seen")}
    kept = np.ones((1, 1, 50), dtype=bool)
    measured = RowMeasurements(values, kept, ~kept, ~kept)
    state.add(measured, np.zeros(1, dtype=np.int64), np.arange(50)[None, None])
    for share in (0.05, 0.5, 0.95):
        exact = sorted(rows[0].tolist())[math.ceil(share * 50) - 1]
        found = state.quantile("two", share)[0]
        assert found - 0.0025 <= exact <= found
    monkeypatch.setenv("COLUMNS", "140")
    show_record(record, 3)
    shown = capsys.readouterr().out
    assert "median ≤" in shown
    assert "(upper)" in shown
    audit.write_report(record, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    for words in ("5 % of rows ≤", "median ≤ (upper)", "95 % of rows ≤", "at most 0.0025 above"):
        assert words in page


def test_compare_takes_two():
    with pytest.raises(ValueError, match="two records"):
        audit.compare(copy.copy(made(layers=1)))


def test_sinks_are_found_wherever_their_key_is():
    """A token takes e³/(e³ + i) of each row of i + 1 keys that sees it; slow sums say the same."""
    torch.manual_seed(0)
    places = [0, 3, 9, None]  # the last sample has none
    scores = torch.zeros(4, 2, 20, 20)
    for sample, place in enumerate(places):
        if place is not None:
            scores[sample, 0, :, place] = 3.0
    scores += 1e-3 * torch.rand(scores.shape)  # the other head leans on nothing
    scores = scores.masked_fill(torch.ones(20, 20).triu(1).bool(), -torch.inf)
    rows = AttentionRows(
        WrittenScores(scores), (4, 2, 20), np.arange(4), np.broadcast_to(np.arange(20), (4, 2, 20)),
        keys=torch.arange(20).expand(4, 2, 20, 20),
    )  # fmt: skip
    sinks = Sinks(2)
    sinks.add(measure_rows(rows), rows, lambda sample, key: f"{sample}: {key}")
    top, at = scores.softmax(dim=-1)[:, 0, 7:].max(dim=-1)  # rows of 8 keys and more
    led = [torch.zeros(20).index_add(0, a, t) / 13 for a, t in zip(at, top, strict=True)]
    expected = {f"{s}: {int(each.argmax())}": 1 for s, each in enumerate(led) if each.max() >= 0.3}
    assert expected == {"0: 0": 1, "1: 3": 1, "2: 9": 1}
    assert sinks.samples.tolist() == [4, 4]
    assert [dict(each) for each in sinks.keys] == [expected, {}]
    assert sinks.share.tolist() == [0.75, 0.0]
    assert sinks.usual == ["0: 0", ""]


def test_the_same_number_of_a_key_in_two_blocks_is_not_one_key():
    """Blocks of a model number their keys anew: what leads in each is another token."""
    scores = torch.zeros(1, 1, 20, 10)
    scores[..., 4] = 5.0
    keys = torch.cat([torch.arange(10).expand(10, 10), torch.arange(10, 20).expand(10, 10)])
    rows = AttentionRows(
        WrittenScores(scores), (1, 1, 20), np.arange(1), np.arange(20)[None, None],
        keys=keys[None, None],
    )  # fmt: skip
    sinks = Sinks(1)
    sinks.add(measure_rows(rows), rows, lambda sample, key: f"t{key}")
    assert sinks.keys == [{"t4": 1}]  # half of the rows each: the first of two alike
    none = rows._replace(keys=torch.full((1, 1, 20, 10), -1))  # learned keys have no position
    sinks.add(measure_rows(none), none, lambda sample, key: "never")
    assert sinks.keys == [{"t4": 1, "key 4": 1}]


def test_sinks_are_a_finding_with_their_keys():
    record = calm()
    sinks = record.layers[1].sinks
    sinks.samples[:] = 4
    sinks.keys[0]["[SEP]"] = 2
    assert kinds(record) == []  # half of the samples is not most of them
    sinks.keys[0]["\x1b[31m"] = 1
    (finding,) = audit.findings(record)
    assert (finding.kind, finding.heads) == ("sinks", ("1.self_attn head 0",))
    assert "'[SEP]' (1)" in finding.text
    assert "first key" not in finding.text  # it has little weight: the sinks are other keys
    record.layers[1].state.sums["first"][0] = 0.9 * record.layers[1].state.counts["rows"][0]
    assert "The first key has 90%" in audit.findings(record)[0].text
    sinks.keys[0]["\x1b[31m"] = 2
    assert r"'\x1b[31m' (1)" in audit.findings(record)[0].text  # no control characters


def test_sinks_of_a_language_model_are_called_by_their_tokens(tmp_path):
    """Of two halves merged in either order, and of a file, they are the same."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=32, use_cache=False
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.randint(0, 50, (4, 24))
    ids[:, 0] = 5
    with torch.no_grad():  # queries are all alike, and the keys of token 5 point along them
        attention = model.transformer.h[0].attn.c_attn
        attention.weight.zero_()
        attention.bias.zero_()
        attention.bias[:16] = 1.0
        model.transformer.wpe.weight.zero_()
        mean = model.transformer.wte.weight
        mean[5] = 4 * torch.arange(16.0) / 16
        attention.weight[:, 16:32] = torch.arange(16.0)[:, None] / 4
    parts = []
    for first in (0, 2):
        auditor = audit.Auditor(model, norms=[], epsilons=[])
        batch = ids[first : first + 2]
        auditor.add(
            {"input_ids": batch}, tokens=lambda s, q, b=batch: f"<{int(b[s, q])}>", first=first
        )
        parts.append(auditor.record)
    assert parts[0].layers[0].fused
    assert set(parts[0].layers[0].sinks.keys[0]) == {"<5>"}
    both = copy.deepcopy(parts[0])
    both.merge(parts[1])
    other = copy.deepcopy(parts[1])
    other.merge(parts[0])
    assert both.layers[0].sinks.to_dict() == other.layers[0].sinks.to_dict()
    assert both.layers[0].sinks.keys[0]["<5>"] == 4
    both.save(tmp_path / "a.json")
    read = audit.Record.load(tmp_path / "a.json")
    assert read.layers[0].sinks.to_dict() == both.layers[0].sinks.to_dict()
    wrong = both.layers[0].to_dict()
    wrong["sinks"]["keys"][0]["<5>"] = 5
    with pytest.raises(ValueError, match="more samples than there are"):
        type(both.layers[0]).from_dict(wrong)
