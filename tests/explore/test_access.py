"""Keyboard, screen reader, finger, contrast, reduced motion, and the guided tour."""

from __future__ import annotations

import re

import numpy as np
import pytest

import taut
from tests.explore.actions import VIEWS, focus, press, state

NAMELESS = """[...document.querySelectorAll(
    'button, input, select, textarea, [role=slider], svg[role=img], [role=tabpanel], section')]
  .filter((node) => node.checkVisibility())
  .filter((node) => !(node.getAttribute('aria-label') || node.getAttribute('aria-labelledby')
    || node.labels?.length || (node.tagName === 'BUTTON' && node.textContent.trim())
    || node.querySelector('h3')))
  .map((node) => node.outerHTML.slice(0, 90))"""
SMALL = """[...document.querySelectorAll(
    'button, select, input:not([type=range], [type=checkbox]), textarea')]
  .filter((node) => node.checkVisibility())
  .map((node) => [node.getBoundingClientRect(), node.outerHTML.slice(0, 80)])
  .filter(([box]) => box.height < 24 || box.width < 20).map(([, text]) => text)"""
TEXTS = """(() => {
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)|transparent/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const kinds = 'h1, h2, h3, h4, p, span, label, button, td, th, dt, dd, li, strong, code, text';
  return [...document.querySelectorAll(kinds)]
    .filter((node) => node.checkVisibility())
    .filter((node) => !node.closest('[disabled], .hidden, .unseen, noscript'))
    .filter((node) => [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim()))
    .map((node) => {
      const style = getComputedStyle(node);
      const ink = node.tagName === 'text' ? style.fill : style.color;
      return [ink, behind(node), node.textContent.slice(0, 30)];
    });
})()"""


def test_keyboard_alone(visit):
    browser = visit()
    focus(browser, ".logits input[type=range]")
    browser.key("ArrowRight")
    browser.settle()
    assert state(browser)["logits"][0] == pytest.approx(2.05)
    focus(browser, ".handle")
    browser.key("ArrowDown")
    browser.settle()
    s = taut.softmax(state(browser)["logits"])
    assert s[0] < taut.softmax([2.05, 1.0, 0.0])[0]
    focus(browser, "#tab-softmax")
    browser.key("ArrowRight")
    browser.settle()
    reached = "[taut.store.state.view, document.activeElement.id]"
    assert browser.run(reached) == ["attention", "tab-attention"]
    focus(browser, ".large-map")
    browser.key("ArrowUp")
    browser.settle()
    assert state(browser, "attention")["query"] >= 0
    said = browser.run("document.querySelector('.large-map').getAttribute('aria-valuetext')")
    assert said.startswith("token ")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [1280, 375])
def test_a_screen_reader_and_a_finger_find_their_way(visit, view, width):
    browser = visit(view, width, 812)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert browser.run(NAMELESS) == []
    assert browser.run(SMALL) == []
    ids = browser.run("[...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))
    assert browser.run("document.querySelectorAll('h1').length") == 1
    assert browser.run("document.querySelector('#announcer').getAttribute('aria-live')") == "polite"
    assert browser.run("[...document.querySelectorAll('table')].every((table) => table.caption)")


def test_a_finger_drags_the_point_of_the_triangle(visit):
    browser = visit("softmax?x=0,0,0", 375, 812)
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    browser.run("document.querySelector('.triangle').scrollIntoView({block: 'center'})")
    box = browser.run("document.querySelector('.overlay').getBoundingClientRect().toJSON()")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    scrolled = browser.run("scrollY")
    touch = "Input.dispatchTouchEvent"
    browser.call(touch, type="touchStart", touchPoints=[{"x": x, "y": y}])
    for step in range(1, 6):
        browser.call(touch, type="touchMove", touchPoints=[{"x": x, "y": y - 10 * step}])
    browser.call(touch, type="touchEnd", touchPoints=[])
    browser.call("Emulation.setTouchEmulationEnabled", enabled=False)
    browser.settle()
    assert taut.softmax(state(browser)["logits"])[0] > 0.45
    assert browser.run("scrollY") == scrolled  # the page stands still under the finger


def test_changes_are_announced_after_a_pause(visit):
    browser = visit()
    press(browser, "+")
    assert "0.3" not in browser.run("document.querySelector('#announcer').textContent")
    browser.run("new Promise((done) => setTimeout(done, 800))")
    said = browser.run("document.querySelector('#announcer').textContent")
    value = taut.local_lipschitz([2.0, 1.0, 0.0, 0.0]).value
    assert said == f"Constant in l2: {float(value):.4f}"


def luminance(colour: str) -> float:
    channels = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(visit, view, dark):
    """Text has a contrast of 4.5 with what is behind it (WCAG AA); disabled buttons need not."""
    found = visit(view, dark=dark).run(TEXTS)
    assert len(found) > 40
    for ink, paper, words in found:
        high, low = sorted((luminance(ink), luminance(paper)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (words, ink, paper)


def test_the_tour(visit):
    browser = visit("games", 375, 812)
    press(browser, "Tour")
    seen = []
    for _ in range(20):
        browser.settle()
        seen.append(browser.run("taut.store.state.view"))
        assert browser.run("document.querySelector('.pointed').checkVisibility()")
        assert browser.run("document.activeElement === document.querySelector('.tour h2')")
        if browser.run("document.querySelector('.tour .primary').textContent") == "Done":
            break
        press(browser, "Next")
    assert 6 <= len(seen) <= 12
    assert seen == sorted(seen, key=VIEWS.index)
    assert set(seen) == set(VIEWS)
    press(browser, "Back")
    browser.key("Escape")
    assert browser.run("document.querySelector('.tour').hidden")
    assert browser.run("document.activeElement.textContent") == "Tour"
    assert browser.run("document.querySelector('.pointed')") is None
    assert browser.complaints == []


def test_motion_is_reduced_where_it_is_asked_for(visit):
    moving = "getComputedStyle(document.querySelector('button')).transitionDuration"
    assert visit().run(moving) == "0s"
