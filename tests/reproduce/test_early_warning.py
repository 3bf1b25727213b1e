"""Early warning: alarms, their thresholds and leads; a small run of all of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch")

from taut.reproduce import Options, run
from taut.reproduce.early_warning import training
from taut.reproduce.early_warning.comparison import (
    SignalAlarm,
    WatchedRun,
    chosen_alarm,
    fixed_limits,
    grown_gradient,
    lead,
    mean_share,
    monitor_alarm,
)
from taut.reproduce.early_warning.faults import FAULTS, HEALTHY, Disturbance
from taut.reproduce.early_warning.rules import (
    RULES,
    AlarmRule,
    divergence,
    first_alarm,
    statistic,
    threshold,
)
from taut.reproduce.early_warning.signals import SIGNALS
from taut.reproduce.experiments import early_warning

UP, DOWN = (AlarmRule("level", upwards, 1) for upwards in (True, False))


@pytest.mark.parametrize(
    ("history", "after", "found"),
    [
        ([3, 2], [2.0, 2.1, 2.3, 2.4], 2),
        ([3, 2], [2.3, 2.4, 2.5], 0),
        ([3, 2], [2.3, 2.0, 2.1], None),  # a spike that came back
        ([3, 2], [2.3, 2.0, 2.3, 2.3], 2),  # came back once, then no more
        ([3, 2], [1.5, 1.8, 1.9], 1),  # the best so far counts, not that of the history
        ([3, 2], [2.0, math.nan, math.nan], 1),
        ([3, 2], [2.3, 2.05], None),
        ([3, 2], [], None),
    ],
)
def test_when_a_run_has_diverged(history, after, found):
    assert divergence(history, after, 0.15) == found


def test_thresholds_allow_so_many_false_alarms_and_not_one_more():
    source = np.random.default_rng(0)
    for allowed in range(4):
        peaks = source.normal(size=20).tolist()
        limit = threshold(peaks, allowed)
        assert sum(peak > limit for peak in peaks) == allowed
        below = np.nextafter(limit, -math.inf)
        assert sum(peak > below for peak in peaks) == allowed + 1
    assert threshold([1.0, 1.0, 0.0], 1) == 1.0  # of equals none is above
    with pytest.raises(ValueError, match="allowed must be"):
        threshold([1.0], 1)


def test_signals_are_compared_with_their_own_past_only():
    source = np.random.default_rng(1)
    values = source.normal(size=90).tolist()
    for rule in RULES:
        whole = statistic(values[:50], values[50:], rule)
        for many in (1, 7, 30):
            part = statistic(values[:50], values[50 : 50 + many], rule)
            assert np.array_equal(part, whole[:many])  # what comes later changes nothing


def test_statistics_of_rules():
    flat = [1.0, 3.0] * 25
    assert statistic(flat, [5.0, -5.0], UP).tolist() == [5, -5]
    assert statistic(flat, [5.0, -5.0], DOWN).tolist() == [-5, 5]
    change = statistic(flat, [4.0], AlarmRule("change since", True, 1))
    assert change == pytest.approx([1.0])  # twice the median of 2
    departure = statistic(flat, [4.0], AlarmRule("departure", True, 1))
    assert departure == pytest.approx([2 / (1.4826 + 2e-3)])
    single = statistic(flat, [3.0, 9.0, 3.0], AlarmRule("level", True, 3))
    assert single.tolist() == [3, 3, 3]  # one record alone does not move a median
    broken = [statistic(flat, [2.0, math.nan], rule)[1] for rule in RULES]
    assert broken == [math.inf] * len(RULES)
    assert first_alarm(np.array([0, 2, 3]), 1.0) == 1
    assert first_alarm(np.array([0, 1]), 1.0) is None


def watched(name, values, diverged=None, other=0.0):
    records = [{"loss": other, "entropy": value} for value in values]
    return WatchedRun(0, name, records[:1] * 50, records[1:], 5, diverged, [])


def test_leads_are_steps_before_the_divergence():
    late = watched("rate", [0] * 9, diverged=6)
    assert [lead(late, first) for first in (None, 0, 4, 6, 7)] == [0, 30, 10, 0, 0]
    early = watched("bad batches", [0] * 9, diverged=4)
    # Every fault counts alike: (mean of ½ and 0, then 1) / 2.
    assert mean_share([late, late, early], [3, None, 0]) == pytest.approx(0.625)
    at_once = watched("rate", [0] * 9, diverged=0)
    assert mean_share([at_once, early], [0, 2]) == 0.5


def test_the_rule_that_leaves_most_time_is_chosen():
    healthy = [watched("healthy", [0, 0, peak, 0, 0, 0]) for peak in (1, 2, 3)]
    rises = watched("rate", [0, 0, 2.5, 3.5, 9, 9], diverged=4)
    alarm = chosen_alarm("entropy", healthy, [rises], 1)
    assert alarm.rule.upwards
    assert alarm.false_alarms <= 1
    assert lead(rises, alarm.first(rises)) == 15  # of 2.5 already
    none = chosen_alarm("entropy", healthy, [rises], 0)
    assert lead(rises, none.first(rises)) == 10
    with pytest.raises(ValueError, match="need healthy runs"):
        chosen_alarm("entropy", [], [rises], 1)
    assert chosen_alarm("loss", healthy, [rises], 1).first(rises) is None  # it says nothing


def test_alarms_that_come_without_the_fault_do_not_count():
    alarm = SignalAlarm("entropy", UP, 1.0, 0)
    fault = watched("rate", [0, 0, 2, 2], diverged=3)
    assert alarm.first(fault) == 1
    for twin, found in (([0, 2, 0], None), ([2, 0, 0], None), ([0, 0, 2], 1), ([0, 0, 0], 1)):
        healthy = [{"entropy": value} for value in twin]
        assert alarm.first(fault._replace(twin=healthy)) == found


@pytest.mark.parametrize(
    ("score", "entropy", "found"),
    [
        ([9.0, 9.0], [2.0, 2.0], None),
        ([9.0, 65.0], [2.0, 2.0], 1),
        ([35.0, 9.0], [2.0, 2.0], None),
        ([9.0, 9.0], [2.0, 0.009], 1),
        ([9.0, 9.0], [0.19, 0.19], 1),
        ([math.nan, 9.0], [2.0, 2.0], 1),
    ],
)
def test_the_fixed_limits(score, entropy, found):
    first = {"head_score": [[9.0, 9.0]], "head_entropy": [[2.0, 2.0]]}
    now = {"head_score": [score], "head_entropy": [entropy]}
    assert fixed_limits(WatchedRun(0, "rate", [first] * 3, [first, now], 5, None, [])) == found


@pytest.mark.parametrize(
    ("norms", "found"),
    [
        ([1.0] * 6, None),
        ([1.0, 1.0, 2.0, 2.0, 2.0, 2.0], 3),
        ([9.0, 1.0, 1.0, 1.0, 1.0, 1.0], None),
    ],
)
def test_alarms_of_the_monitor(norms, found):
    calm = {"head_score": [[9.0]], "head_entropy": [[2.0]], "gradient_norm": 1.0}
    grown = [{**calm, "gradient_norm": norm} for norm in norms]
    run = WatchedRun(0, "rate", [calm] * 25, grown, 5, None, [])
    assert grown_gradient(run) == monitor_alarm(run) == found
    sharp = run._replace(after=[grown[0], {**grown[1], "head_entropy": [[0.001]]}, *grown[2:]])
    assert monitor_alarm(sharp) == 1
    assert grown_gradient(sharp) == found


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("to be or not to be, that is the question. " * 40, encoding="utf-8")
    return file


def test_the_experiment_resumes_and_makes_its_page(text, tmp_path, monkeypatch):
    options = Options(quick=True, data=(str(text),), folder=tmp_path)
    result = run("early-warning", options)
    leads, rules, runs = result.tables
    assert len(leads.rows) == len(SIGNALS) + len(early_warning.ALONE) + 1
    assert len(rules.rows) == len(SIGNALS)
    assert len(runs.rows) == len(HEALTHY | FAULTS)
    assert result.plots[0].names == [row[0] for row in reversed(rules.rows)]

    def untrained(*_):
        raise AssertionError("it was trained already")

    monkeypatch.setattr(early_warning, "train_family", untrained)
    assert run("early-warning", options).tables == result.tables
    with pytest.raises(ValueError, match="needs a text"):
        run("early-warning", Options(quick=True))


def test_faults_reach_the_training(text):
    """A healthy branch goes on as if nothing had been copied; each fault changes it."""
    from taut.reproduce.lipschitz.characters import Characters

    recipe = training.QUICK._replace(before=3, after=3)
    at_once = {name: how._replace(over=1) for name, how in FAULTS.items()}
    ways = {"healthy": Disturbance(""), "again": Disturbance(""), **at_once}
    found = training.train_family(3, recipe, ways, Characters.read(text), "")["branches"]
    assert found["healthy"] == found["again"]
    for name in FAULTS:
        assert found[name][-1]["held_out"] != found["healthy"][-1]["held_out"], name
