"""Bound: provenance, safe numbers, composition, printing."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

import taut
from taut import Bound
from taut._base.norm import lp


def upper(value, p=2, q=None):
    return Bound(0.0, value, "upper", lp(p, q), "here", ("softmax-lp",), rounding="proved")


def test_an_unknown_theorem_is_refused():
    with pytest.raises(KeyError, match="no theorem 'magic'"):
        Bound(0.0, 1.0, "upper", lp(2), "here", ("magic",), rounding="proved")


def test_value_only_when_exact():
    assert taut.global_lipschitz().value == 0.5
    with pytest.raises(TypeError, match=r"read \.upper for a guarantee"):
        upper(1.0).value  # noqa: B018
    with pytest.raises(TypeError, match=r"read \.upper"):
        float(upper(1.0))


def test_comparisons_answer_only_what_is_known():
    bracket = Bound(0.2, 0.3, "bracket", lp(3), "here", ("local-p-bracket",), rounding="proved")
    assert bracket < 0.31
    assert bracket <= 0.3
    assert bracket > 0.1
    assert not bracket > 0.3
    assert not bracket < 0.2
    with pytest.raises(ValueError, match="undecided"):
        assert bracket < 0.25
    with pytest.raises(TypeError, match="no truth value"):
        bool(bracket)


def test_nan_never_passes():
    with pytest.raises(ValueError, match="sides must be numbers"):
        upper(math.nan)
    with pytest.raises(ValueError, match="undecided"):
        assert taut.global_lipschitz() < math.nan


@pytest.mark.parametrize("batch", [False, True])
def test_no_side_is_nan_or_on_the_wrong_side(backend, batch):
    def array(value):
        return backend.array([0.5, value] if batch else value)

    good = array(0.5)
    for sides in (
        (array(math.nan), good),
        (good, array(math.nan)),
        (good, good, array(math.nan)),
        (array(-0.1), good),
        (good, array(0.4)),
        (0.0, array(math.nan)),
        (array(math.nan), math.inf),
    ):
        kind = "exact" if len(sides) == 3 else "bracket"
        with pytest.raises(ValueError, match="sides must be numbers with 0 <= lower <= upper"):
            Bound(*sides[:2], kind, lp(2), "here", (), *sides[2:], rounding="proved")
    for value in (math.nan, -1.0, -math.inf):
        with pytest.raises(ValueError, match="sides must be numbers"):
            taut.upper_bound(array(value))
    assert taut.upper_bound(array(math.inf)).shape == ((2,) if batch else ())


def test_a_constant_of_ones_own_is_rounded_up():
    for value in (Fraction(1, 3), 2**53 + 1, Fraction(1, 10**400), 10**400):
        assert taut.upper_bound(value).upper >= value
    assert taut.upper_bound([1, 2]).upper.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="cannot hold exactly"):
        taut.upper_bound(1.0) * Fraction(1, 3)
    with pytest.raises(TypeError, match="value must hold real numbers"):
        taut.upper_bound(np.array([1j]))


def test_a_batch_is_not_one_number():
    batch = taut.local_lipschitz(np.zeros((3, 2)))
    assert len(batch) == 3
    assert batch.shape == (3,)
    assert float(batch[0]) == 0.5
    with pytest.raises(TypeError, match="not one number"):
        float(batch)
    with pytest.raises(TypeError, match="element by element"):
        assert batch < 1
    with pytest.raises(TypeError, match="cannot be indexed"):
        taut.global_lipschitz()[0]


def test_max_is_the_worst_row():
    batch = taut.local_lipschitz([[0.0, 0.0], [3.0, 0.0]])
    worst = batch.max()
    assert worst.shape == ()
    assert float(worst) == 0.5
    assert "the worst of 2" in str(worst.domain)
    with pytest.raises(ValueError, match="it is empty"):
        taut.local_lipschitz(np.zeros((0, 2))).max()


def test_chain_multiplies_and_rounds_up():
    total = taut.chain(upper(0.1), upper(0.2), upper(0.3))
    assert Fraction(total.upper) >= Fraction(0.1) * Fraction(0.2) * Fraction(0.3)
    assert total.upper == pytest.approx(0.006, rel=1e-12)
    assert total.kind == "upper"
    assert total.lower == 0
    mixed = taut.chain(upper(1.0, math.inf, 1), upper(2.0, 1, 2))
    assert str(mixed.norm) == "linf->l2"
    with pytest.raises(ValueError, match="cannot chain a bound into l1 with one from l2"):
        taut.chain(upper(1.0, math.inf, 1), upper(1.0, 2))


def test_add_and_heads():
    assert taut.add(upper(1.0), upper(2.0)).upper == pytest.approx(3.0)
    assert taut.add(upper(1.0), upper(2.0)).upper >= 3.0
    assert taut.heads(upper(3.0), upper(4.0)).upper == pytest.approx(5.0)
    assert taut.heads(upper(3.0), upper(4.0)).upper >= 5.0
    with pytest.raises(ValueError, match="share one norm"):
        taut.add(upper(1.0), upper(1.0, 1))
    with pytest.raises(ValueError, match="in l2 only"):
        taut.heads(upper(1.0, 1), upper(1.0, 1))


def test_a_measured_value_bounds_nothing():
    measured = taut.empirical_lipschitz([0.0, 1.0])
    with pytest.raises(ValueError, match="a measured lower bound"):
        taut.chain(measured, upper(1.0))
    with pytest.raises(TypeError, match="takes bounds"):
        taut.add(0.5)
    with pytest.raises(ValueError, match="at least one"):
        taut.chain()


def test_composition_is_sound_for_a_real_chain():
    """softmax after a linear map after a softmax, against sampled ratios."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((4, 4))
    linear = Bound(
        0.0, float(np.linalg.norm(A, 2)) * (1 + 1e-12), "upper", lp(2), "R^4", (), rounding="proved"
    )
    total = taut.chain(taut.global_lipschitz(), linear, taut.global_lipschitz())
    x, y = rng.standard_normal((2, 500, 4))

    def f(v):
        return taut.softmax(taut.softmax(v) @ A.T)

    ratios = np.linalg.norm(f(x) - f(y), axis=-1) / np.linalg.norm(x - y, axis=-1)
    assert ratios.max() <= total.upper


def test_scaling():
    doubled = 2 * taut.global_lipschitz()
    assert doubled.upper >= 1.0
    assert float(doubled) == 1.0
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="finite number >= 0"):
            taut.global_lipschitz() * bad


def test_composition_works_on_batches_of_every_backend(backend):
    batch = taut.local_lipschitz(backend.array(np.zeros((3, 2))))
    total = taut.chain(batch, batch)
    assert np.all(backend.numpy(total.upper) >= 0.25)
    assert np.all(backend.numpy(taut.heads(batch, batch).upper) < 0.70711)


def test_print_rounds_outward():
    bracket = Bound(
        0.12345678, 0.12345678, "bracket", lp(3), "here", ("local-p-bracket",), rounding="proved"
    )
    assert repr(bracket) == "Bound(between 0.123456 and 0.123457, l3, here; local-p-bracket)"
    assert "at most 0.123457" in repr(upper(0.1234561))
    assert "shape (3,)" in repr(taut.local_lipschitz(np.zeros((3, 2))))
    assert "shape (0,)" in repr(taut.local_lipschitz(np.zeros((0, 2))))


def test_an_estimated_rounding_is_said():
    proved = upper(1.0)
    guess = Bound(0.0, 1.0, "upper", lp(2), "here", "softmax-lp", rounding="estimated")
    assert proved.rounding == "proved"
    assert "rounding" not in repr(proved)
    assert repr(guess) == "Bound(at most 1, l2, here; softmax-lp; rounding estimated)"
    assert "estimated" in guess._repr_html_()
    assert pickle.loads(pickle.dumps(guess)).rounding == "estimated"
    assert (2 * guess).rounding == "estimated"
    with pytest.raises(ValueError, match="rounding must be"):
        Bound(0.0, 1.0, "upper", lp(2), "here", "softmax-lp", rounding="hoped")  # type: ignore[arg-type]


@pytest.mark.parametrize("compose", [taut.chain, taut.add, taut.heads])
def test_one_estimated_part_makes_the_whole_estimated(compose):
    guess = Bound(0.0, 1.0, "upper", lp(2), "here", "softmax-lp", rounding="estimated")
    assert compose(upper(1.0), upper(2.0)).rounding == "proved"
    assert compose(upper(1.0), guess, upper(2.0)).rounding == "estimated"


def test_notebook_display_is_escaped():
    nasty = Bound(0.0, 1.0, "upper", lp(2), "<script>", ("softmax-lp",), rounding="proved")
    assert "<script>" not in nasty._repr_html_()
    assert "&lt;script&gt;" in nasty._repr_html_()


def test_bounds_are_frozen():
    with pytest.raises(AttributeError, match="cannot be changed"):
        taut.global_lipschitz().upper = 0.1


def test_bounds_can_be_copied_and_pickled():
    bound = taut.local_lipschitz(np.zeros((3, 2)))
    for twin in (copy.copy(bound), copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        np.testing.assert_array_equal(twin.upper, bound.upper)
        assert repr(twin) == repr(bound)


def test_only_lipschitz_constants_compose():
    for other in (
        taut.step_bound([1.0, -1.0], p=2),
        taut.regularity(1.0).cocoercive,
        taut.entropy_floor(8, logit_norm=2.0),
    ):
        with pytest.raises(ValueError, match="composes Lipschitz constants"):
            taut.chain(upper(1.0), other)
    assert repr(taut.step_bound([1.0, -1.0], p=2)).startswith("Bound(change at most")


def test_norms_are_the_same_only_if_they_are():
    with pytest.raises(ValueError, match="cannot chain"):
        taut.chain(taut.global_lipschitz(2), taut.global_lipschitz(2.0000001))


def test_bounds_do_not_multiply_or_turn_into_arrays():
    b = taut.global_lipschitz()
    with pytest.raises(TypeError, match=r"taut\.chain"):
        b * b
    with pytest.raises(TypeError):
        b * "2"
    with pytest.raises(TypeError):
        np.ones(3) * b
    with pytest.raises(TypeError, match=r"read \.upper"):
        np.asarray(b)


def test_comparison_with_anything_else_is_an_error(jax):
    b = taut.global_lipschitz()
    for other in ("a", None, np.ones(2), b):
        with pytest.raises(TypeError, match="compares with one real number"):
            assert b < other
    with pytest.raises(TypeError, match="while it is traced"):
        jax.jit(lambda x: taut.local_lipschitz(x) < 0.5)(jax.numpy.zeros(2))


def test_overflow_stays_sound():
    huge = taut.global_lipschitz() * 1e308 * 1e10
    assert huge.upper == math.inf
    assert huge.lower == 0
    assert taut.chain(taut.upper_bound(math.inf), taut.upper_bound(0.0)).upper == math.inf
    wide = taut.local_lipschitz(np.float32([2, 1, 0])) * 1e39
    assert wide.upper == math.inf
    assert taut.global_lipschitz(scale=5e-324).upper > 0


@pytest.mark.parametrize(
    "bad", [{"kind": "sure"}, {"norm": "l2"}, {"lower": 2.0}, {"rounding": "hoped"}]
)
def test_malformed_bounds_are_refused(bad):
    fields = {
        "lower": 0.0,
        "upper": 1.0,
        "kind": "upper",
        "norm": lp(2),
        "domain": "",
        "theorem": (),
        "rounding": "proved",
    }
    with pytest.raises((TypeError, ValueError), match="must be"):
        Bound(**{**fields, **bad})


def test_tiny_constants_do_not_vanish(backend):
    """XLA flushes subnormal numbers to 0; an upper side may not follow."""
    x = backend.array([90.0, 0.0, 0.0], "float32")
    for pair in ((3, 3), (1, 3), (1, math.inf), (3, math.inf)):
        assert float(backend.numpy(taut.local_lipschitz(x, *pair).upper)) > 1e-39
    small = taut.local_lipschitz(backend.array([60.0, 0.0], "float32"))
    true = float(taut.local_lipschitz([60.0, 0.0]))
    heads = float(backend.numpy(taut.heads(small, small).upper))
    assert math.sqrt(2) * true <= heads <= 1.5 * true
    assert float(backend.numpy((small * 1e-15).upper)) > true * 1e-15
    assert float(backend.numpy(taut.step_bound(backend.array([1e-39, 0], "float32")).upper)) > 0
