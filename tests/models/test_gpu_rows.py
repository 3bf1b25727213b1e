"""The Triton kernel for rows of attention, under Triton's interpreter: no GPU was at hand."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import taut  # noqa: E402
from taut.models._gpu_rows import gpu_rows  # noqa: E402
from taut.models._gpu_rows.agreement import (  # noqa: E402
    EPS,
    Example,
    difference,
    disagreement,
    hard_rows,
    score_error,
)
from taut.models._gpu_rows.gpu_rows import last_keys, row_numbers  # noqa: E402
from taut.models._gpu_rows.portable_rows import portable_rows  # noqa: E402
from tests.helpers.interpreted_rows import interpreter, kernel_rows  # noqa: E402
from tests.helpers.places import ROOT  # noqa: E402

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
CPU = torch.device("cpu")
HIDDEN = taut.models.HIDDEN


@pytest.fixture(scope="module")
def interpreted():
    with interpreter() as call:
        yield call


def families(n: int, seed: int) -> torch.Tensor:
    """128 hard rows of n scores, which float32 holds exactly."""
    draw = np.random.default_rng(seed)
    noise = draw.standard_normal((128, n))
    rows = noise * np.logspace(-4, 2.5, 128)[:, None]
    top, other = draw.integers(n, size=(2, 128))
    every = np.arange(128)
    rows[0:8] = draw.choice([0.0, 3.0, -1e4, 7e3], (8, 1))  # uniform
    rows[8:16, :] = np.round(noise[8:16])  # ties everywhere
    best = rows[16:32].max(axis=1)
    rows[every[16:32], other[16:32]] = best  # the largest twice
    rows[32:48] = noise[32:48] * 0.01  # one-hot, 1 − p₁ from 1e-2 to 1e-34
    rows[every[32:48], top[32:48]] = np.linspace(5, 80, 16)
    rows[48:56] = -27.6 - math.log(max(n, 2))  # 1 − p₁ of 1e-12
    rows[every[48:56], top[48:56]] = 0
    rows[56:72] = 0.0  # p₁ = ½ and a little more or less
    tiny = draw.choice([-1, 1], 16) * np.logspace(-7, -1, 16)
    rows[every[56:72], top[56:72]] = math.log(max(n - 1, 1)) + tiny
    rows[72:76] = np.sort(noise[72:76], axis=1) * 10  # the largest changes in every block
    rows[76:80] = -np.sort(-noise[76:80], axis=1) * 10
    rows[80:84] = noise[80:84] * np.logspace(-38, -20, 4)[:, None]
    rows[84:88] = np.abs(noise[84:88]) * np.logspace(4, 37, 4)[:, None]
    rows[116:] = noise[116:] * np.logspace(-0.5, 1, 12)[:, None]  # as models have them
    rows = rows.astype(np.float32)
    for i in range(88, 104):  # a runner-up that is one to a million units in the last place below
        best = rows[i].max()
        rows[i, top[i]] = best + abs(best) * np.float32(2.0 ** (i - 88 - 23))
    rows[104:112] = np.where(noise[104:112] > 0.5, rows[104:112], np.float32(-8.9e3))
    rows[112:116, 1:] = np.float32(-12.0)  # deep but many
    return torch.from_numpy(rows)


def as_example(rows: torch.Tensor) -> Example:
    """Queries that pick one column of the keys each, so that scores are computed exactly."""
    heads, n = 4, rows.shape[-1]
    width = len(rows) // heads
    key = rows.reshape(1, heads, width, n).transpose(-1, -2)  # strided: the kernel reads columns
    query = torch.eye(width).expand(1, heads, width, width)
    return Example(query, key, None, 1.0, torch.full((1, 1), n - 1), True)


def errors(found, value):
    """Errors in units of eps, absolutely for numbers that float32 flushes to 0."""
    return ((found - value).abs() / (EPS * value.abs()).clamp(min=2.0**-125)).max()


@needs_triton
@pytest.mark.parametrize(
    "n", [1, 2, 3, 5, 17, 63, 64, 65, 150, 333, 1000, pytest.param(5000, marks=pytest.mark.slow)]
)
def test_hard_rows(interpreted, n):
    for seed in range(3 if n < 400 else 1):
        rows = families(n, seed)
        example = as_example(rows)
        found = interpreted(kernel_rows, *example[:5])
        assert not difference(found, portable_rows(*example[:5]), score_error(example))
        visible = torch.where(rows > HIDDEN, rows, -torch.inf)
        blind = (visible == -torch.inf).all(dim=-1)
        one, two = taut.local_lipschitz(torch.where(blind[:, None], 0.0, visible), p=(1, 2))
        for name, bound in (("one", one), ("two", two)):
            value = torch.where(blind, 0.0, bound.value)  # compiled, float32
            assert not found[name].isnan().any()
            assert errors(found[name].reshape(-1), value) <= 4  # 1 was the most


@needs_triton
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [8, 40, 64, 80, 96, 130])
def test_widths_and_precisions(interpreted, width, dtype):
    generator = torch.Generator().manual_seed(width)
    query, key = (
        torch.randn(1, heads, tokens, width, generator=generator).to(getattr(torch, dtype))
        for heads, tokens in ((4, 21), (2, 100))
    )
    example = Example(query * 2, key, None, width**-0.5, torch.full((1, 1), 99), False)
    found = interpreted(kernel_rows, *example[:5])
    assert not difference(found, portable_rows(*example[:5]), score_error(example))
    assert all(value.shape == (1, 4, 21) for value in found.values())
    # Queries rounded to 11 bits, as in TF32, would not pass.
    worse = portable_rows(query.double() * (2 + 2.0**-11), *example[1:5])
    assert difference(found, worse, score_error(example))


def biases():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 2, 40, 90, generator=generator)
    lowest = torch.finfo(torch.float32).min
    hidden = torch.rand(2, 1, 1, 90, generator=generator) < 0.3
    yield "slopes", scores[:1, :, :1]
    yield "all axes", scores
    yield "transposed", torch.randn(90, 40, generator=generator).T
    yield "padding", torch.zeros(2, 1, 1, 90).masked_fill(hidden, -math.inf)
    yield "old custom", torch.zeros(2, 1, 1, 90).masked_fill(hidden, -1e4)
    yield "lowest", torch.zeros(2, 1, 1, 90).masked_fill(hidden, lowest)
    yield "seen", ~hidden
    yield "seen by queries", torch.rand(40, 90, generator=generator) < 0.05
    yield "half", scores.half()
    yield "one key", torch.full((90,), -math.inf).index_fill(0, torch.tensor([70]), 1.0)
    yield "no key", torch.full((), -math.inf)


@needs_triton
@pytest.mark.parametrize(("name", "bias"), [pytest.param(*pair, id=pair[0]) for pair in biases()])
def test_biases(interpreted, name, bias):
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(2, 40, 2, 24, generator=generator).transpose(1, 2)  # as models have it
    key = torch.randn(2, 90, 1, 24, generator=generator).transpose(1, 2)
    example = Example(query, key, bias, 0.5, torch.full((1, 1), 89), False)
    found = interpreted(kernel_rows, *example[:5])
    assert not difference(found, portable_rows(*example[:5]), score_error(example))
    if name in ("one key", "no key"):
        assert (found["seen"] == (name == "one key")).all()
        assert all((found[which] == 0).all() for which in ("one", "two", "log_sum", "mean"))


@needs_triton
@pytest.mark.parametrize("offset", [0, 30, -3, torch.tensor([0, 7])])
def test_causal_rows_of_sampled_queries(interpreted, offset):
    generator = torch.Generator().manual_seed(3)
    query, key = (torch.randn(2, 2, n, 16, generator=generator) for n in (12, 130))
    positions = torch.randperm(100, generator=generator)[:12]
    last = last_keys(query, key, offset, positions)
    found = interpreted(kernel_rows, query, key, None, 1.0, last)
    example = Example(query, key, None, 1.0, last, False)
    assert not difference(found, portable_rows(*example[:5]), score_error(example))
    wanted = (positions + torch.as_tensor(offset).reshape(-1, 1) + 1).clamp(0, 130)
    assert torch.equal(found["seen"], wanted[:, None].expand(2, 2, 12).float())
    assert torch.equal(last_keys(query, key, 5, None)[0], torch.arange(12) + 5)


@needs_triton
def test_broken_rows(interpreted):
    """NaN and +inf are seen wherever a query sees them, and nowhere else."""
    query, key = torch.ones(1, 1, 8, 16), torch.zeros(1, 1, 200, 16)
    key[0, 0, 150, 3], key[0, 0, 199, 0] = math.nan, math.inf
    last = torch.tensor([[0, 149, 150, 199, 120, 10, 198, 1]])
    found = interpreted(kernel_rows, query, key, None, 1.0, last)
    assert found["broken"].flatten().nonzero().flatten().tolist() == [2, 3, 6]
    for name, value in found.items():
        assert name == "broken" or torch.equal(value.isnan(), found["broken"])
    bias = torch.zeros(8, 200)
    bias[0, 5], bias[1, 5], bias[2, 5] = math.inf, math.nan, -math.inf
    found = interpreted(kernel_rows, query, key * 0.0, bias, 1.0, torch.full((1, 1), 149))
    assert found["broken"].flatten().nonzero().flatten().tolist() == [0, 1]


def tampered(change: str, rows=portable_rows):
    """A kernel that is wrong in one number by less than a reader would see."""

    def wrong(*inputs):
        found = rows(*inputs)
        if change == "broken":
            return {**found, "broken": torch.zeros_like(found["broken"])}
        return {**found, change: found[change] * (1 + 2.0**-12) + (change in ("seen", "leader"))}

    return wrong


@pytest.mark.parametrize(
    "change",
    ["top", "lowest", "seen", "log_sum", "mean", "first", "leader", "one", "two", "broken"],
)
def test_the_check_can_fail(change):
    assert not disagreement(portable_rows, CPU, torch.float32)
    assert disagreement(tampered(change), CPU, torch.float32)


def test_tails_found_by_subtraction_are_noticed():
    def wrong(*inputs):
        found = {name: value.float() for name, value in portable_rows(*inputs).items()}
        weight = (-found["log_sum"]).exp()
        return {**found, "one": 2 * weight * (1 - weight), "broken": found["broken"] > 0}

    assert "one" in disagreement(wrong, CPU, torch.float32)


@needs_triton
@pytest.mark.parametrize("dtype", gpu_rows.DTYPES)
def test_self_check_accepts_the_kernel(interpreted, dtype):
    assert interpreted(checked, dtype) == ""


def checked(dtype):
    return disagreement(kernel_rows, CPU, dtype)


@needs_triton
def test_row_numbers(interpreted):
    """The whole way, with a device that is taken for a GPU."""
    query, key, bias, factor, last, _ = hard_rows(CPU, torch.float32)[1]
    found = interpreted(as_if_on_gpu, query, key, bias, factor, torch.tensor([0, 130]))
    exact = portable_rows(query, key, bias, factor, last)
    assert not difference(found, exact, score_error(hard_rows(CPU, torch.float32)[1]))


def as_if_on_gpu(*inputs):
    gpu_rows.on_gpu = lambda query: True
    return row_numbers(*inputs)


@pytest.fixture
def pretended(monkeypatch):
    """A machine with a GPU and triton, nothing checked yet, that counts calls of the kernel."""
    calls = []

    def use(rows):
        def counted(*inputs):
            calls.append(inputs)
            return rows(*inputs)

        monkeypatch.setattr(gpu_rows, "kernel", lambda: counted)
        return calls

    monkeypatch.setattr(gpu_rows, "on_gpu", lambda query: True)
    monkeypatch.setattr(gpu_rows, "_trusted", {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    return use


INPUTS = (torch.randn(1, 2, 3, 8), torch.randn(1, 1, 5, 8), None, 1.0)


def test_the_kernel_is_checked_once(pretended):
    calls = pretended(portable_rows)
    assert row_numbers(*INPUTS)["one"].shape == (1, 2, 3)
    first = len(calls)
    assert first == len(hard_rows(CPU, torch.float32)) + 1
    row_numbers(*INPUTS)
    assert len(calls) == first + 1
    row_numbers(INPUTS[0].half(), INPUTS[1].half(), None, 1.0)  # checked for itself
    assert len(calls) == 2 * first + 1


def raising(*inputs):
    raise RuntimeError("no such instruction")


@pytest.mark.parametrize(("rows", "why"), [(tampered("two"), "two is"), (raising, "no such inst")])
def test_a_wrong_kernel_is_left_with_one_warning(pretended, rows, why):
    calls = pretended(rows)
    with pytest.warns(RuntimeWarning, match=why):
        assert row_numbers(*INPUTS) is None
    tried = len(calls)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert row_numbers(*INPUTS) is None
    assert len(calls) == tried


def test_a_kernel_that_fails_later_is_left(pretended):
    pretended(lambda *inputs: raising() if inputs[0].shape[-1] == 8 else portable_rows(*inputs))
    with pytest.warns(RuntimeWarning, match="no such instruction"):
        assert row_numbers(*INPUTS) is None
    assert row_numbers(*INPUTS) is None


def test_where_there_is_no_kernel(pretended, monkeypatch):
    calls = pretended(portable_rows)
    double = [x.double() if isinstance(x, torch.Tensor) else x for x in INPUTS]
    assert row_numbers(*double) is None  # not in float32, which would lose digits
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert row_numbers(*INPUTS) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(gpu_rows, "on_gpu", lambda query: False)
    assert row_numbers(*INPUTS) is None
    assert not calls


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"query": torch.zeros(2, 3, 4)}, "four axes"),
        ({"key": torch.zeros(1, 1, 5, 9)}, "same batch and width"),
        ({"query": torch.zeros(1, 3, 3, 8), "key": torch.zeros(1, 2, 5, 8)}, "a multiple of"),
        ({"bias": torch.zeros(4, 5)}, "broadcastable to"),
        ({"causal_offset": 0, "positions": torch.arange(2)}, "positions must be"),
    ],
)
def test_errors_say_what_is_wrong(change, words):
    inputs = dict(zip(("query", "key", "bias", "factor"), INPUTS, strict=True))
    with pytest.raises(ValueError, match=words):
        row_numbers(**(inputs | change))


SMALL = {"width": 24, "chunk": 16, "rows": 16, "columns": 32}  # compiles in seconds
USUAL = {"width": 80, "chunk": 32, "rows": 32, "columns": 64}


@needs_triton
@pytest.mark.parametrize(
    ("dtype", "bias", "capability", "sizes"),
    [
        ("fp32", 0, 80, SMALL),
        pytest.param("fp32", 0, 80, USUAL, marks=pytest.mark.slow),
        pytest.param("bf16", 1, 90, USUAL, marks=pytest.mark.slow),
        pytest.param("fp16", 2, 75, USUAL, marks=pytest.mark.slow),
    ],
)
def test_the_kernel_compiles_for_gpus(tmp_path, dtype, bias, capability, sizes):
    """Compiled without a GPU and without the interpreter: sums in float32, never TF32."""
    code = (
        "from tests.helpers.interpreted_rows import compiled_kernel; "
        f"print(compiled_kernel({dtype!r}, {bias}, {capability}, **{sizes}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=600,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "fma.rn.f32" in done.stdout
    assert "tf32" not in done.stdout
    # Nothing but the products is fused, so that elements are rounded as the interpreter does.
    padded = -(-sizes["width"] // sizes["chunk"]) * sizes["chunk"]
    scores = sizes["rows"] * sizes["columns"] // 256  # of a thread, computed in two passes
    products = 2 * scores * padded
    assert done.stdout.count("fma.rn.f32") <= products
