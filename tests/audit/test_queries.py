"""Rows that are drawn, and first looks: reproducible, labelled, and never above what is true."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import taut  # noqa: E402
from taut import audit, models  # noqa: E402
from taut._base import settings  # noqa: E402
from taut.audit.report.curves import curves  # noqa: E402
from tests.helpers.architectures import names, tiny  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def batch(samples=4, tokens=12, seed=0):
    torch.manual_seed(seed)
    return torch.randint(3, 60, (samples, tokens))


@pytest.mark.parametrize("name", names("capture"))
def test_drawn_rows_are_so_many_of_each_sample_and_head(name):
    model, inputs = tiny(name)
    whole = audit.run(model, [inputs], epsilons=[])
    record = audit.run(model, [inputs], epsilons=[], queries=3)
    for every, some in zip(whole.heads, record.heads, strict=True):
        assert some["rows"] + some["few"] <= 6
        assert some["rows"] + some["few"] + some["skipped"] == every["rows"] + every["few"]
        most = max(every["largest"], every["largest_few"])
        assert some["largest"] <= most * (1 + 1e-6)
        assert some["affinity_upper"] == pytest.approx(every["affinity_upper"])


def test_the_draw_is_the_same_for_every_batch():
    """One by one, in other orders and together: the same rows, to the last count."""
    model, _ = tiny("gpt2")
    ids = batch()
    together = audit.run(model, [{"input_ids": ids}], queries=5, epsilons=[])
    auditor = audit.Auditor(model, queries=5, epsilons=[])
    for index in (2, 0, 3, 1):
        auditor.add({"input_ids": ids[index : index + 1]}, first=index)
    for mine, theirs in zip(auditor.record.heads, together.heads, strict=True):
        assert mine["rows"] == theirs["rows"]
        assert mine["rows"] + mine["few"] == theirs["rows"] + theirs["few"] == 20
        assert mine["mean"] == pytest.approx(theirs["mean"], rel=1e-6)
        assert (mine["sample"], mine["query"]) == (theirs["sample"], theirs["query"])
    other = audit.run(model, [{"input_ids": ids}], queries=5, epsilons=[], seed=1)
    assert [row["mean"] for row in other.heads] != [row["mean"] for row in together.heads]


def test_padding_is_not_drawn():
    model, _ = tiny("bert")
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 4:] = 0
    record = audit.run(model, [{"input_ids": batch(2), "attention_mask": mask}], queries=6)
    for row in record.heads:
        assert (row["rows"], row["few"], row["skipped"], row["hidden"]) == (6, 4, 6, 8)


@pytest.mark.parametrize("left", [False, True])
def test_the_draw_does_not_depend_on_how_long_other_samples_are(left):
    """A sample alone, and padded to the length of another one: the same rows are drawn."""
    model, _ = tiny("gpt2")
    ids, mask = batch(2, 14), torch.ones(2, 14, dtype=torch.long)
    own = slice(4, None) if left else slice(10)
    mask[1] = 0
    mask[1, own] = 1
    places = (mask.cumsum(1) - 1).clamp(min=0)
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": places}
    together = audit.run(model, [inputs], queries=4, epsilons=[])
    alone = audit.Auditor(model, queries=4, epsilons=[])
    alone.add({name: value[:1] for name, value in inputs.items()})
    alone.add({name: value[1:, own] for name, value in inputs.items()})
    for mine, theirs in zip(alone.record.heads, together.heads, strict=True):
        assert (mine["rows"], mine["few"]) == (theirs["rows"], theirs["few"])
        for key in ("mean", "entropy", "mean_few"):
            assert mine[key] == pytest.approx(theirs[key], rel=1e-4)


def test_samples_that_are_short_enough_are_measured_whole_beside_long_ones(monkeypatch):
    monkeypatch.setattr(settings, "ALL_QUERIES", 10)
    monkeypatch.setattr(settings, "DRAWN_QUERIES", 3)
    model, _ = tiny("bert")
    mask = torch.ones(2, 14, dtype=torch.long)
    mask[1, 10:] = 0
    record = audit.run(model, [{"input_ids": batch(2, 14), "attention_mask": mask}], epsilons=[])
    assert {(row["rows"], row["skipped"]) for row in record.heads} == {(13, 11)}


def test_what_is_of_a_sample_says_so(tmp_path, capsys):
    from taut.cli.record_table import show_record

    model, _ = tiny("gpt2")
    inputs = {"input_ids": batch()}
    exact = audit.run(model, [inputs], queries="all")
    assert not exact.drawn
    assert exact.columns["largest"].kind == "exact"
    record = audit.run(model, [inputs], queries=4)
    assert record.drawn
    kinds = {name: column.kind for name, column in record.columns.items()}
    assert kinds["largest"] == kinds["largest_1"] == kinds["range"] == "lower"
    assert kinds["mean"] == kinds["entropy"] == kinds["median_upper"] == kinds["above"] == "sample"
    assert kinds["largest_4_upper"] == "sample"
    assert kinds["affinity_upper"] == "upper"
    assert kinds["rows"] == "exact"
    assert set(record.to_dict()["kinds"]["rows"].values()) == {"sample"}
    show_record(record, 3)
    printed = " ".join(capsys.readouterr().out.split())
    assert "128 of 384 rows were measured" in printed
    assert "lower bounds" in printed
    assert "(lower)" in printed
    audit.write_report(record, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "Largest constant in l2 (lower)" in page
    assert "Mean constant in l2 (sample)" in page
    assert "(lower), of the rows drawn" in page
    record.save(tmp_path / "a.json")
    assert audit.Record.load(tmp_path / "a.json").columns == record.columns


def test_drawn_rows_of_logits_alone_say_so():
    """A model without attention: only its predictions are measured."""
    torch.manual_seed(0)
    record = audit.run(torch.nn.Linear(16, 10), [torch.randn(2, 20, 16)], logits=1.0, queries=4)
    assert record.drawn
    assert record.columns["mean"].kind == "sample"
    assert record.columns["largest"].kind == "lower"
    assert record.to_dict()["kinds"]["rows"]["two"] == "sample"
    assert any("8 of 40 rows" in sentence for sentence in audit.coverage_sentences(record))


def test_the_default_draws_only_from_long_contexts(monkeypatch):
    usual = audit.Settings()
    assert usual.queries_of(4096) == 4096
    assert usual.queries_of(4097) == 512
    assert audit.Settings(queries="all").queries_of(10**6) == 10**6
    assert audit.Settings(queries=7).queries_of(5) == 5
    monkeypatch.setattr(settings, "ALL_QUERIES", 10)
    monkeypatch.setattr(settings, "DRAWN_QUERIES", 3)
    model, _ = tiny("gpt2")
    record = audit.run(model, [{"input_ids": batch(tokens=10)}], epsilons=[])
    assert record.heads[0]["rows"] + record.heads[0]["few"] == 40
    record = audit.run(model, [{"input_ids": batch(tokens=11)}], epsilons=[])
    assert record.heads[0]["rows"] + record.heads[0]["few"] == 12
    assert record.drawn


def test_rows_of_few_keys_are_kept_apart(tmp_path, capsys):
    """The first seven queries of every sample, which would all but reach the limit."""
    from taut.cli.record_table import show_record

    model, _ = tiny("gpt2")
    inputs = {"input_ids": batch(tokens=12)}
    record = audit.run(model, [inputs], epsilons=[])
    seen = []
    with torch.no_grad(), audit.capture(model, seen.append):
        model(**inputs)
    for row in record.heads:
        layer = next(s for s in seen if s.path == row["layer"])
        two = taut.local_lipschitz(layer.scores[:, row["head"]].double()).value
        few, many = two[:, :7], two[:, 7:]
        assert (row["few"], row["rows"]) == (few.numel(), many.numel()) == (28, 20)
        assert row["mean"] == pytest.approx(float(many.mean()), rel=1e-5)
        assert row["largest"] == pytest.approx(float(many.max()), rel=1e-5)
        assert row["mean_few"] == pytest.approx(float(few.mean()), rel=1e-5)
        assert row["largest_few"] == pytest.approx(float(few.max()), rel=1e-5)
        assert row["query"] >= 7
    show_record(record, 3)
    assert "224 rows see fewer than 8 keys" in " ".join(capsys.readouterr().out.split())
    record.save(tmp_path / "a.json")
    again = audit.Record.load(tmp_path / "a.json")
    assert again.heads == record.heads
    assert again.to_dict() == record.to_dict()
    short = audit.run(model, [{"input_ids": batch(tokens=7)}], epsilons=[])
    assert [(row["rows"], row["few"]) for row in short.heads] == [(28, 0)] * 8
    assert "All rows see fewer than 8 keys" in " ".join(audit.coverage_sentences(short))
    audit.write_report(record, tmp_path / "a.html")


@pytest.mark.parametrize("queries", [0, -1, 1.5, "many", "", True])
def test_bad_numbers_of_queries(queries):
    with pytest.raises((ValueError, TypeError), match="queries"):
        audit.Settings(queries=queries)


def hard_rows(seed=0):
    """Rows near one-hot, ties, uniform ones and spread ones, with masks."""
    rng = np.random.default_rng(seed)
    rows = [rng.standard_normal(40) * scale for scale in (0.01, 1, 5, 30, 100) for _ in range(20)]
    for gap in (0.0, 1e-6, 0.5, 5, 18, 40, 79, 81, 200):
        rows += [
            np.r_[gap, np.zeros(39)],
            np.r_[gap, gap, np.zeros(38)],
            np.r_[gap, np.full(39, -2.0)],
        ]
    rows += [np.r_[math.log(39) + shift, np.zeros(39)] for shift in (-1e-5, 0, 1e-7, 1e-5)]
    found = np.array(rows)
    found[::3, 5:9] = -math.inf
    return torch.from_numpy(found.astype(np.float32))


@pytest.mark.parametrize("seed", range(5))
def test_a_first_look_is_above_the_constants_and_close(seed):
    scores = hard_rows(seed)
    rows = models.AttentionRows(
        models.WrittenScores(scores), (1, 1, len(scores)), np.zeros(1, dtype=int),
        np.arange(len(scores))[None, None],
    )  # fmt: skip
    quick = models.measure_rows(rows, [4.0], quick=True)
    exact = models.measure_rows(rows, [4.0])
    one, two = taut.local_lipschitz(scores.double(), p=(1, 2))
    assert (quick.values["two"][0, 0] >= two.upper.numpy()).all()
    assert (quick.values["one"][0, 0] >= one.upper.numpy()).all()
    assert (quick.values["l4"] >= exact.values["l4"] * (1 - 1e-12)).all()
    assert (quick.values["one"] <= exact.values["one"] * (1 + 1e-4) + 1e-30).all()
    assert (quick.values["two"] / 2 <= exact.values["two"] * (1 + 1e-4) + 1e-30).all()
    for name in ("entropy", "top", "first", "range", "score"):
        np.testing.assert_array_equal(quick.values[name], exact.values[name])


@pytest.mark.parametrize("top", [3e8, 6e8, 1e9, -8950.0])
@pytest.mark.parametrize("gap", [48, 64, 79.9, 80, 80.1])
def test_a_first_look_is_above_the_constants_of_extreme_scores(top, gap):
    """Where a number of 80 less is rounded, or is taken for a mask."""
    scores = torch.full((1, 12), top - gap, dtype=torch.float32)
    scores[0, 3] = top
    rows = models.AttentionRows(
        models.WrittenScores(scores), (1, 1, 1), np.zeros(1, dtype=int), np.zeros((1, 1, 1), int)
    )
    quick = models.measure_rows(rows, quick=True)
    one, two = taut.local_lipschitz(scores.double(), p=(1, 2))
    assert quick.values["one"].item() >= one.upper.item() > 0
    assert quick.values["two"].item() >= two.upper.item() > 0


def test_a_first_look_says_so(capsys):
    from taut.cli.record_table import show_record

    model, inputs = tiny("gpt2")
    record = audit.run(model, [inputs], quick=True)
    exact = audit.run(model, [inputs])
    kinds = {name: column.kind for name, column in record.columns.items()}
    assert kinds["mean"] == kinds["largest"] == kinds["mean_1"] == kinds["near"] == "upper"
    assert kinds["entropy"] == "exact"
    assert record.to_dict()["kinds"]["rows"]["two"] == "upper"
    for mine, theirs in zip(record.heads, exact.heads, strict=True):
        assert theirs["mean"] <= mine["mean"] <= 2 * theirs["mean"] * (1 + 1e-4)
    show_record(record, 3)
    said = capsys.readouterr().out
    assert "A first look" in said
    assert "(upper), l4 at most" in said
    assert "(exact)" not in said
    (against_p,) = [figure for figure in curves(record) if "exponent" in figure.title]
    assert against_p.meaning == "All rows: upper bounds for 1, 2, 4, ∞."


def test_a_first_look_says_so_batch_by_batch():
    """Bounds are never kept under the name of constants, and never mixed with them."""
    model, inputs = tiny("gpt2")
    auditor = audit.Auditor(model, quick=True, epsilons=[])
    auditor.add(inputs)
    assert auditor.record.quick
    assert auditor.record.columns["mean"].kind == "upper"
    exact = audit.Auditor(model, epsilons=[])
    exact.add(inputs, first=2)
    assert exact.record.columns["mean"].kind == "exact"
    for mine, theirs in ((exact.record, auditor.record), (auditor.record, exact.record)):
        with pytest.raises(ValueError, match="first look"):
            mine.merge(theirs)
    with pytest.raises(ValueError, match="first look"):
        audit.Auditor(model, exact.record, quick=True)


def test_final_logits_of_a_sample_or_a_first_look_are_not_called_exact(capsys):
    from taut.cli.record_table import show_record

    model, _ = tiny("gpt2")
    inputs = {"input_ids": batch()}
    wanted = {"exact": {}, "upper": {"quick": True}, "sample": {"queries": 4}}
    for kind, options in wanted.items():
        show_record(audit.run(model, [inputs], logits=1.0, epsilons=[], **options), 3)
        printed = " ".join(capsys.readouterr().out.split())
        assert "rows: mean" in printed
        assert f"({kind})" in printed.partition("Final logits")[2].partition("With respect")[0]


def test_draws_of_the_final_logits_alone_are_told():
    """A model that gives more predictions than it has queries."""

    class Spread(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            y = self.attention(x, x, x, need_weights=False)[0]
            return y.repeat_interleave(3, dim=1)

    record = audit.run(Spread().eval(), [torch.randn(2, 9, 8)], queries=10, logits=1.0, epsilons=[])
    assert record.predictions["skipped"] == 34
    assert record.drawn
    assert record.columns["largest"].kind == "lower"


def test_a_first_look_is_called_exact_nowhere(tmp_path, capsys):
    from taut.cli.comparison_table import show_comparison
    from taut.cli.record_table import show_record

    model, _ = tiny("gpt2")
    record = audit.run(model, [{"input_ids": batch()}], quick=True, epsilons=[])
    show_record(record, 3)
    printed = " ".join(capsys.readouterr().out.split())
    (largest,) = [part for part in printed.split("Largest of ")[1:] if "l1 and linf" in part]
    assert largest.startswith("all rows with at least 8 keys: l1 and linf")
    assert "exact" not in largest.partition(", l4")[0]
    record.save(tmp_path / "a.json")
    show_comparison([tmp_path / "a.json"] * 2, 3, as_json=False)
    printed = capsys.readouterr().out
    assert "exact" not in printed
    assert "(upper)" in printed
    audit.write_report(record, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "constant in l2 (exact)" not in page
    assert "by their exact constant" not in page
    assert "exact for 1, 2" not in page
