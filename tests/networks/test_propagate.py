"""What propagate takes and returns: targets, tokens, scales, masks, limits, errors."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from taut.networks.question import ask  # noqa: E402
from tests.helpers.architectures import case, names  # noqa: E402
from tests.helpers.propagation_attack import directions  # noqa: E402

nn = torch.nn
NET = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).double()
X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", names("certify"))
def test_all_families_have_affine_bounds(name):
    model, x, context = case(name, gain=1.5, batch=1)
    norm = {0: 1, 1: 2, 2: math.inf}[len(name) % 3]
    radius = {1: 0.2, 2: 0.05, math.inf: 0.003}[norm]
    found = tt.propagate(model, taut.At(x, radius), norm=norm, context=context)
    assert found.constants == ()
    assert found.bound.rounding == "proved"
    assert np.isfinite(found.bound.upper).all()
    steps = directions(tuple(x.shape[1:]), norm, 30, 0) * radius
    question, _ = ask(model, taut.At(x), context, None, None, "l2", 0)
    with torch.no_grad():
        several = None if context is None else context.expand(30, -1, -1)
        values = question.call(*[y for y in (x + steps, several) if y is not None])
    values = values.reshape(30, -1).numpy()
    assert (values >= found.bound.lower[0] - 1e-12).all()
    assert (values <= found.bound.upper[0] + 1e-12).all()


def test_targets_are_any_linear_functions():
    rows = torch.tensor([[1.0, -1.0, 0.0], [2.0, 0.0, 1.0]], dtype=torch.float64)
    found = tt.propagate(NET, taut.At(X, 0.1), targets=rows)
    assert found.bound.shape == (2, 2)
    assert found.centre == pytest.approx((NET(X) @ rows.T).detach().numpy())
    every = tt.propagate(NET, taut.At(X, 0.1))
    loose = every.bound.upper @ rows.clamp(min=0).T.numpy()
    loose += every.bound.lower @ rows.clamp(max=0).T.numpy()
    assert (found.bound.upper <= loose + 1e-9).all()  # one row is never worse than its parts
    each = tt.propagate(NET, taut.At(X, 0.1), targets=torch.stack((rows, rows)))
    assert (each.bound.upper == found.bound.upper).all()


def test_radii_of_each_input_and_larger_sets_are_wider():
    one = tt.propagate(NET, taut.At(X, 0.1))
    two = tt.propagate(NET, taut.At(X, [0.1, 0.2]))
    assert (two.bound.upper[0] == one.bound.upper[0]).all()
    assert (two.bound.upper[1] > one.bound.upper[1]).all()


def test_a_scale_and_chosen_tokens():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).double().eval()
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    whole = tt.propagate(layer, taut.At(x, 0.1))
    word = tt.propagate(layer, taut.At(x, 0.1), tokens=[1])
    scale = torch.zeros(3, 8, dtype=torch.float64)
    scale[1] = 1.0
    same = tt.propagate(layer, taut.At(x, 0.1), scale=scale)
    assert (word.bound.upper == same.bound.upper).all()
    assert (word.bound.upper < whole.bound.upper).all()
    half = tt.propagate(layer, taut.At(x, 0.2), scale=scale / 2)
    assert half.bound.upper == pytest.approx(word.bound.upper, rel=1e-9)
    assert "tokens 1 moving" in str(word.bound.domain)


def test_padding_changes_nothing():
    model, x, _ = case("bert", batch=2)
    mask = torch.ones(2, x.shape[1], dtype=torch.bool)
    mask[1, 3:] = False
    found = tt.propagate(model, taut.At(x, 0.01), mask=mask)
    alone = tt.propagate(model, taut.At(x[1:, :3], 0.01))
    width = found.bound.shape[1] // x.shape[1]
    ours = found.bound.upper[1].reshape(-1, width)[:3]
    # ellipsoids are weighed by the sizes of all tokens, which changes them a little
    assert ours == pytest.approx(alone.bound.upper[0].reshape(-1, width), rel=1e-3)


def test_slack_names_the_modules():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True).double().eval()
    found = tt.propagate(layer, taut.At(torch.randn(1, 3, 8, dtype=torch.float64), 0.1))
    kinds = {part.what for part in found.slack[0]}
    assert {"relaxation of attention", "relaxation of activations"} <= kinds
    assert {"relaxation of norm layers", "rounding"} <= kinds
    assert any(part.module == "self_attn" for part in found.slack[0])
    assert "norm1" in found.table()
    assert "exact arithmetic" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["rounding"] == "proved"


def test_what_has_no_affine_rule_falls_back_to_its_constant():
    net = nn.Sequential(nn.Linear(4, 6), nn.Softmax(dim=-1), nn.Linear(6, 2)).double()
    found = tt.propagate(net, taut.At(X, 0.1))
    assert found.constants == ("1",)
    assert "By their constants: 1" in str(found)
    steps = directions((4,), 2, 500, 0) * 0.1
    values = net(X[:, None] + steps).detach().numpy()
    assert (values.min(axis=1) >= found.bound.lower).all()
    assert (values.max(axis=1) <= found.bound.upper).all()
    executed = tt.propagate(net.float(), taut.At(X.float(), 0.1), executed=True)
    assert executed.bound.rounding == "estimated"


def test_half_precision_is_only_estimated():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).bfloat16()
    found = tt.propagate(net, taut.At(X.bfloat16(), 0.1), executed=True)
    assert found.bound.rounding == "estimated"
    assert tt.propagate(net, taut.At(X.bfloat16(), 0.1)).bound.rounding == "proved"


def test_a_constant_holds_for_inputs_that_were_rounded_before():
    """Differences of large products: the rounding of the linear layer exceeds the radius by far."""
    torch.manual_seed(0)
    linear = nn.Linear(64, 3, bias=False)
    with torch.no_grad():
        linear.weight.mul_(1e3)
        linear.weight[:, 32:] = -linear.weight[:, :32]
    net = nn.Sequential(linear, nn.Softmax(dim=-1))
    half = torch.randn(4, 32)
    x = torch.cat((half, half * (1 + 1e-5)), dim=1)
    found = tt.propagate(net, taut.At(x, 1e-14), executed=True)
    value = net(x).detach().double().numpy()
    assert (found.bound.lower <= value).all()
    assert (value <= found.bound.upper).all()


class Unused(nn.Module):
    """Computes something that its output does not depend on."""

    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x):
        self.norm(x)
        return self.last(x)


def test_what_nothing_depends_on_is_left_out():
    @tt.register(Unused)
    def rule(run, module, x):
        run(module.norm, x, "norm")
        return run(module.last, x, "last")

    net = Unused().double()
    found = tt.propagate(net, taut.At(X, 0.1))
    plain = tt.propagate(net.last, taut.At(X, 0.1))
    assert (found.bound.upper == plain.bound.upper).all()


def test_a_time_limit_leaves_infinite_bounds():
    found = tt.propagate(NET, taut.At(X, 0.1), time_limit=0.0)
    assert np.isinf(found.bound.upper).all()
    assert np.isinf(found.bound.lower).all()
    assert found.table() == "no slack"


def test_progress_counts_operations():
    seen = []
    tt.propagate(NET, taut.At(X[:1], 0.1), progress=lambda done, every: seen.append((done, every)))
    assert seen[-1] == (4, 4)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: tt.propagate(NET, taut.At(X)), ValueError, "radius must be > 0"),
        (lambda: tt.propagate(NET, X), TypeError, "taut.At"),
        (lambda: tt.propagate(NET, taut.At(X, 1.0), norm=3), ValueError, "1, 2 or math.inf"),
        (lambda: tt.propagate(NET, taut.At(X, 1.0), targets=torch.ones(2, 4)), ValueError,
         "outputs of shape"),
        (lambda: tt.propagate(NET, taut.At(X, 1.0), targets=torch.ones(1, 3, dtype=torch.int64)),
         TypeError, "real numbers"),
        (lambda: tt.propagate(NET, taut.At(X, 1.0), tokens=[0]), ValueError, "use scale"),
        (lambda: tt.propagate(NET, taut.At(X[:, None], 1.0), tokens=[1]), ValueError, "0 to 0"),
        (lambda: tt.propagate(NET, taut.At(X, 1.0), scale=torch.ones(3)), ValueError, "one input"),
        (lambda: tt.propagate(NET, taut.At(X, 1.0), scale=-torch.ones(4)), ValueError, ">= 0"),
        (lambda: tt.margins([3], 3), ValueError, "from 0 to 2"),
        (lambda: tt.propagate(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
                              taut.At(X.float(), 1.0)), ValueError, "training mode"),
        (lambda: tt.propagate(nn.Sequential(nn.Linear(4, 4), nn.Bilinear(4, 4, 4)),
                              taut.At(X.float(), 1.0)), tt.MissingRuleError, "Bilinear"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_a_reason(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_token_that_is_padding_cannot_move():
    model, x, _ = case("bert", batch=1)
    mask = torch.ones(1, x.shape[1], dtype=torch.bool)
    mask[0, 4] = False
    with pytest.raises(ValueError, match="token 4 is padding"):
        tt.propagate(model, taut.At(x, 0.1), mask=mask, tokens=[4])


def test_a_context_is_fixed():
    model, x, context = case("decoder layer", batch=1)
    with pytest.raises(TypeError, match="fixed"):
        tt.propagate(model, taut.At(x, 0.1), context=taut.At(context, 0.1))
