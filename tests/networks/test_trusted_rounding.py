"""What is claimed of rounding: proved for functions of torch, estimated for those of users."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from taut.networks.propagation.linear_nodes import InputNode  # noqa: E402
from taut.networks.propagation.rotary_node import RotaryNode  # noqa: E402


class Own(nn.Module):
    """An activation of the user's between two linear maps."""

    def __init__(self, act, form):
        super().__init__()
        self.act, self.form = act, form
        self.first, self.second = nn.Linear(3, 4).double(), nn.Linear(4, 2).double()

    def forward(self, x):
        return self.second(self.act.function(self.first(x)))


@tt.register(Own)
def _own(run, module, x):
    first, second = ((each.weight, each.bias) for each in (module.first, module.second))
    if module.form == "mlp":
        return run.mlp(x, first, module.act, second)
    return run.linear(run.activation(run.linear(x, *first), module.act), *second)


@pytest.mark.parametrize("form", ["mlp", "activation"])
def test_a_function_of_the_user_is_not_called_proved(form):
    torch.manual_seed(0)
    x = torch.randn(1, 3, dtype=torch.float64)
    for accurate, wanted in ((False, "estimated"), (True, "proved")):
        net = Own(tt.Activation(torch.tanh, 0.0, 1.0, accurate=accurate), form)
        certificate = tt.certify(net, x)
        assert certificate.bound.rounding == wanted
        assert ("activation of your own" in certificate.headline(None)) == (not accurate)
        for executed in (False, True):
            found = tt.propagate(net, taut.At(x, 0.1), executed=executed)
            assert found.bound.rounding == wanted
        assert tt.certified_radius(net, x).rounding == wanted
        assert tt.verify(net, taut.At(x, 1e-6)).rounding == wanted
        near = {0: x + 1e-6}
        assert tt.word_changes(net, x[:, None], near).rounding == wanted


def test_functions_of_torch_are_proved():
    net = nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.GELU(), nn.Softplus()).double()
    found = tt.propagate(net, taut.At(torch.randn(1, 3), 0.1), executed=True)
    assert found.bound.rounding == "proved"


def test_a_constant_is_estimated_as_executed_only():
    net = nn.Sequential(nn.Linear(3, 4), nn.Softmax(dim=-1), nn.Linear(4, 2)).double()
    x = torch.randn(1, 1, 3, dtype=torch.float64)
    assert tt.propagate(net, taut.At(x, 0.1)).bound.rounding == "proved"
    assert tt.propagate(net, taut.At(x, 0.1), executed=True).bound.rounding == "estimated"
    assert tt.word_changes(net, x, {0: x[0] + 1e-9}).rounding == "estimated"


@pytest.mark.parametrize("seed", range(20))
def test_the_stretch_of_rotary_positions_is_their_norm(seed):
    """Also where both coordinates of a pair have cosines and sines of their own."""
    torch.manual_seed(seed)
    tokens, width = 3, 4
    x = InputNode(torch.randn(tokens, width + 1, dtype=torch.float64))
    cosine, sine = torch.randn(2, tokens, width, dtype=torch.float64)
    node = RotaryNode(x, 1, cosine, sine)
    dense = torch.func.jacrev(lambda z: node._turned(z, cosine, sine, 1.0))(x.centre)
    own = [dense[token, :, token] for token in range(tokens)]
    exact = max(1.0, *(float(torch.linalg.matrix_norm(each, 2)) for each in own))
    assert exact * (1 - 1e-12) <= node._stretch <= exact * (1 + 1e-9)


def test_equal_halves_only_scale():
    angle = torch.rand(2, 3, dtype=torch.float64)
    cosine, sine = (torch.cat((f(angle),) * 2, -1) * 1.5 for f in (torch.cos, torch.sin))
    node = RotaryNode(InputNode(torch.randn(2, 6, dtype=torch.float64)), 1, cosine, sine)
    assert node._stretch == pytest.approx(1.5, rel=1e-11)
    assert math.isfinite(node._stretch)
