"""Draw docs/explore.gif from the real page: ``python -m experiments.explore_animation``.

Needs Chromium and Pillow. Three scenes, one for each view: a logit is dragged, the most watched
tokens of a head are flipped, and a game is cooled until its players run in circles.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from taut.explore import open_address
from tests.helpers.browser import Browser, chromium

TARGET = Path(__file__).parents[1] / "docs" / "explore.gif"
WIDTH, HEIGHT, SCALE = 1120, 700, 0.8
COLOURS, LARGEST = 128, 1_000_000
# Colours of thin lines, which a palette made from areas would leave out.
ACCENTS = ("#0b63a8", "#b4500a", "#7b2d82", "#00735a", "#f3d9bf", "#a9cbe6")
QUICK, PAUSE, REST = 90, 900, 2200  # milliseconds


def scenes() -> Iterator[tuple[str, int]]:
    """Addresses in the order in which they are shown, and for how long."""
    drag = np.concatenate([np.linspace(2, -0.5, 16), np.linspace(-0.5, 1, 9)])
    yield "softmax?x=2,1,0&seed=1", PAUSE
    for logit in drag:
        yield f"softmax?x={logit:.2f},1,0&seed=1", QUICK
    yield "softmax?x=1,1,0&seed=1", REST
    yield "attention", REST
    yield "attention?flip=1", REST
    yield "games?a=1,-1;-1,2&t=3", PAUSE
    for temperature in np.geomspace(3, 0.7, 18):
        yield f"games?a=1,-1;-1,2&t={temperature:.3f}", QUICK
    yield "games?a=1,-1;-1,2&t=0.7", REST


def main() -> None:
    """Take a picture of each scene and join them."""
    from PIL import Image

    program = chromium()
    if program is None:
        raise SystemExit("this needs chromium")
    frames, times = [], []
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": SCALE}
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder), program) as browser:
        browser.open(open_address(), WIDTH, HEIGHT)
        for address, time in scenes():
            browser.run(f"location.hash = {'#' + address!r}")
            browser.settle()
            browser.settle()
            picture = Image.open(io.BytesIO(browser.picture(clip=clip))).convert("RGB")
            frames.append(picture)
            times.append(time)
    # One palette for all, from frames of each view, so that what stands still stays the same.
    chosen = [frames[0], frames[-22], frames[-1]]
    chosen += [Image.new("RGB", (frames[0].width, 40), colour) for colour in ACCENTS]
    sheet = Image.new("RGB", (frames[0].width, sum(frame.height for frame in chosen)))
    top = 0
    for frame in chosen:
        sheet.paste(frame, (0, top))
        top += frame.height
    palette = sheet.quantize(COLOURS)
    few = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    few[0].save(TARGET, save_all=True, append_images=few[1:], duration=times, loop=0, optimize=True)
    size = TARGET.stat().st_size
    print(f"{TARGET}: {len(frames)} frames, {size:,} bytes")
    if size >= LARGEST:
        raise SystemExit("that is too large")


if __name__ == "__main__":
    main()
