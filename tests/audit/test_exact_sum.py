"""Sums are the same in any order, and together with their rests they are exact."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

pytest.importorskip("torch")
from taut.audit.statistics.exact_sum import check_rests, exact_sum

numbers = some.floats(-1e200, 1e200)


def exact(arrays, place):
    return sum((Fraction(float(array[place])) for array in arrays), Fraction(0))


@given(some.lists(some.tuples(numbers, numbers), min_size=1, max_size=9), some.integers(0, 99))
def test_any_order_and_any_grouping_give_the_same(pairs, seed):
    terms = [np.array(pair) for pair in pairs]
    total, rests = exact_sum(terms)
    for place in (0, 1):
        true = exact(terms, place)
        assert exact([total, *rests], place) == true
        assert total[place] == float(true)  # rounded once
    mixed = list(terms)
    random.Random(seed).shuffle(mixed)
    cut = seed % len(mixed)
    groups = [exact_sum(part) for part in (mixed[:cut], mixed[cut:]) if part]
    again = exact_sum([term for first, more in groups for term in (first, *more)])
    assert np.array_equal(again[0], total)
    assert [r.tolist() for r in again[1]] == [r.tolist() for r in rests]
    check_rests(total, rests, "these")


def test_plain_sums_do_depend_on_the_order():
    """Otherwise the tests of merged records would prove nothing."""
    values = np.random.default_rng(0).random(200).tolist()
    assert sum(values) != sum(values[::-1])
    (up, _), (down, _) = (
        exact_sum([np.array([v]) for v in each]) for each in (values, values[::-1])
    )
    assert up == down == math.fsum(values)


def test_what_is_no_number_and_what_is_too_large():
    huge = np.array([1.7e308, math.nan, math.inf])
    total, rests = exact_sum([huge, np.array([1.7e308, 1.0, -math.inf])])
    assert np.isnan(total).all()
    assert rests == []


@pytest.mark.parametrize(
    ("total", "rests"), [([1.0], [[1.0]]), ([1.0], [[0.0]]), ([1.0], [[1e-20], [1e-20]])]
)
def test_rests_that_are_none_are_noticed(total, rests):
    with pytest.raises(ValueError, match="rests of 'two' do not match"):
        check_rests(np.array(total), [np.array(rest) for rest in rests], "'two'")
