"""Constants in traced code of JAX: the numbers of the compiled kernel, and their derivatives."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import taut
from tests.helpers.hard_rows import hard_rows

INF = math.inf
SIDES = ("lower", "value", "upper")


@pytest.fixture
def wide(jax):
    with jax.enable_x64(True):
        yield jax


def logits(n, dtype, count=60):
    return hard_rows(n, count).astype(dtype)


def all_sides(x, scale=1.0):
    one, two = taut.local_lipschitz(x, (1, 2), scale=scale)
    return [getattr(bound, side) for bound in (one, two) for side in SIDES]


def as_xla_reads(sides):
    """Sides of the kernel for XLA, which reads subnormal numbers as 0."""
    normal = np.finfo(sides[0].dtype).smallest_normal
    for lower in (0, 3):
        sides[lower] = np.where(sides[lower] < normal, 0, sides[lower])
        sides[lower + 2] = np.maximum(sides[lower + 2], normal)
    return sides


def penalty(x, scale=1.0):
    """All sides of both constants in different weights, so that a mixed up line is seen."""
    return sum(2**i * side.sum() for i, side in enumerate(all_sides(x, scale)))


def by_formula(jax):
    """The same sum with the derivatives of the portable formula, and without the values."""
    from taut._softmax.derivatives import attach

    def function(x):
        zero = jax.numpy.zeros(x.shape[:-1], x.dtype)
        one, two = attach(zero, zero, x, 1.0)
        return (7 * one + 56 * two).sum()

    return function


@pytest.mark.parametrize("scale", [1.0, 0.3, 1e-20, 1e20])
@pytest.mark.parametrize("n", [1, 2, 5, 64, 130])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_sides_are_those_of_numpy_to_the_bit(jax, kind, n, scale):
    """Also where subnormal numbers appear, which XLA's threads read as 0."""
    x = (logits(n, "float64") / scale).astype(kind)
    with jax.enable_x64(kind == "float64"):
        found = jax.jit(lambda v: all_sides(v, scale))(x)
    for got, expected in zip(found, as_xla_reads(all_sides(x, scale)), strict=True):
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("n", [2, 3, 64, 130])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_gradient_is_that_of_torch_to_the_bit(jax, torch, kind, n):
    x = logits(n, kind)
    leaf = torch.tensor(x).requires_grad_()
    penalty(leaf, 0.7).backward()
    with jax.enable_x64(kind == "float64"):
        for wrap in (jax.jit, lambda function: function):
            got = wrap(jax.grad(lambda v: penalty(v, 0.7)))(jax.numpy.asarray(x))
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(got, leaf.grad.numpy())


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_logits_too_coarse_for_the_kernel(jax, kind):
    """They are measured from the largest: the same numbers as of their exact differences."""
    size = 2.0**40 if kind == "float32" else 2.0**70
    steps = np.array([[0, 0, -1, -2], [0, -1, -1, -5], [0, -2, -3, -INF]]) * np.spacing(
        np.array(size, kind)
    )
    x = (size + steps).astype(kind)
    scale = float(0.5 / np.spacing(np.array(size, kind)))
    with jax.enable_x64(kind == "float64"):
        x, steps = jax.numpy.asarray(x), jax.numpy.asarray(steps, kind)
        for factor in (1.0, 400.0):  # which the kernel solves, and which it does not
            values = jax.jit(lambda v, c=factor * scale: all_sides(v, c))
            gradient = jax.jit(jax.grad(lambda v, c=factor * scale: penalty(v, c)))
            for function in (values, gradient):
                for got, expected in zip(function(x), function(steps), strict=True):
                    least = 1e-12 * float(abs(expected).max())
                    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=least)


@pytest.mark.parametrize("bad", [math.nan, INF])
@pytest.mark.parametrize("n", [3, 200])
def test_nan_comes_out_as_nan_under_jit_and_is_refused_outside(jax, n, bad):
    x = np.zeros((3, n), np.float32)
    x[1, 1], x[1, 2] = bad, 800.0
    for side in jax.jit(all_sides)(x):
        np.testing.assert_array_equal(np.isnan(side), [False, True, False])
    gradient = jax.jit(jax.grad(penalty))(x)
    np.testing.assert_array_equal(np.isnan(gradient).all(-1), [False, True, False])
    np.testing.assert_array_equal(np.isnan(gradient).any(-1), [False, True, False])
    for function in (penalty, jax.grad(penalty)):
        with pytest.raises(ValueError, match="x contains"):
            function(jax.numpy.asarray(x))


def test_first_derivatives_by_every_transformation(wide):
    jax, x = wide, wide.numpy.asarray(logits(6, "float64")[8:20].reshape(3, 4, 6))
    expected = np.asarray(jax.jit(jax.grad(by_formula(jax)))(x))
    axes = {"in_axes": 1, "out_axes": 1}
    for name, gradient in {
        "grad": jax.grad(penalty),
        "vmap": jax.vmap(jax.grad(penalty)),
        "vmap of another axis": jax.vmap(jax.grad(penalty), **axes),
        "vmap of the last axis": lambda x: jax.vmap(
            jax.grad(lambda v: penalty(jax.numpy.moveaxis(v, 0, -1))), in_axes=0
        )(jax.numpy.moveaxis(x, -1, 1)).swapaxes(1, 2),
        "jacfwd": jax.jacfwd(penalty),
        "checkpoint": jax.grad(jax.checkpoint(penalty)),
        "jacrev": lambda x: jax.jacrev(lambda v: penalty(v) * jax.numpy.ones(2))(x)[1],
    }.items():
        for function in (gradient, jax.jit(gradient)):
            np.testing.assert_allclose(function(x), expected, rtol=1e-9, atol=1e-13, err_msg=name)
    with jax.disable_jit():
        np.testing.assert_allclose(jax.grad(penalty)(x), expected, rtol=1e-9, atol=1e-13)


def test_directional_derivative_ignores_masked_entries(wide):
    jax, x = wide, logits(5, "float64")
    moves = np.where(x == -INF, math.nan, 1.5)
    moves[:, 0] = -0.5
    found = jax.jit(lambda v, d: jax.jvp(penalty, (v,), (d,))[1])(x, moves)
    gradient = np.asarray(jax.grad(penalty)(jax.numpy.asarray(x)))
    expected = np.sum(gradient * np.where(x == -INF, 0, moves))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("outer", ["jacfwd", "jacrev"])
@pytest.mark.parametrize("inner", [pytest.param("jacfwd", marks=pytest.mark.slow), "jacrev"])
def test_second_derivatives_in_every_order(wide, outer, inner):
    jax, x = wide, wide.numpy.asarray(logits(4, "float64")[[12, 18, 22]])
    expected = jax.jit(jax.vmap(jax.jacfwd(jax.jacrev(by_formula(jax)))))(x)
    second = getattr(jax, outer)(getattr(jax, inner)(penalty))
    found = jax.jit(jax.vmap(second))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


def test_second_derivative_of_what_weights_the_first(wide):
    jax, x = wide, wide.numpy.asarray(logits(4, "float64")[18])
    twice, squared = jax.jit(
        lambda v: [jax.hessian(penalty)(v), jax.hessian(lambda u: penalty(u) ** 2)(v)]
    )(x)
    slope = jax.grad(penalty)(x)
    expected = 2 * penalty(x) * twice + 2 * slope[:, None] * slope
    np.testing.assert_allclose(squared, expected, rtol=1e-8, atol=1e-12)


def test_transposed_twice(wide):
    jax, x = wide, wide.numpy.asarray(logits(5, "float64")[:20])
    value = lambda v: taut.local_lipschitz(v).value  # noqa: E731
    found, pull = jax.vjp(value, x)
    move = jax.numpy.asarray(np.random.default_rng(0).standard_normal(x.shape))
    (push,) = jax.linear_transpose(lambda weights: pull(weights)[0], found)(move)
    move = jax.numpy.where(x == -INF, 0, move)
    np.testing.assert_allclose(push, (jax.grad(lambda v: value(v).sum())(x) * move).sum(-1))


def test_one_node_instead_of_an_unrolled_search(jax):
    graph = jax.make_jaxpr(jax.jit(jax.grad(penalty)))(np.zeros((2, 3), np.float32))
    text = str(graph)
    assert text.count("taut_constants_gradient[") == 1
    assert text.count("taut_constants[") == 1
    assert text.count("\n") < 70, text


def test_no_rows_and_one_logit(jax):
    for shape in ((0, 5), (3, 1)):
        x = np.zeros(shape, np.float32)
        assert not np.any(jax.jit(lambda v: taut.local_lipschitz(v).value)(x))
        gradient = jax.jit(jax.grad(penalty))(x)
        np.testing.assert_array_equal(gradient, x)


def test_bracket_uses_the_compiled_constants(jax):
    graph = jax.make_jaxpr(lambda v: taut.local_lipschitz(v, 3).upper)(np.zeros(3, np.float32))
    assert "taut_constants[" in str(graph)


def test_other_platforms_get_the_portable_formula(jax):
    export = pytest.importorskip("jax.export")
    shape = jax.ShapeDtypeStruct((2, 3), np.float32)
    found = export.export(jax.jit(jax.grad(penalty)), platforms=["cuda"])(shape)
    assert "custom_call @taut" not in found.mlir_module()


@pytest.mark.parametrize("reason", ["no such module", "not registered", "scale"])
def test_portable_formula_where_the_kernel_cannot_be_called(jax, monkeypatch, reason):
    x, scale = logits(6, "float32")[8:20], 1.0
    if reason == "no such module":
        monkeypatch.setitem(sys.modules, "taut._softmax.jax_operators", None)
    elif reason == "not registered":
        monkeypatch.setattr("taut._softmax.jax_operators.registered", lambda _: False)
    else:
        scale = 9e-31  # the kernel takes no less than 1e-30
    graph = jax.make_jaxpr(jax.grad(lambda v: penalty(v, scale)))(x)
    assert "taut_constants" not in str(graph)
    assert len(graph.eqns) > 100


def test_registration_fails_softly(jax, monkeypatch):
    """Where XLA refuses the version of the interface."""
    from taut._softmax import jax_calls

    def refuse(*_args, **_options):
        raise RuntimeError("the handler's API version (0.3) is incompatible")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    assert not jax_calls._register.__wrapped__("f")


def test_rows_divided_among_devices():
    """jit gathers the rows, shard_map leaves them where they are."""
    pytest.importorskip("jax")
    program = """
import jax, numpy as np, taut
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("i",))
x = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
gradient = jax.grad(lambda v: taut.local_lipschitz(v).value.sum())
divided = jax.device_put(x, NamedSharding(mesh, P("i")))
mapped = jax.shard_map(gradient, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
expected = gradient(jax.numpy.asarray(x))
for function in (gradient, mapped):
    np.testing.assert_array_equal(jax.jit(function)(divided), expected)

second = jax.vmap(jax.hessian(lambda v: taut.local_lipschitz(v).value))
mapped = jax.shard_map(second, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
np.testing.assert_allclose(jax.jit(mapped)(x), second(x), atol=1e-6)

explicit = jax.make_mesh((2,), ("i",))  # whose axes are part of the types of arrays
wide = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32)
for spec in (P("i", None), P(None, "i")):
    divided = jax.device_put(wide, NamedSharding(explicit, spec))
    np.testing.assert_array_equal(jax.jit(gradient)(divided), gradient(jax.numpy.asarray(wide)))
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ | flags)


def test_first_use_in_several_threads():
    """All of them get the compiled code: XLA takes a name only once."""
    pytest.importorskip("jax")
    program = """
import sys, threading
from taut._softmax.jax_calls import registered

sys.setswitchinterval(1e-6)
together, found = threading.Barrier(6), []

def ask():
    together.wait()
    found.append(registered("f"))

threads = [threading.Thread(target=ask) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert found == [True] * 6, found
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory as Linux does")
@pytest.mark.parametrize("spare", [130, 160, 190])  # MB; XLA needs about 100, the kernel 100 more
def test_without_memory_nothing_is_claimed(spare):
    """XLA cannot be told that a call failed: every number is NaN then."""
    pytest.importorskip("jax")
    program = f"""
import resource
import jax, numpy as np, taut

x = jax.numpy.asarray(np.random.default_rng(0).standard_normal((4_000_000, 2)), "float32")
bound = jax.jit(lambda v: taut.local_lipschitz(v).value).lower(x).compile()
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
most = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (used + {spare} * 2**20, most))
try:
    found = bound(x).block_until_ready()
except Exception:
    raise SystemExit from None  # which is as good
resource.setrlimit(resource.RLIMIT_AS, (most, most))
found = np.asarray(found)
assert np.isnan(found).all() or found.max() > 0.49, found
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_infinity_is_no_mask_of_the_negative_logits(jax):
    """Traced code refuses nothing, so what cannot be known is NaN."""
    x = np.array([1.0, np.inf, 0.0], np.float32)
    assert np.isnan(jax.jit(lambda v: taut.local_lipschitz(v, scale=-1.0).upper)(x))
    assert np.isnan(jax.jit(lambda v: taut.softmax(v, scale=-1.0))(x)).all()
    for bad in (np.inf, np.nan):
        x[1] = bad
        for scale in (INF, -INF):
            assert np.isnan(jax.jit(lambda v, c=scale: taut.softmax(v, scale=c))(x)).all()
    x = np.array([1.0, -np.inf, 0.0], np.float32)
    expected = float(taut.local_lipschitz(x, scale=-1.0).upper)
    assert float(jax.jit(lambda v: taut.local_lipschitz(v, scale=-1.0).upper)(x)) == expected


def test_versions_of_jax_that_divide_arrays_otherwise_get_the_portable_form(jax, monkeypatch):
    from taut._softmax import jax_calls

    monkeypatch.delattr(jax.sharding.NamedSharding, "update")  # came with 0.6.2
    assert not jax_calls._register.__wrapped__("f")


def test_compiled_code_has_a_name_without_its_sources(jax, monkeypatch):
    from taut._softmax import jax_calls

    def no_sources(_):
        raise NotADirectoryError

    monkeypatch.setattr(jax_calls, "digest", no_sources)
    names = {jax_calls._target.__wrapped__(*pair) for pair in (("constants", "f"), ("a", "d"))}
    assert len(names) == 2
