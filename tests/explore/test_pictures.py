"""Pictures of every view, wide and narrow, by day and by night, against ones that were looked at.

Fonts and their smoothing differ between computers, so pictures are compared in coarse blocks: a
card that is missing, empty or in other colours is seen, a letter that is one pixel wider is not.
After a change that is meant, look at what ``python -m tests.explore.test_pictures`` draws, and
commit it.
"""

from __future__ import annotations

import io
import tempfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from taut.explore.page import BUILT
from tests.helpers.browser import Browser, chromium

image = pytest.importorskip("PIL.Image")

FOLDER = Path(__file__).with_name("pictures")
SIZES = {1280: 900, 375: 812}
CASES = list(product(("softmax", "attention", "games"), SIZES, ("light", "dark")))
SHARE, DIFFERENCE = 0.05, 25  # of the blocks, of 255


def taken(browser: Browser, view: str, width: int, theme: str):
    """The whole page, a quarter as large."""
    browser.open(f"{BUILT.as_uri()}#{view}", width, SIZES[width], dark=theme == "dark")
    browser.settle()
    browser.settle()
    picture = image.open(io.BytesIO(browser.picture(whole=True))).convert("RGB")
    return picture.resize((picture.width // 4, picture.height // 4), image.Resampling.BOX)


def blocks(picture, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(picture.resize(size, image.Resampling.BOX), dtype=float)


def share_that_differs(one, other) -> float:
    size = (32, max(1, round(32 * other.height / other.width)))
    return float((np.abs(blocks(one, size) - blocks(other, size)).max(axis=-1) > DIFFERENCE).mean())


@pytest.mark.parametrize(("view", "width", "theme"), CASES)
def test_the_view_looks_as_it_did(started, view, width, theme):
    picture = taken(started, view, width, theme)
    known = image.open(FOLDER / f"{view}-{width}-{theme}.png").convert("RGB")
    assert abs(picture.height / known.height - 1) < 0.12
    assert share_that_differs(picture, known) < SHARE


def test_a_broken_view_would_be_noticed(started):
    known = image.open(FOLDER / "softmax-1280-light.png").convert("RGB")
    assert share_that_differs(taken(started, "softmax", 1280, "dark"), known) > SHARE
    assert share_that_differs(taken(started, "games", 1280, "light"), known) > SHARE
    started.open(f"{BUILT.as_uri()}#softmax")
    started.run("document.querySelector('.cards').style.visibility = 'hidden'")
    broken = image.open(io.BytesIO(started.picture(whole=True))).convert("RGB")
    assert share_that_differs(broken, known) > SHARE


def draw() -> None:
    """Draw the pictures anew."""
    FOLDER.mkdir(exist_ok=True)
    program = chromium()
    assert program is not None
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder), program) as browser:
        for view, width, theme in CASES:
            few = taken(browser, view, width, theme).quantize(64)
            few.save(FOLDER / f"{view}-{width}-{theme}.png", optimize=True)


if __name__ == "__main__":
    draw()
