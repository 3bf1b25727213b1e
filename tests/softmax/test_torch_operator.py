"""Constants inside torch.compile: few nodes, the numbers and gradients of the eager code."""

from __future__ import annotations

import math

import numpy as np
import pytest

import taut

INF = math.inf


@pytest.fixture(autouse=True)
def _nothing_compiled_before(torch):
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def logits(torch, shape, dtype="float64"):
    """Rows of several scales, with masks, ties and a row that is masked altogether."""
    rng = np.random.default_rng(shape[-1])
    x = (rng.standard_normal(shape) * 3).reshape(-1, shape[-1])
    x[:, 1::4] *= 5
    x[::3, 0] = -INF
    x[1::3, :2] = 4.0
    x[-1] = -INF
    return torch.tensor(x.reshape(shape)).to(getattr(torch, dtype))


def penalty(x, scale=1.0):
    """All sides of constants in different weights, so that a mixed up line is seen."""
    one, two, inf = taut.local_lipschitz(x, (1, 2, INF), scale=scale)
    weights = x.new_ones(x.shape[:-1]).float().cumsum(-1)
    return (weights * (one.lower + 2 * two.value + 3 * inf.upper)).sum() + two.upper.sum()


def value_and_gradient(torch, function, x):
    leaf = x.clone().requires_grad_()
    value = function(leaf)
    return value.detach(), *torch.autograd.grad(value, leaf)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_value_and_gradient_are_those_of_the_eager_code(torch, dtype):
    """Also when the shape changes, which makes it a symbol, and where rows are not contiguous."""
    compiled = torch.compile(penalty, backend="aot_eager", fullgraph=True)
    examples = [logits(torch, (11, 200), dtype)]
    if dtype == "float32":
        examples += [logits(torch, (9, 6), dtype), logits(torch, (8, 13), dtype).T]
    for x in examples:
        for got, expected in zip(
            value_and_gradient(torch, compiled, x),
            value_and_gradient(torch, penalty, x),
            strict=True,
        ):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.slow
def test_symbols_for_everything(torch):
    compiled = torch.compile(penalty, backend="aot_eager", fullgraph=True, dynamic=True)
    for shape, scale in (((3, 5), 1.0), ((4, 6), 0.3)):
        x = logits(torch, shape)
        assert torch.equal(compiled(x, scale), penalty(x, scale))


def test_one_node_instead_of_an_unrolled_search(torch):
    names = []

    def read(graph, _inputs):
        names.extend(str(n.target) for n in graph.graph.nodes if n.op.startswith("call"))
        return graph.forward

    torch.compile(penalty, backend=read, fullgraph=True)(torch.zeros(2, 3))
    assert names.count("taut.constants.default") == 1
    assert len(names) < 60, names


def test_bracket_has_its_gradient(torch):
    def bracket(x):
        bound = taut.local_lipschitz(x, 3)
        return (bound.lower + 2 * bound.upper).sum()

    x = logits(torch, (6, 5))
    compiled = torch.compile(bracket, backend="aot_eager", fullgraph=True)
    for got, expected in zip(
        value_and_gradient(torch, compiled, x), value_and_gradient(torch, bracket, x), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-14)


def test_bad_logits_are_refused_when_the_graph_runs(torch):
    compiled = torch.compile(penalty, backend="aot_eager", fullgraph=True)
    compiled(torch.zeros(2, 3))
    for bad in (math.nan, INF):
        with pytest.raises(ValueError, match="x contains"):
            compiled(torch.tensor([[0.0, 1.0, 2.0], [0.0, bad, 1.0]]))


def test_parameters_without_a_gradient(torch):
    x = logits(torch, (4, 5)).requires_grad_()

    def lower(v):
        return taut.local_lipschitz(v, 3).lower

    with torch.no_grad():
        found = torch.compile(lower, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(found, lower(x.detach()))


def test_transformed_by_torch_func(torch):
    """torch.func goes by the portable code, each row with a gradient of its own."""

    def loss(x):
        return taut.local_lipschitz(x, 2).value.sum()

    function = torch.func.vmap(torch.func.grad(loss))
    x = torch.tensor(np.random.default_rng(0).standard_normal((3, 4, 6)))
    got = torch.compile(function, backend="eager", fullgraph=True)(x)
    _, expected = value_and_gradient(torch, loss, x)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def test_operators_are_what_they_say(torch):
    from taut._softmax import torch_operator  # noqa: F401 (registers the operators)

    x = logits(torch, (5, 4)).requires_grad_()
    two = taut.local_lipschitz(x.detach(), 2).value
    torch.library.opcheck(torch.ops.taut.constants.default, (x, 0.5))
    found = torch.ops.taut.constants(x.detach(), 0.5)[1]
    assert torch.isfinite(found).all()
    gradient = torch.ops.taut.constants_gradient.default
    torch.library.opcheck(gradient, (x.detach(), found, two, two, 0.5))
    torch.library.opcheck(torch.ops.taut.lower_sides.default, (x.detach(), two, 3.0, 1.0))
