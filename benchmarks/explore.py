"""Work for a frame of the interactive page while something is dragged: a frame has 16 ms.

``python -m benchmarks.explore``; needs Chromium. Median and 95 % are times from the change of the
state until the layout is done again; they grow with what else the machine does. The processor time
is what the main thread spends on a frame altogether: script, style, layout, paint.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.timing import table
from taut.explore import open_address
from tests.helpers.browser import Browser, chromium

FRAME = 16.0  # milliseconds
SIX = "3,-1,2,0,-2,1;-2,4,-1,1,0,-3;1,0,-3,2,3,-1;-1,-2,1,-4,2,3;0,2,-2,3,-1,-2;2,-3,1,-1,1,0"
TWELVE = "softmax?x=3,2.9,0,0,0,0,0,0,0,0,0,0"
DRAGS = {
    "softmax, a logit of 3": ("softmax?x=2,1,0", ".logits input[type=range]"),
    "softmax, a logit of 12": (TWELVE, ".logits input[type=range]"),
    "softmax, a logit of 12, p = 3": (TWELVE + "&p=3", ".logits input[type=range]"),
    "softmax, a push of 12": (TWELVE, ".direction input[type=range]"),
    "attention, heat of a head, 19 tokens": ("attention", ".slider input[type=range]"),
    "games, temperature, 6 × 6": (
        f"games?a={SIX}&t=3.5",
        ".slider input[type=range]",
    ),
}
DRAG = """(async () => {
  const slider = document.querySelector(SELECTOR);
  const [low, high] = [Number(slider.min), Number(slider.max)];
  const show = taut.store.render, work = [];
  taut.store.render = () => {
    const start = performance.now();
    show();
    document.body.getBoundingClientRect();
    work.push(performance.now() - start);
  };
  for (let i = 0; i < FRAMES; i++) {
    slider.value = String(low + (high - low) * (0.5 + 0.4 * Math.sin(i / 15)));
    slider.dispatchEvent(new Event("input", {bubbles: true}));
    await new Promise(requestAnimationFrame);
  }
  taut.store.render = show;
  return work;
})()"""


def spent(browser: Browser) -> float:
    """Milliseconds of processor time that the main thread of the page has spent on everything."""
    metrics = browser.call("Performance.getMetrics")["metrics"]
    return 1000 * next(each["value"] for each in metrics if each["name"] == "TaskDuration")


def dragged(browser: Browser, selector: str, frames: int) -> list[float]:
    """Milliseconds of work for each frame while a slider moves to and fro."""
    place = f"'.panel:not([hidden]) {selector}'"
    return sorted(browser.run(DRAG.replace("SELECTOR", place).replace("FRAMES", str(frames))))


def frames() -> str:
    """A table of the work for a frame, in milliseconds and as a share of the frame."""
    program = chromium()
    if program is None:
        return "There is no Chromium on this machine."
    rows = []
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder), program) as browser:
        browser.call("Performance.enable", timeDomain="threadTicks")
        for name, (address, selector) in DRAGS.items():
            browser.open(f"{open_address()}#{address}")
            browser.settle()
            dragged(browser, selector, 40)  # until the page is warm
            before = spent(browser)
            work = dragged(browser, selector, 200)
            all_of_it = (spent(browser) - before) / len(work)
            numbers = statistics.median(work), work[int(0.95 * len(work))], all_of_it
            rows.append([name, *(f"{n:.1f}" for n in numbers), f"{all_of_it / FRAME:.2f}"])
    header = ["dragged", "median, ms", "95 %, ms", "processor time, ms", "of a frame"]
    return table(header, rows)


if __name__ == "__main__":
    print(frames())
