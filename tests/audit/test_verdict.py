"""The verdict and the reference values: words and numbers follow from the record."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from taut import audit  # noqa: E402
from taut.audit.reference import FILE, reference_size, share_below  # noqa: E402
from taut.audit.verdict import mean_of_heads  # noqa: E402
from tests.audit.test_findings import calm, made  # noqa: E402


def at(mean, **changes):
    """A record whose heads all have this mean constant."""
    record = calm()
    for layer in record.layers:
        layer.state.sums["two"] = mean * layer.state.counts["rows"].astype(float)
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def test_the_words_follow_the_place_among_reference_heads():
    means = sorted(m for model in audit.reference_models() if model.trained for m in model.mean)
    low, middle, high = np.quantile(means, (0.1, 0.5, 0.9))
    assert audit.verdict(at(low)).startswith("Calm: ")
    assert audit.verdict(at(middle)).startswith("As sensitive as usual: ")
    assert audit.verdict(at(high)).startswith("Sharp: ")
    assert f"{high:.3f}" in audit.verdict(at(high))
    assert mean_of_heads(at(0.2)) == pytest.approx(0.2)
    share = sum(m < middle for m in means) / len(means)
    assert share_below(middle) == pytest.approx(share)
    assert f"higher than {share:.0%} of the {len(means)} heads" in audit.verdict(at(middle))


def test_what_stands_out_is_counted():
    record = at(0.08)
    assert audit.verdict(record).endswith("Nothing stands out.")
    state = record.layers[2].state
    state.sums["evenness"][0] = 0.99 * state.counts["rows"][0]
    (found,) = audit.findings(record)
    assert (found.kind, found.text.startswith("One of 10 heads weighs")) == ("uniform", True)
    assert audit.verdict(record).endswith("Nothing grave stands out.")  # what a head does
    state.sums["two"][1] = 0.3 * state.counts["rows"][1]
    assert audit.verdict(record).endswith("1 of 10 heads stands out.")
    record.missed = [("a", "b c")]
    assert "Some attention could not be seen, and 1 of 10 heads" in audit.verdict(record)
    state.counts["broken"][0] = 3
    assert "some scores are NaN or infinite" in audit.verdict(record)


def test_a_first_look_is_not_compared():
    record = at(0.2)
    record.settings = {**record.settings, "quick": True}
    text = audit.verdict(record)
    assert "A first look" in text
    assert "higher than" not in text


def test_the_reference_is_small_and_says_what_it_is():
    assert FILE.stat().st_size < 40_000
    models = audit.reference_models()
    assert json.loads(FILE.read_text("utf-8"))["models"][0]["name"] == models[0].name
    heads, trained = reference_size()
    assert trained == sum(model.kind != "random" for model in models) >= 5
    assert heads == sum(len(model.mean) for model in models if model.trained)
    for model in models:
        assert model.data
        assert model.rows > 1000
        assert len(model.mean) == len(model.evenness) == len(model.top)
        assert 0 <= model.mean[0] <= model.mean[-1] <= 0.5
        assert list(model.mean) == sorted(model.mean)


def test_the_terminal_begins_with_it(capsys):
    from taut.cli.record_table import show_record

    record = made(layers=1)
    show_record(record, 3)
    assert capsys.readouterr().out.splitlines()[1] == audit.verdict(record)
