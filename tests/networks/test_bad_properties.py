"""Questions near an input that make no sense: each is refused with a sentence that says why."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch import nn  # noqa: E402

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from tests.helpers.architectures import case  # noqa: E402


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1), nn.ReLU(), nn.Linear(4, 2)).double()


X = torch.randn(1, 4, dtype=torch.float64)
WORDS = {0: torch.randn(2, 4, dtype=torch.float64)}
CALLS = {
    "propagate": lambda net, **more: tt.propagate(net, taut.At(X, 0.1), **more),
    "certified_radius": lambda net, **more: tt.certified_radius(net, X, **more),
    "verify": lambda net, **more: tt.verify(net, taut.At(X, 0.1), **more),
    "word_changes": lambda net, **more: tt.word_changes(net, X[:, None], WORDS, **more),
}


@pytest.mark.parametrize("name", CALLS)
def test_training_mode(name):
    with pytest.raises(ValueError, match=r"training mode; .*module\.eval\(\)"):
        CALLS[name](classifier())


@pytest.mark.parametrize("radius", [0.0, -1.0, math.nan])
def test_a_radius_of_nothing(radius):
    net = classifier().eval()
    for call in (tt.propagate, tt.verify):
        with pytest.raises(ValueError, match="radius must be"):
            call(net, taut.At(X, radius))


def test_a_class_that_does_not_exist():
    net = classifier().eval()
    for label in (2, -1):
        with pytest.raises(ValueError, match="label must be from 0 to 1"):
            tt.verify(net, taut.At(X, 0.1), label=label)
    with pytest.raises(ValueError, match="classes must be from 0 to 2"):
        tt.margins([3], 3)


def test_tokens_that_are_padding():
    """In one input of a batch is enough: its bound would say nothing."""
    model, x, _ = case("bert classifier", batch=2)
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    mask[1, -1] = False
    last = x.shape[1] - 1
    for call in (
        lambda: tt.propagate(model, taut.At(x, 0.01), tokens=[last], mask=mask),
        lambda: tt.certified_radius(model, x, tokens=[0, last], mask=mask),
    ):
        with pytest.raises(ValueError, match=f"token {last} of input 1 is padding"):
            call()
    with pytest.raises(ValueError, match=f"token {last} is padding"):
        tt.word_changes(model, x[1:], {last: x[0]}, mask=mask[1:])
    assert tt.propagate(model, taut.At(x, 0.01), tokens=[0], mask=mask)


@pytest.mark.parametrize("name", CALLS)
def test_a_negative_time_limit(name):
    for limit in (-1.0, math.nan):
        with pytest.raises(ValueError, match="time_limit"):
            CALLS[name](classifier().eval(), time_limit=limit)
