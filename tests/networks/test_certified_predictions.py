"""Margins over constants are radii: attained by linear classifiers, and broken by no attack."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from taut._base.attention_weight_limits import heaviest_biased_column, heaviest_column
from taut.control import LipschitzTransformer, WeightLimits
from taut.control.lipschitz.limits import limited_weights
from taut.networks import certified_predictions


def small_images(seed: int = 0, noise: float = 0.2, **options) -> LipschitzTransformer:
    torch.manual_seed(seed)
    sizes = {"image": (1, 4, 4), "patch": 2, "width": 8, "layers": 2, "heads": 2, "target": 1.0}
    model = LipschitzTransformer.of_images(3, **{**sizes, "activation": "maxmin", **options})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    WeightLimits(model).start().stop()
    return model.double()


def nearest_change(weight: torch.Tensor, x: torch.Tensor) -> np.ndarray:
    """Distance to the nearest tie of a linear classifier, in closed form."""
    logits = x @ weight.T
    best = logits.argmax(dim=1)
    margin = logits.gather(1, best[:, None]) - logits
    apart = (weight[best][:, None] - weight).norm(dim=-1)
    return (margin / apart).nan_to_num(nan=math.inf).amin(dim=1).numpy()


@pytest.mark.theorem("margin-radius", "attained")
@pytest.mark.theorem("margin-radius", "falsifiable")
def test_orthonormal_rows_attain_the_radius():
    torch.manual_seed(0)
    linear = nn.Linear(6, 4, bias=False).double()
    nn.init.orthogonal_(linear.weight)
    x = torch.randn(50, 6, dtype=torch.float64)
    found = certified_predictions(linear, x)
    exact = nearest_change(linear.weight.detach(), x)
    assert (found.radius <= exact).all()
    np.testing.assert_allclose(found.radius, exact, rtol=1e-9)
    assert (found.radius / 0.99 > exact).all()


@pytest.mark.theorem("margin-radius", "holds")
@pytest.mark.parametrize("seed", range(2))
def test_no_attack_breaks_a_radius_and_some_come_near(seed):
    model = small_images(seed, 0.01, layers=1, sharpness=0.05, head=6)
    x = torch.rand(24, 1, 4, 4, dtype=torch.float64)
    found = certified_predictions(model, x)
    assert (found.radius > 0).all()
    assert (found.attack(steps=30, restarts=3) > 0).all()
    needed = found.attack_radius(steps=30)
    assert (needed >= found.radius).all()
    assert (needed < 6 * found.radius).any()


def test_pairs_of_rows_give_larger_radii():
    model = small_images()
    with torch.no_grad():  # two classes whose rows nearly agree part slowly
        model.output[1] = model.output[0] + 0.1 * model.output[1]
        model.output.mul_(0.7)
    x = torch.rand(8, 1, 4, 4, dtype=torch.float64)
    found = certified_predictions(model, x)
    plain = found.margin / (math.sqrt(2) * found.bound)
    assert (found.radius >= plain * (1 - 1e-9)).all()
    assert (found.radius > 1.5 * plain).any()
    constants = model.margin_constants()
    assert constants.shape == (3, 3)
    assert (constants.diagonal() < 1e-6).all()
    assert (constants[0, 2] <= math.sqrt(2) * model.certificate().upper * 1.01).all()


def test_the_difference_of_two_logits_moves_no_farther_than_its_constant():
    model = small_images(1, 0.01, layers=1, sharpness=0.05)
    constants = model.margin_constants()
    x = torch.rand(16, 1, 4, 4, dtype=torch.float64).requires_grad_()
    logits = model(x)
    slopes = [torch.autograd.grad(logits[:, a].sum(), x, retain_graph=True)[0] for a in range(3)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        steepest = float((slopes[a] - slopes[b]).flatten(1).norm(dim=1).max())
        assert 0.05 * constants[a, b] < steepest <= constants[a, b]


def test_rounding_of_single_precision_is_taken_off():
    x = torch.rand(8, 1, 4, 4)
    single = certified_predictions(small_images().float(), x)
    double = certified_predictions(small_images(), x.double())
    assert single.execution_error > 1e6 * double.execution_error > 0
    assert (single.radius < double.radius).all()


def test_tokens_of_text_have_radii_in_the_largest_token():
    torch.manual_seed(0)
    model = LipschitzTransformer.of_text(5, tokens=4, width=8, layers=1, heads=2, target=2.0)
    WeightLimits(model).start().stop()
    ids = torch.randint(0, 5, (3, 4))
    x = model.embedding(ids).detach()
    found = certified_predictions(model, x, ids, norm="token")
    assert found.radius.shape == found.predicted.shape == (3, 4)
    moved = torch.randn(40, 3, 4, 8)
    moved = moved / moved.norm(dim=-1, keepdim=True).amax(dim=2, keepdim=True)
    for step in moved:  # each prediction within its own radius
        for b, t in np.ndindex(3, 4):
            near = x[b] + 0.999 * float(found.radius[b, t]) * step[b]
            assert int(model(inputs_embeds=near[None])[0, t].argmax()) == found.predicted[b, t]
    with pytest.raises(ValueError, match="one prediction an input"):
        found.attack()


def test_orthogonal_limits_bring_all_singular_values_to_the_limit():
    model = small_images(noise=0.0, hidden=8, head=6).float()
    limits = WeightLimits(model, method="orthogonal").start()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in limited_weights(model):
            weight.parameter.add_(0.05 * torch.randn_like(weight.parameter))
    limits.after_step()
    for weight in limited_weights(model):
        values = torch.linalg.svdvals(weight.matrix().double()) / weight.limit
        assert 0.99 < float(values.min()) <= float(values.max()) <= 1, weight.name
    assert all(row.holds for row in limits.verify())


def test_accuracy_falls_with_the_radius():
    x = torch.rand(20, 1, 4, 4, dtype=torch.float64)
    model = small_images()
    labels = model(x).argmax(dim=1)
    labels[:5] = (labels[:5] + 1) % 3
    found = certified_predictions(model, x, labels)
    curve = found.certified_accuracy([0.0, 1e-3, float(np.median(found.radius)), 1e9])
    assert curve[0] == 0.75
    assert (np.diff(curve) <= 0).all()
    assert curve[-1] == 0
    assert found.mean_radius() == pytest.approx(found.radius[5:].sum() / 20)
    assert found.mean_radius(correct_only=True) == pytest.approx(found.radius[5:].mean())


def test_what_cannot_be_certified_has_the_radius_zero():
    linear = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        linear.weight.copy_(torch.ones(2, 2))  # all inputs are ties
    assert (certified_predictions(linear, torch.randn(3, 2).double()).radius == 0).all()


@pytest.mark.parametrize(
    ("labels", "norm", "told"),
    [(torch.zeros(3, dtype=int), "l2", "shape of the predictions"), (None, "l1", "l2 or token")],
)
def test_bad_input_is_explained(labels, norm, told):
    with pytest.raises(ValueError, match=told):
        certified_predictions(nn.Linear(4, 3), torch.randn(2, 4), labels, norm=norm)


@pytest.mark.parametrize("osc", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("masked", [False, True])
def test_columns_of_weights_with_a_known_term_are_never_heavier(osc, masked):
    """Random scores within the oscillation, against the bound of each column's weight."""
    draw = np.random.default_rng(0)
    bias = draw.normal(size=(2, 5, 5)) * 3
    seen = np.tril(np.ones((1, 5, 5), dtype=bool)) if masked else np.ones((1, 5, 5), dtype=bool)
    limit = heaviest_biased_column(bias, seen, 0.0, osc)
    worst = 0.0
    for _ in range(300):
        scores = np.where(seen, bias + osc * draw.choice([-0.5, 0.5], size=bias.shape), -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        worst = max(worst, float(weights.sum(axis=1).max()))
    assert worst <= limit * (1 + 1e-12)
    assert worst > (0.999 if osc == 0 else 0.6) * limit
    wide = np.full(5, osc + np.ptp(bias, axis=2).max())
    assert limit <= heaviest_column(seen[0], 0.0, wide) * (1 + 1e-9)


def test_a_term_that_leads_everyone_elsewhere_leaves_columns_near_one():
    bias = 12.0 * np.roll(np.eye(8), 1, axis=1)[None]
    seen = np.ones((1, 8, 8), dtype=bool)
    assert 1 <= heaviest_biased_column(bias, seen, 0.0, 0.1) < 1.001
    everyone = 12.0 * np.eye(8)[[0] * 8][None]
    assert heaviest_biased_column(everyone, seen, 0.0, 0.1) > 7.99
    assert heaviest_biased_column(np.full((1, 2, 2), np.nan), seen[:, :2, :2], 0.0, 0.1) == (
        pytest.approx(2.0)
    )
