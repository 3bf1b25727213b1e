"""Replaced words: proofs cover every combination, examples change the class."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import taut.networks as tt  # noqa: E402
from taut import At  # noqa: E402
from taut.networks.propagation.engine import Engine  # noqa: E402
from taut.networks.propagation.node import UnboundedError  # noqa: E402
from taut.networks.propagation.record import record  # noqa: E402
from taut.networks.propagation.replacement_set import ReplacementSet  # noqa: E402
from taut.networks.question import ask  # noqa: E402
from tests.helpers.architectures import case  # noqa: E402
from tests.helpers.propagation_attack import CPU, check_every_bound  # noqa: E402
from tests.helpers.random_networks import random_network  # noqa: E402


def every_combination(x, replacements):
    """All inputs that replacements make of one input (1, tokens, width)."""
    places = list(replacements)
    for choice in itertools.product(*(range(-1, len(replacements[t])) for t in places)):
        moved = x.clone()
        for token, index in zip(places, choice, strict=True):
            if index >= 0:
                moved[0, token] = replacements[token][index]
        yield moved


def near(x, tokens, size, many=3):
    return {t: x[0, t] + size * torch.randn(many, x.shape[2], dtype=torch.float64) for t in tokens}


@pytest.mark.parametrize("size", [0.01, 0.1, 0.5, 3.0])
def test_verdicts_agree_with_all_combinations(size):
    model, x, _ = case("bert classifier", gain=2.0, batch=1)
    replacements = near(x, (0, 2), size)
    found = tt.word_changes(model, x, replacements)
    with torch.no_grad():
        every = [model(inputs_embeds=y).logits for y in every_combination(x, replacements)]
    logits = torch.cat(every)
    assert found.combinations == len(logits) == 16
    same = bool((logits.argmax(dim=1) == found.predicted).all())
    assert found.verdict != "proved" or same
    assert found.verdict != "refuted" or not same
    if size == 0.01:
        assert found.verdict == "proved"
        own = logits[:, found.predicted]
        others = logits.clone()
        others[:, found.predicted] = -math.inf
        assert found.margin <= float((own - others.amax(dim=1)).min())
        assert found.margin > 0


def test_an_example_changes_the_class():
    net = torch.nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.eye(2))
    x = torch.tensor([[[1.0, 0.5]]], dtype=torch.float64)
    words = torch.tensor([[1.0, 0.6], [0.0, 1.0]], dtype=torch.float64)
    found = tt.word_changes(net, x, {0: words})
    assert (found.verdict, found.example, found.predicted) == ("refuted", {0: 1}, 0)
    assert tt.word_changes(net, x, {0: words[:1]}).margin == pytest.approx(0.4, rel=1e-9)


@pytest.mark.parametrize("block", range(3))
def test_every_bound_holds_for_mixtures(block):
    """Random networks, random mixtures of replacements, every operation."""
    checked = 0
    for seed in range(500 + 12 * block, 512 + 12 * block):
        net, x = random_network(seed)
        torch.manual_seed(seed)
        replacements = near(x, range(0, x.shape[1], 2), 10 ** float(-3 * torch.rand(())))
        question, _ = ask(net, At(x), None, None, None, "l2", 0)
        points = list(every_combination(x, replacements))[:24]
        mixture = torch.rand(6, len(points), dtype=torch.float64)
        mixture = mixture / mixture.sum(dim=1, keepdim=True)
        mixed = torch.einsum("mp,ptw->mtw", mixture, torch.cat(points))
        try:
            engine = Engine(record(question, 0, CPU), ReplacementSet(x[0], replacements))
            check_every_bound(engine, question, torch.cat((torch.cat(points), mixed)))
        except UnboundedError:
            continue
        checked += 1
    assert checked > 8


def test_nearest_words():
    table = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [5.0, 5.0]])
    found = tt.nearest_words(table, [0, None, 3], 2)
    assert list(found) == [0, 2]
    assert found[0].tolist() == [[1.0, 0.0], [0.0, 2.0]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, x: tt.word_changes(m, x, {}), "at least one"),
        (lambda m, x: tt.word_changes(m, x, {9: x[0]}), "0 to 4"),
        (lambda m, x: tt.word_changes(m, x, {0: x[0, :, :3]}), "must be"),
        (lambda m, x: tt.word_changes(m, x, {0: x[0] * math.nan}), "NaN"),
        (lambda m, x: tt.word_changes(m, torch.cat((x, x)), {0: x[0]}), "one input"),
    ],
)
def test_bad_replacements_are_refused(call, words):
    model, x, _ = case("bert classifier", batch=1)
    with pytest.raises(ValueError, match=words):
        call(model, x)


def test_a_constant_before_a_norm_layer_is_no_obstacle():
    """Nothing of what follows a constant is linear in the input."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 8),
        torch.nn.Softmax(dim=-1),
        torch.nn.LayerNorm(8),
        torch.nn.Linear(8, 2),
    ).double()
    x = torch.randn(1, 1, 4, dtype=torch.float64)
    found = tt.word_changes(net, x, {0: x[0] + 1e-9 * torch.randn(5, 4, dtype=torch.float64)})
    assert found.verdict == "proved"


def test_a_time_limit_leaves_the_verdict_open():
    model, x, _ = case("bert classifier", batch=1)
    found = tt.word_changes(model, x, near(x, (1,), 1e-3), time_limit=0.0)
    assert found.verdict == "open"
