"""The state of a layer as JSON holds it, and back again with everything checked."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from taut.audit.record_checks import count, finite, integers, numbers, part
from taut.audit.statistics.exact_sum import check_rests
from taut.audit.statistics.head_state import HeadState, row_numbers
from taut.audit.statistics.profile import Profile
from taut.audit.statistics.statistic import Array
from taut.audit.statistics.worst_row import WorstRow
from taut.models import constant_key


def state_to_dict(state: HeadState) -> dict[str, Any]:
    """Plain numbers for JSON; a maximum of nothing is null, and so is NaN."""
    return {
        "heads": state.heads,
        "norms": list(state.norms),
        "threshold": state.threshold,
        "theta": state.theta,
        "counts": _lists(state.counts),
        "sums": {name: finite(value) for name, value in state.sums.items()},
        "rests": {name: [finite(v) for v in rests] for name, rests in state.rests.items()},
        "maxima": {name: finite(value) for name, value in state.maxima.items()},
        "places": _lists(state.places),
        "histograms": _lists(state.histograms),
        "affinity": finite(state.affinity),
        "profiles": {name: profile.to_dict() for name, profile in state.profiles.items()},
        "worst": [None if row is None else row.to_dict() for row in state.worst],
    }


def state_from_dict(data: dict[str, Any]) -> HeadState:
    """The state that :func:`state_to_dict` wrote; a ValueError says what is wrong with the data."""
    what = "a layer"
    heads = count(data, "heads", what, least=1)
    rows = part(part(data, "counts", dict, what), "rows", list, "counts")
    norms = part(data, "norms", list, what)
    theta: bool = part(data, "theta", bool, what)
    fixed = row_numbers((), theta=theta)
    usual = [number for number in fixed.values() if number.end is not None]
    if len(rows) != heads or len(part(data, "histograms", dict, what)) > len(norms) + len(usual):
        raise ValueError(f"{what} says it has {heads} heads and holds those of {len(rows)}")
    if not all(type(p) in (int, float) and 1 <= p < math.inf for p in norms):
        raise ValueError("the norms of a layer must be numbers of at least 1")
    names = {constant_key(p) for p in norms}
    known = names <= set(data["histograms"]) and not names & set(fixed)
    if len(names) < len(norms) or not known:
        raise ValueError("the norms of a layer do not match the numbers stored for it")
    threshold = float(numbers([data.get("threshold")], (1,), "threshold")[0])
    state = HeadState(heads, norms, threshold, theta=theta)  # as large as what the file holds
    _fill(state.counts, data, "counts", integers)
    _fill(state.histograms, data, "histograms", integers)
    _fill(state.places, data, "places", partial(integers, least=-1))
    _fill(state.sums, data, "sums", numbers)
    _fill_rests(state, part(data, "rests", dict, what))
    _fill(state.maxima, data, "maxima", partial(numbers, missing=-np.inf))
    state.affinity = numbers(data.get("affinity"), (heads,), "affinity", np.inf)
    profiles = part(data, "profiles", dict, what)
    for name in state.profiles:
        state.profiles[name] = Profile.from_dict(profiles.get(name), heads)
    worst = part(data, "worst", list, what)
    if len(worst) != heads:
        raise ValueError(f"{what} has {heads} heads and {len(worst)} worst rows")
    state.worst = [None if row is None else WorstRow.from_dict(row) for row in worst]
    _check_consistent(state)
    return state


def _check_consistent(state: HeadState) -> None:
    """Raise an error where numbers cannot be those of one audit."""
    for name, histogram in state.histograms.items():
        if (histogram.sum(axis=1) != state.counts["rows"]).any():
            raise ValueError(f"the histogram {name!r} does not count the rows that there are")
    for name, profile in state.profiles.items():
        if (profile.counts.sum(axis=1) != state.counts["rows"]).any():
            raise ValueError(f"the profile {name!r} does not count the rows that there are")
    if (state.counts["above"] > state.counts["rows"]).any():
        raise ValueError("more rows are above the threshold than there are")
    for name, end in state.tops.items():
        if name in state.maxima and (state.maxima[name] > end).any():
            raise ValueError(f"the largest {name!r} is above {end:g}, which nothing exceeds")
    seen = state.counts["rows"] > 0
    if any((value[seen] == -np.inf).any() for value in state.maxima.values()):
        raise ValueError("a head has rows, but no largest one among them")


def _fill(kept: dict[str, Array], data: dict[str, Any], name: str, read: Any) -> None:
    given = part(data, name, dict, "a layer")
    for key, old in kept.items():
        kept[key] = read(given.get(key), old.shape, f"{key!r} of {name!r}")


def _fill_rests(state: HeadState, given: dict[str, Any]) -> None:
    for key, total in state.sums.items():
        name = f"{key!r} of 'rests'"
        state.rests[key] = [numbers(r, total.shape, name) for r in part(given, key, list, "rests")]
        check_rests(total, state.rests[key], repr(key))


def _lists(arrays: dict[str, Array]) -> dict[str, Any]:
    return {name: value.tolist() for name, value in arrays.items()}
