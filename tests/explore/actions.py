"""What people do to the page, as functions of a browser."""

from __future__ import annotations

import json
from typing import Any

from tests.helpers.browser import Browser

VIEWS = ("softmax", "attention", "games")
OPEN = ".panel:not([hidden]) "  # of the view that is open


def state(browser: Browser, view: str = "softmax") -> dict[str, Any]:
    """What a view shows."""
    return dict(browser.run(f"taut.store.state.{view}"))


def text_of(browser: Browser, selector: str) -> str:
    """Text of the first such element of the open view."""
    return str(browser.run(f"document.querySelector({json.dumps(OPEN + selector)}).textContent"))


def enter(browser: Browser, selector: str, value: object, event: str = "input") -> None:
    """Put a value into a field, a slider or a list, as typing or dragging does."""
    browser.run(
        f"""{{
          const node = document.querySelector({json.dumps(OPEN + selector)});
          node.value = {json.dumps(value)};
          node.dispatchEvent(new Event('{event}', {{bubbles: true}}));
        }}"""
    )
    browser.settle()


def address(browser: Browser) -> str:
    """What stands after # once the page has written its state there, which waits for a pause."""
    browser.run(
        """new Promise((done) => {
          const look = () => taut.store.pause === 0 ? done() : setTimeout(look, 20);
          look();
        })"""
    )
    return str(browser.run("location.hash")).removeprefix("#")


def press(browser: Browser, words: str) -> None:
    """Press the button with these words."""
    browser.run(
        f"""[...document.querySelectorAll('button')].find(
          (node) => node.checkVisibility() && node.textContent === {json.dumps(words)}).click()"""
    )
    browser.settle()


def focus(browser: Browser, selector: str) -> None:
    """Move the keyboard's focus."""
    browser.run(f"document.querySelector({json.dumps(selector)}).focus()")
