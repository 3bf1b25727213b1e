"""cap: whatever the spectrum, no singular value is above the limit afterwards."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch")
from taut.control import cap  # noqa: E402
from taut.control.constraints import capped_stack  # noqa: E402
from taut.control.constraints.polynomial_cap import polynomial_cap, reach  # noqa: E402
from taut.control.constraints.proved_norms import grams, proved_norms  # noqa: E402

METHODS = ("exact", "soft_cap", "hard_cap", "normalise")
SHAPES = ((1, 1), (5, 5), (12, 5), (5, 12), (1, 9), (40, 24), (70, 300))
LIMITS = (0.37, 1e-30, 1e30)
F64 = torch.float64


def spectra(k, generator):
    """Singular values that are hard to cap, the limit being 1."""
    draw = torch.rand(k, generator=generator, dtype=F64)
    one = torch.ones(k, dtype=F64)
    first = torch.eye(1, k, dtype=F64)[0]
    return {
        "clustered at the limit": one + 1e-6 * (draw - 0.5),
        "spread around the limit": 0.9 + 0.2 * draw,
        "all equal, just above": 1.01 * one,
        "all equal, far above": 7 * one,
        "one unit above": one + 2**-22,
        "at the limit": one,
        "rank one": 1.04 * first,
        "rank one, far above": 1e6 * first,
        "log-uniform": 10 ** (8 * draw - 6),
        "one step": 1.02 * draw,
        "one above, the rest small": 1e-3 * draw + 1.3 * first,
        "at the reach of the hard cap": draw * (1 + 1 / 16),
        "at the reach of the soft cap": 1.5 * draw,
        "zero": 0 * one,
    }


def matrices(shape, generator, dtype):
    """One matrix for each spectrum."""
    k = min(shape)
    found = []
    for values in spectra(k, generator).values():
        left, right = (
            torch.linalg.qr(torch.randn(n, k, generator=generator, dtype=F64))[0] for n in shape
        )
        found.append((left * values) @ right.mT)
    return torch.stack(found).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_above_the_limit(method, dtype):
    """3 seeds, each with its limit, × 7 shapes × 14 spectra: 2,352 matrices in all."""
    near = 0.0
    for seed, limit in enumerate(LIMITS):
        generator = torch.Generator().manual_seed(seed)
        for shape in SHAPES:
            stack = matrices(shape, generator, dtype)
            over = torch.linalg.svdvals(stack.double())[:, 0] > 1
            found = cap(limit * stack, limit, method=method)
            assert found.dtype == dtype
            largest = torch.linalg.svdvals(found.double() / limit)[:, 0]
            slack = 1e-14 if dtype == F64 else 0  # of the oracle
            assert float(largest.max()) <= 1 + slack
            assert float(largest[over].min()) > 0.94  # cut, not crushed
            near = max(near, float(largest.max()))
    assert near > 0.9999  # so it is tight: 0.999 times the limit is exceeded


def within(matrix, limit):
    """Whether all singular values are below the limit, in rational numbers."""
    w = [[Fraction(x) for x in row] for row in matrix.tolist()]
    n = len(w[0])
    a = [
        [(i == j) * Fraction(limit) ** 2 - sum(row[i] * row[j] for row in w) for j in range(n)]
        for i in range(n)
    ]
    for p in range(n):  # elimination: all pivots are positive
        if a[p][p] <= 0:
            return False
        for i in range(p + 1, n):
            share = a[i][p] / a[p][p]
            a[i] = [x - share * y for x, y in zip(a[i], a[p], strict=True)]
    return True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", METHODS)
def test_the_limit_holds_in_exact_arithmetic(method, dtype):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        for matrix in matrices((5, 4), generator, dtype):
            found = cap(matrix, 1.0, method=method)
            assert within(found, 1.0), (seed, matrix)


@pytest.mark.theorem("cap-polynomial", "holds")
@pytest.mark.theorem("cap-polynomial", "attained")
@pytest.mark.theorem("cap-polynomial", "falsifiable")
@pytest.mark.parametrize("k", [1, 8, 16, 32])
def test_the_polynomial_is_largest_at_the_end(k):
    generator = torch.Generator().manual_seed(0)
    for high in (1 + 1e-6, 1 + 0.3 / (2 * k), reach(k)):
        a = (high - 1) / high ** (2 * k + 1)
        sigma = torch.linspace(0, high, 20001, dtype=F64)
        image = sigma - a * sigma ** (2 * k + 1)
        assert float(image.diff().min()) > -1e-15  # the order is kept
        assert float(image[-1]) == pytest.approx(1.0, rel=1e-14)  # and 0.99 would be exceeded
        left, right = (
            torch.linalg.qr(torch.randn(9, 9, generator=generator, dtype=F64))[0] for _ in range(2)
        )
        values = torch.linspace(0.1, high, 9, dtype=F64)
        stack = ((left * values) @ right.mT)[None]
        gram = grams(stack)
        result, bound = polynomial_cap(stack, gram, proved_norms(gram, 1e-3), 1.0, F64, power=k)
        wanted = values - a * values ** (2 * k + 1)
        if high < reach(k):  # at the end, what rounding adds to Λ is out of reach
            found = torch.linalg.svdvals(result[0])
            assert torch.allclose(found, wanted.sort(descending=True)[0], rtol=0.02, atol=0)
            assert float(found[0]) <= bound[0] <= 1.0
        else:
            assert math.isnan(bound[0])  # refused, never claimed
    beyond = reach(k) * 1.01  # the domain matters: beyond it the polynomial exceeds the target
    a = (beyond - 1) / beyond ** (2 * k + 1)
    sigma = torch.linspace(0, beyond, 20001, dtype=F64)
    assert float((sigma - a * sigma ** (2 * k + 1)).max()) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_are_proved_and_near(dtype):
    generator = torch.Generator().manual_seed(1)
    for shape in ((6, 6), (40, 24), (600, 100)):
        stack = matrices(shape, generator, dtype)
        found = proved_norms(grams(stack), 1.0)
        exact = torch.linalg.svdvals(stack.double())[:, 0].numpy()
        assert (exact <= found * (1 + 1e-14)).all()
        over = exact > 1
        assert (found[over] <= 1.15 * exact[over]).all()
        assert (found[exact < 0.99] <= 1).all()


def test_what_each_method_does():
    values = torch.tensor([1.03, 0.9, 0.5, 0.1], dtype=F64)
    matrix = torch.diag(values)
    done = {method: cap(matrix, 1.0, method=method).diagonal() for method in METHODS}
    assert torch.allclose(done["exact"], values.clamp(max=1.0), atol=1e-5)
    assert torch.allclose(done["soft_cap"], values - 0.03 / 1.03**3 * values**3, atol=3e-3)
    assert torch.allclose(done["hard_cap"], values - 0.03 / 1.03**33 * values**33, atol=3e-3)
    assert torch.allclose(done["normalise"], values / 1.03, atol=3e-3)
    for method in METHODS:
        assert (done[method].diff() < 0).all()  # the order is kept


def test_what_is_within_stays_as_it_is():
    generator = torch.Generator().manual_seed(0)
    stack = matrices((20, 30), generator, torch.float32)
    norms = torch.linalg.svdvals(stack.double())[:, 0]
    for method in METHODS:
        found = cap(stack, 2.0, method=method)
        below = norms < 1.99
        assert torch.equal(found[below], stack[below])
        assert not torch.equal(found[~below], stack[~below])
        small = stack[below]
        assert cap(small, 2.0, method=method) is small


def test_a_stack_is_its_matrices(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    stack = matrices((20, 12), generator, F64)
    for method in METHODS:
        whole = cap(stack.reshape(2, -1, 20, 12), 1.0, method=method).reshape(stack.shape)
        with monkeypatch.context() as patch:
            patch.setattr(capped_stack, "AT_ONCE", 3 * 20 * 12)
            assert torch.allclose(cap(stack, 1.0, method=method), whole, atol=1e-13)
        for each, done in zip(stack, whole, strict=True):
            assert torch.allclose(cap(each, 1.0, method=method), done, atol=1e-3)


def test_limits_between_root_mean_squares():
    generator = torch.Generator().manual_seed(0)
    for shape in ((8, 32), (32, 8)):
        matrix = torch.randn(shape, generator=generator)
        for method in METHODS:
            found = cap(matrix, 0.7, method=method, norm="rms").double()
            gain = torch.linalg.svdvals(found)[0] * math.sqrt(shape[1] / shape[0])
            assert 0.6 < float(gain) <= 0.7


def test_single_precision_that_is_not_computed_as_such(monkeypatch):
    """With coarser products, as GPUs may use, everything is computed in double precision."""
    seen = []
    real = capped_stack.grams
    monkeypatch.setattr(capped_stack, "grams", lambda x: (seen.append(x.dtype), real(x))[1])
    matrix = 1.03 * torch.eye(4)
    cap(matrix, 1.0, method="soft_cap")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    found = cap(matrix, 1.0, method="soft_cap")
    assert seen == [torch.float32, torch.float64]
    assert found.dtype == torch.float32
    assert float(found[0, 0]) > 0.998
    assert float(found[0, 0]) <= 1.0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert float(cap(matrix, 1.0, method="soft_cap")[0, 0]) <= 1.0


def test_huge_and_tiny_numbers():
    for size in (1e-38, 1e38):
        matrix = torch.full((3, 4), size)
        for method in METHODS:
            for limit in (1e-30, 1.0, 1e30):
                found = cap(matrix, limit, method=method).double()
                assert float(torch.linalg.svdvals(found / limit)[0]) <= 1
    tiny = torch.full((3, 4), 1e-38)
    assert cap(tiny, 1e-30, method="soft_cap") is tiny


def test_what_cannot_be_capped_says_so():
    eye = torch.eye(3)
    with pytest.raises(ValueError, match="NaN"):
        cap(eye * math.nan, 1.0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        cap(eye / 0.0, 1.0, method="soft_cap")
    for half in (torch.float16, torch.bfloat16):
        with pytest.raises(TypeError, match="half precision"):
            cap(eye.to(half), 1.0)
    for limit in (0.0, -1.0, math.nan, math.inf, 1e-40):
        with pytest.raises(ValueError, match="limit"):
            cap(eye, limit)
    with pytest.raises(ValueError, match="method must be one of exact, soft_cap"):
        cap(eye, 1.0, method="softcap")
    with pytest.raises(ValueError, match="norm must be one of"):
        cap(eye, 1.0, norm="l1")
    with pytest.raises(TypeError, match="two dimensions"):
        cap(eye[0], 1.0)
    assert cap(eye[:0], 1.0).shape == (0, 3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1e100, 1e155, 1e250, 3e307])
@pytest.mark.parametrize("limit", [1e-30, 0.7, 1e30])
def test_numbers_whose_squares_overflow_are_cut_as_others(method, size, limit):
    generator = torch.Generator().manual_seed(0)
    for shape in ((6, 4), (4, 6), (5, 5)):
        matrix = size * (2 * torch.rand(*shape, generator=generator, dtype=F64) - 1)
        capped = cap(matrix, limit, method=method)
        values = torch.linalg.svdvals(capped)
        assert 0.99 * limit < float(values[0]) <= limit
        if method == "exact":  # all of them were far above the limit
            assert float(values[-1]) > 0.99 * limit
