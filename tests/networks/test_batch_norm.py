"""BatchNorm with fixed statistics, and entries in other places."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402


def trained(module):
    """Statistics and weights as training leaves them."""
    with torch.no_grad():
        module.running_mean.normal_()
        module.running_var.uniform_(0.1, 2)
        if module.affine:
            module.weight.normal_()
            module.bias.normal_()
    return module.double().eval()


CASES = {
    "vectors": (lambda: nn.BatchNorm1d(6), (6,)),
    "channels": (lambda: nn.BatchNorm1d(3), (3, 6)),
    "images": (lambda: nn.BatchNorm2d(3), (3, 4, 5)),
    "without weights": (lambda: nn.BatchNorm1d(6, affine=False), (6,)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_constant_holds_and_is_attained(name):
    torch.manual_seed(0)
    make, shape = CASES[name]
    module = trained(make())
    x = torch.randn(3, *shape, dtype=torch.float64)
    found = tt.certify(module, x)
    gain = 1 if module.weight is None else module.weight.detach()
    exact = float((gain / (module.running_var + module.eps).sqrt()).abs().max())
    assert found.bound.upper == pytest.approx(exact, rel=1e-12)
    assert (found.bound.upper >= exact).all()
    assert (found.measured.lower <= found.bound.upper).all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_propagated_bounds_are_attained(name, norm):
    """The module is affine: an entry moves by its factor times the radius, in every norm."""
    torch.manual_seed(1)
    make, shape = CASES[name]
    module = trained(make())
    x = torch.randn(1, *shape, dtype=torch.float64)
    found = tt.propagate(module, taut.At(x, 0.1), norm=norm)
    factor = (module(x + 1) - module(x)).flatten().abs().detach().numpy()
    np.testing.assert_allclose(found.bound.upper[0] - found.centre[0], 0.1 * factor, rtol=1e-9)
    assert (found.bound.upper[0] >= found.centre[0] + 0.1 * factor * (1 - 1e-12)).all()


def test_inside_a_network(tmp_path):
    torch.manual_seed(2)
    net = nn.Sequential(
        nn.Linear(4, 8).double(), trained(nn.BatchNorm1d(8)), nn.ReLU(), nn.Linear(8, 3).double()
    )
    x = torch.randn(2, 4, dtype=torch.float64)
    found = tt.certified_radius(net, x, norm=2)
    assert (found.radius > 0).all()
    assert (found.attack() > 0).all()


def test_training_mode_is_refused():
    with pytest.raises(ValueError, match=r"BatchNorm1d takes the statistics.*module\.eval\(\)"):
        tt.certify(nn.BatchNorm1d(4), torch.randn(2, 4))
    with pytest.raises(ValueError, match="without running ones"):
        tt.certify(nn.BatchNorm1d(4, track_running_stats=False).eval(), torch.randn(2, 4))
    with pytest.raises(ValueError, match="takes 4 channels"):
        tt.certify(nn.BatchNorm1d(4).eval(), torch.randn(2, 5))


@pytest.mark.parametrize("norm", ["l2", "token"])
def test_places_that_repeat_entries(norm):
    """An entry in m places counts √m; a token that reads k tokens is up to √k times as long."""
    run = tt.Interpreter(norm, 0.0, torch.device("cpu"))
    from taut.networks.region import start

    x = torch.randn(1, 2, 3, dtype=torch.float64)
    places = torch.tensor([[0, 0, 3, -1], [0, 4, 5, 5]])
    found = run.rearrange(start(x, 0.1), places)
    flat = torch.cat((x.flatten(), torch.zeros(1)))
    assert torch.equal(found.centre[0], flat[places])
    exact = math.sqrt(3) if norm == "l2" else math.sqrt(2 * 2)  # of 0, read three times
    assert found.lip[0] == pytest.approx(exact, rel=1e-12)
    with pytest.raises(ValueError, match="from -1 to 5"):
        run.rearrange(start(x, 0.1), torch.tensor([[6]]))
