"""Columns say what their numbers are, and a new statistic is one class and one line."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from taut._base.number_text import number_text

torch = pytest.importorskip("torch")
from taut import audit, theorems  # noqa: E402
from taut.audit.statistics import STATISTICS  # noqa: E402
from taut.audit.statistics.column import Column  # noqa: E402
from taut.audit.statistics.head_state import HeadState  # noqa: E402
from taut.audit.statistics.statistic import RowNumber, Statistic  # noqa: E402
from taut.models import RowMeasurements  # noqa: E402


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()


@pytest.fixture
def data():
    torch.manual_seed(1)
    return [3 * torch.randn(4, 6, 8)]


@given(some.floats(0, 1e6), some.sampled_from([".4f", ".3f", ".4g", ".1%", ".0f"]))
def test_bounds_are_rounded_to_their_safe_side(value, form):
    def shown(kind):
        text = number_text(value, form, kind)
        return float(text.rstrip("%")) / (100 if "%" in text else 1)

    assert shown("lower") <= value * (1 + 1e-15)
    assert shown("upper") >= value * (1 - 1e-15)
    unit = 10.0 ** (math.floor(math.log10(value)) - 3) if form == ".4g" and value else 0.0
    unit = unit or {".4f": 1e-4, ".3f": 1e-3, ".1%": 1e-3, ".0f": 1.0, ".4g": 1e-300}[form]
    assert shown("upper") - shown("lower") <= unit * 1.001


def test_every_number_is_labelled(model, data):
    record = audit.run(model, data, norms=[1, 2, 3, math.inf])
    (first, *_) = record.heads
    assert list(first) == list(record.columns)
    for name, column in record.columns.items():
        assert column.name == name
        assert name.endswith("_upper") == (column.kind == "upper")
        assert column.meaning
        assert not column.theorem or theorems.get(column.theorem)
    bounds = {name for name, column in record.columns.items() if column.kind == "upper"}
    assert bounds == {"q05_upper", "median_upper", "q95_upper", "mean_3_upper", "largest_3_upper",
                      "affinity_upper"}  # fmt: skip
    kinds = record.to_dict()["kinds"]
    assert set(kinds["rows"]) == {*record.layers[0].state.sums, *record.layers[0].state.maxima}
    assert kinds["rows"]["l3"] == kinds["affinity"] == kinds["grid"]["upper"] == "upper"
    assert kinds["grid"]["worst"] == kinds["grid"]["random"] == "lower"
    assert kinds["rows"]["two"] == kinds["rows"]["one"] == "exact"


def test_what_is_exact_and_what_is_above(model, data):
    """Against every row: exact columns are the numbers of the rows, upper ones not below them."""
    import taut

    record = audit.run(model, data, norms=[4])
    seen = []
    with torch.no_grad(), audit.capture(model, seen.append):
        model(data[0])
    for row in record.heads:
        scores = seen[0].scores[:, row["head"]].double()
        two = taut.local_lipschitz(scores).value.numpy().ravel()
        four = taut.local_lipschitz(scores, p=4).lower.numpy().ravel()
        assert row["mean"] == pytest.approx(two.mean(), rel=1e-5)
        assert row["largest"] == pytest.approx(two.max(), rel=1e-5)
        for name, share in (("q05", 0.05), ("median", 0.5), ("q95", 0.95)):
            exact = np.sort(two)[math.ceil(share * len(two)) - 1]
            assert exact - 1e-7 <= row[f"{name}_upper"] <= exact + 0.0025 + 1e-7
        assert row["mean_4_upper"] >= four.mean()
        assert row["largest_4_upper"] >= four.max()


def test_theta_is_measured_from_both_sides(model, data, tmp_path):
    """Against all signs of every row."""
    record = audit.run(model, data, theta=True, epsilons=[])
    plain = audit.run(model, data, epsilons=[])
    seen = []
    with torch.no_grad(), audit.capture(model, seen.append):
        model(data[0])
    signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0])] * 6).double()
    for row in record.heads:
        weights = torch.softmax(seen[0].scores[:, row["head"]].double(), dim=-1)
        truth = (1 - (weights @ signs.T).abs().amin(-1) ** 2).mean()
        assert row["theta"] <= truth + 1e-12
        assert truth <= row["theta_upper"] + 1e-12
        assert row["theta_upper"] - row["theta"] < 1e-6
    assert record.columns["theta"].kind == "lower"
    record.save(tmp_path / "a.json")
    again = audit.Record.load(tmp_path / "a.json")
    assert again.heads == record.heads
    assert again.layers[0].state.theta
    assert "theta" not in plain.columns
    plain.seen = [(9, 13)]
    with pytest.raises(ValueError, match="with θ and one without"):
        record.merge(plain)


def test_theta_of_masked_and_of_deep_keys():
    from taut.audit.statistics.theta import Theta
    from taut.models import ScoreBlock

    scores = torch.tensor([[0.0, 0.0, -math.inf, -math.inf], [0.0, -1e4, -1e4, -1e4]])
    block = ScoreBlock(scores, (slice(0, 1), slice(0, 1), slice(0, 2)))
    low, high = (number.measure(block) for number in Theta().numbers(()))
    assert low[0] == pytest.approx(1.0)
    assert high[0] == 1.0
    assert 0 <= low[1] <= high[1] < 1e-290
    empty = ScoreBlock(torch.zeros(0, 4), (slice(0, 1), slice(0, 1), slice(0, 0)))
    assert all(number.measure(empty).shape == (0,) for number in Theta().numbers(()))


class Smallest(Statistic):
    """An example: the smallest weight of a row."""

    def numbers(self, norms):
        yield RowNumber(
            "smallest", "exact", mean=True, end=1.0, measure=lambda rows: rows.weights.amin(-1)
        )

    def columns(self, state):
        column = Column("smallest", "exact", "smallest weight", "mean of the smallest weight")
        yield column, state.mean("smallest")


def test_a_new_statistic_is_kept_merged_saved_and_shown(model, data, monkeypatch, tmp_path):
    more = (*STATISTICS, Smallest())
    for module in ("taut.audit.statistics.head_state", "taut.audit.head_table"):
        monkeypatch.setattr(f"{module}.STATISTICS", more)
    record = audit.run(model, [data[0][:1], data[0][1:]], epsilons=[])
    seen = []
    with torch.no_grad(), audit.capture(model, seen.append):
        model(data[0])
    for row in record.heads:
        weights = torch.softmax(seen[0].scores[:, row["head"]], dim=-1)
        assert row["smallest"] == pytest.approx(float(weights.amin(-1).mean()), rel=1e-5)
    record.save(tmp_path / "a.json")
    assert audit.Record.load(tmp_path / "a.json").heads == record.heads
    audit.write_report(record, tmp_path / "a.html")
    assert "smallest weight (exact)" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("name", ["score", "range", "two", "entropy"])
def test_rows_that_are_not_numbers_are_broken_and_hide_no_others(name):
    """A NaN compares as false: without care, the maximum of its head and batch would be lost."""
    state = HeadState(2)
    shape = (1, 2, 3)
    values = {key: np.full(shape, 0.125) for key in (*state.numbers, "seen")}
    values["score"] = np.array([[[1.0, 9.0, 2.0], [3.0, 4.0, 5.0]]])
    values[name][0, 0, 0] = math.nan
    kept = np.ones(shape, dtype=bool)
    kept[0, 1, 2] = False
    broken = np.zeros(shape, dtype=bool)
    queries = np.broadcast_to(np.arange(3), shape)
    before = kept.copy(), broken.copy()
    measured = RowMeasurements(values, kept, broken, np.zeros(shape, dtype=bool))
    state.add(measured, np.array([7]), queries)
    assert state.counts["rows"].tolist() == [2, 2]
    assert state.counts["broken"].tolist() == [1, 0]
    assert state.counts["hidden"].tolist() == [0, 1]
    assert state.maxima["score"].tolist() == [9.0, 4.0]
    assert state.places["score"].tolist() == [[7, 1], [7, 1]]
    assert all(np.isfinite(total).all() for total in state.sums.values())
    assert all(total.sum() == 4 for total in state.histograms.values())
    np.testing.assert_array_equal((kept, broken), before)  # what was given stays as it was
