"""The same numbers from every array library, traced or not, in every layout."""

from __future__ import annotations

import math

import numpy as np
import pytest

import taut

INF = math.inf
FUNCTIONS = {
    "softmax": lambda x: taut.softmax(x, scale=1.5),
    "log_softmax": taut.log_softmax,
    "logsumexp": taut.logsumexp,
    "jacobian": taut.jacobian,
    "local 1": lambda x: taut.local_lipschitz(x, 1).upper,
    "local 2": lambda x: taut.local_lipschitz(x, 2).upper,
    "local 2 lower": lambda x: taut.local_lipschitz(x, 2).lower,
    "local 3": lambda x: taut.local_lipschitz(x, 3).upper,
    "local 3 lower": lambda x: taut.local_lipschitz(x, 3).lower,
    "1 to 2": lambda x: taut.local_lipschitz(x, 1, 2).upper,
    "3 to inf": lambda x: taut.local_lipschitz(x, 3, INF).upper,
    "box 1": lambda x: taut.local_lipschitz(x, 1, radius=0.2).upper,
    "box 2": lambda x: taut.local_lipschitz(x, 2, radius=0.2).upper,
    "direction": taut.worst_direction,
    "direction 3": lambda x: taut.worst_direction(x, 3),
    "intervals": lambda x: taut.probability_intervals(x, 0.2).upper,
    "empirical": lambda x: taut.empirical_lipschitz(x, along="worst").lower,
    "step": lambda x: taut.step_bound(x).upper,
}
# Compilers take seconds for each; these go the paths of others, and are compiled by night.
NIGHT = {"local 2 lower", "local 3 lower", "3 to inf", "box 1", "direction 3"}
COMPILED = [
    pytest.param(name, marks=pytest.mark.slow) if name in NIGHT else name for name in FUNCTIONS
]
UNTRACEABLE = {"inf to 1": lambda x: taut.local_lipschitz(x, INF, 1).upper}


def sample(dtype="float64"):
    x = np.random.default_rng(0).standard_normal((3, 4, 6)) * 3
    return x.astype(dtype)


@pytest.mark.parametrize("name", {**FUNCTIONS, **UNTRACEABLE})
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_as_numpy(backend, name, dtype):
    function = {**FUNCTIONS, **UNTRACEABLE}[name]
    x = backend.array(sample(dtype), dtype)
    if name == "inf to 1" and backend.name == "array_api_strict":
        with pytest.raises(TypeError, match="search over subsets"):
            function(x)
        return
    got = function(x)
    assert type(got) is type(x)
    assert str(got.dtype).rsplit(".", maxsplit=1)[-1] == str(x.dtype).rsplit(".", maxsplit=1)[-1]
    tolerance = 2e-4 if backend.tolerance(dtype) > 1e-6 else 1e-9
    np.testing.assert_allclose(
        backend.numpy(got), function(sample()), rtol=tolerance, atol=tolerance * 1e-2
    )


@pytest.mark.parametrize("name", COMPILED)
def test_jax_jit_and_vmap(jax, name):
    x = jax.numpy.asarray(sample("float32"))
    expected = FUNCTIONS[name](x)
    np.testing.assert_allclose(jax.jit(FUNCTIONS[name])(x), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(FUNCTIONS[name])(x), expected, rtol=1e-4, atol=1e-6) if (
        name != "empirical"
    ) else None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_torch_vmap(torch, name):
    x = torch.tensor(sample())
    expected = FUNCTIONS[name](x)
    torch.testing.assert_close(torch.func.vmap(FUNCTIONS[name])(x), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", COMPILED)
def test_torch_compile_without_a_graph_break(torch, name):
    x = torch.tensor(sample())
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), FUNCTIONS[name](x), rtol=1e-9, atol=1e-11)
    torch._dynamo.reset()


def test_untraceable_says_so(torch, jax):
    with pytest.raises(TypeError, match=r"cannot be traced by jax\.jit"):
        jax.jit(UNTRACEABLE["inf to 1"])(jax.numpy.asarray(sample("float32")))
    with pytest.raises(TypeError, match="cannot be traced"):
        torch.func.vmap(UNTRACEABLE["inf to 1"])(torch.tensor(sample()))


def test_compiled_training_step(torch):
    """A penalty on the constant inside a compiled function, with its gradient."""

    def loss(x):
        return taut.local_lipschitz(x, 2).value.sum()

    x = torch.tensor(sample(), requires_grad=True)
    (expected,) = torch.autograd.grad(loss(x), x)
    (got,) = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(x), x)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)
    torch._dynamo.reset()


def test_nothing_is_changed_in_place(backend):
    for function in FUNCTIONS.values():
        x = backend.array(sample("float32"), "float32")
        function(x)
        np.testing.assert_array_equal(backend.numpy(x), sample("float32"))


def test_torch_gradient_state_is_left_alone(torch):
    x = torch.tensor(sample(), requires_grad=True)
    with torch.no_grad():
        assert not taut.local_lipschitz(x).value.requires_grad
    assert taut.local_lipschitz(x).value.requires_grad
    assert x.grad is None


def test_keywords_and_lists_compile_too(torch):
    x = torch.tensor(sample())
    for function in (lambda x: taut.softmax(x=x), lambda x: taut.blend([x, x], [1.0, 2.0])):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), function(x))
        torch._dynamo.reset()
