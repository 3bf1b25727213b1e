"""The page as people use it, in a real browser."""

from __future__ import annotations

import contextlib
import io
import json
import re

import numpy as np
import pytest

import taut
from tests.explore.actions import VIEWS, address, enter, press, state, text_of

SLIDER = ".logits input[type=range]"


def test_typed_numbers(visit):
    """A comma is a point, a long minus a minus; nonsense is marked and changes nothing."""
    browser = visit()
    for typed, expected in (("1,5", 1.5), ("−3", -3), ("1e1", 10), ("99999", 50)):
        enter(browser, ".logits .number", typed, "change")
        assert state(browser)["logits"][0] == expected
    invalid = "document.querySelector('.logits .number').getAttribute('aria-invalid')"
    for nonsense in ("abc", "", "0x10", "1 2", "NaN"):
        enter(browser, ".logits .number", nonsense, "change")
        assert state(browser)["logits"][0] == 50
        assert browser.run(invalid) == "true"


def test_the_address_holds_the_state(visit):
    browser = visit("softmax?x=1,0.25,-3,4&t=0.5&p=inf&size=2&direction=1,0,0,-1&seed=4")
    found = state(browser)
    assert found["logits"] == [1, 0.25, -3, 4]
    assert found["direction"] == [1, 0, 0, -1]
    assert (found["temperature"], found["size"], found["seed"]) == (0.5, 2, 4)
    assert browser.run("taut.store.state.softmax.p === Infinity")
    enter(browser, SLIDER, 3)
    kept = state(browser)
    again = visit(address(browser))
    assert state(again) == kept
    again.run("location.hash = '#games?a=0,1;2,3&t=2'")
    again.settle()
    assert state(again, "games") == {"payoffs": [[0, 1], [2, 3]], "temperature": 2}
    assert again.run("taut.store.state.view") == "games"


@pytest.mark.parametrize("view", VIEWS)
def test_every_address_opens_what_it_came_from(visit, view):
    changes = {
        "softmax": {"logits": [1.5, -2, 0.125], "p": 1.25, "direction": [0.5, 0, -1]},
        "attention": {"text": "a & b=c?d#e%\n<f>", "flip": True, "everywhere": True, "push": -1.5,
                      "swap": {"place": 1, "text": "x,y"}, "query": 3, "layer": 1},
        "games": {"payoffs": [[1, 2.5, -3]], "temperature": 0.25},
    }[view]  # fmt: skip
    browser = visit(view)
    browser.run(f"taut.store.update('{view}', {json.dumps(changes)})")
    browser.settle()
    kept = state(browser, view)
    assert kept | changes == kept
    again = visit(address(browser))
    assert state(again, view) == kept


def test_undo_and_redo(visit):
    browser = visit()
    first = state(browser)
    for value in (3, 4, 5):  # one drag is one step
        enter(browser, SLIDER, value)
    press(browser, "+")
    assert len(state(browser)["logits"]) == 4
    browser.key("z", modifiers=2)
    browser.settle()
    assert state(browser)["logits"] == [5, 1, 0]
    press(browser, "Undo")
    assert state(browser) == first
    press(browser, "Redo")
    assert state(browser)["logits"][0] == 5


def test_the_point_of_the_triangle_can_be_dragged(visit):
    browser = visit("softmax?x=0,0,0")
    browser.run("document.querySelector('.triangle').scrollIntoView({block: 'center'})")
    box = browser.run("document.querySelector('.overlay').getBoundingClientRect().toJSON()")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    browser.mouse("mousePressed", x, y)
    for step in range(1, 6):
        browser.mouse("mouseMoved", x, y - 12 * step)
    browser.mouse("mouseReleased", x, y - 60)
    browser.settle()
    s = taut.softmax(state(browser)["logits"])
    assert s[0] > 0.5
    assert abs(s[1] - s[2]) < 0.05


def test_a_bent_push_is_kept_and_given_back(visit):
    browser = visit("softmax?x=2,1,0")
    enter(browser, ".direction input[type=range]", -0.5)
    assert state(browser)["direction"][0] == -0.5
    assert "really moves them" in text_of(browser, ".push")
    press(browser, "Back to the worst direction")
    assert state(browser)["direction"] is None


def printed(lines: str) -> str:
    """What Python lines print."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(lines, {})
    return shown.getvalue()


def test_python_lines_of_softmax_give_the_numbers_shown(visit):
    browser = visit("softmax?x=1.25,0.5,-1,0&t=0.5&p=3&size=0.7&seed=3")
    x, lines = [1.25, 0.5, -1.0, 0.0], text_of(browser, ".python")
    said = printed(lines)
    low, high = re.findall(r"\d\.\d+", text_of(browser, ".big"))
    bound = taut.local_lipschitz(x, 3, scale=2.0)
    assert repr(bound) in said
    assert float(low) <= float(bound.lower) < float(low) + 1.01e-4
    assert float(high) - 1.01e-4 < float(bound.upper) <= float(high)
    (change,) = re.findall(r"true change ([\d.]+),", text_of(browser, ".cards"))
    step = re.search(r"step = np.array\((.*?)\)", lines)
    assert step is not None
    moved = taut.softmax(np.add(x, json.loads(step[1])), scale=2.0)
    size = np.linalg.norm(moved - taut.softmax(x, scale=2.0), 3)
    assert abs(size - float(change)) < 6e-5
    assert str(size) in said


def test_python_lines_of_games_give_the_numbers_shown(visit):
    browser = visit("games?a=1,-1;-1,2&t=1.5")
    said = printed(text_of(browser, ".python"))
    assert "contracts by 0.6944 a round" in said
    assert "0.6945" in text_of(browser, ".big")  # rounded up
    assert "0.5895" in said
    assert "59.0 %" in text_of(browser, ".strategies")


def test_python_lines_of_attention_give_the_numbers_shown(visit):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    browser = visit("attention?t=2&query=5&swap=2,King")
    said = printed(text_of(browser, ".python")).splitlines()
    for model, lines in zip((".plain", ".constrained"), np.array_split(said, 2), strict=True):
        cells = f"document.querySelectorAll('{model} .numbers tbody td:last-child')"
        shown = browser.run(f"[...{cells}].map((cell) => Number(cell.textContent))")
        for line, number in zip(lines[:2], shown, strict=False):
            assert abs(float(re.findall(r"exact ([\d.]+)", line)[0]) - number) < 6e-4


def test_what_one_does_to_a_model_shows(visit):
    browser = visit("attention")
    results = "[...document.querySelectorAll('.model .result')].map((node) => node.textContent)"
    assert all("Nothing is changed" in text for text in browser.run(results))
    press(browser, "Flip it")
    flipped = text_of(browser, ".headline")
    assert "flips the two most watched tokens" in flipped
    plain, constrained = (float(number) for number in re.findall(r"([\d.]+) %", flipped))
    assert plain > 1 > constrained  # of the prediction
    for text in browser.run(results):
        moved, most = re.findall(r"([\d.]+) %", text)[:2]
        assert float(moved) <= float(most)
    press(browser, "Flip it back")
    assert all("Nothing is changed" in text for text in browser.run(results))
    browser.run("document.querySelectorAll('.model.constrained .head')[2].click()")
    browser.settle()
    assert (state(browser, "attention")["layer"], state(browser, "attention")["head"]) == (0, 2)


def test_copied_numbers(visit):
    browser = visit()
    browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    press(browser, "Copy")
    exact = float(taut.local_lipschitz([2.0, 1.0, 0.0]).value)
    assert abs(float(browser.run("window.copied")) - exact) < 1e-15
    press(browser, "Copy link")
    assert browser.run("window.copied").endswith("#softmax?x=2%2C1%2C0&t=1&p=2&size=1&seed=1")
    press(browser, "Copy these lines")
    assert browser.run("window.copied").startswith("import math")
    press(browser, "Attention")
    press(browser, "Copy the numbers")
    assert 0 < json.loads(browser.run("window.copied"))["plain"]["before"]["two"] <= 0.5


def test_presets_are_what_they_say(visit):
    """Each tightness construction of the papers attains, or nears, what it is for."""
    browser = visit()
    within = {
        "Two equal logits": 0,
        "One against the rest, l1": 0,
        "One against the rest, l∞": 0,
        "Two share almost all": 2e-3,
        "The same in l3": 2e-3,
        "Example 1 of Nair 2025": 1e-8,
    }
    options = "[...document.querySelectorAll('.chooser option')].slice(1)"
    names = browser.run(f"{options}.map((option) => option.textContent)")
    assert set(within) < set(names)
    constant = """(({logits, p, temperature}) =>
      taut.localConstant(logits, p, 1 / temperature).lower)(taut.store.state.softmax)"""
    for i, name in enumerate(names):
        enter(browser, ".chooser select", str(i), "change")
        assert browser.run("document.querySelector('.chooser select').value") == str(i)
        if name in within:
            assert abs(browser.run(constant) - 0.5) <= within[name] + 1e-12
        if name == "A step that attains the tanh bound":
            size = browser.run("taut.trueStep(taut.store.state.softmax.logits, [3, -3], 1, 1)")
            assert size == pytest.approx(browser.run("taut.stepBounds([3, -3], 1, 1).least"), 1e-12)
            real, ceiling = re.findall(
                r"true change ([\d.]+), ceiling ([\d.]+)\.", text_of(browser, ".cards")
            )[0]
            assert float(real) == pytest.approx(float(ceiling), abs=1.1e-4)
