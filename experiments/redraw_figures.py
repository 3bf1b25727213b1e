"""Draw the figures of docs/results from their records: python experiments/redraw_figures.py."""

from __future__ import annotations

import json
from pathlib import Path

from taut.reproduce.figures import chart
from taut.reproduce.result import Curve, Plot


def main() -> None:
    for file in sorted(Path("docs/results").glob("*.json")):
        kept = json.loads(file.read_text(encoding="utf-8"))
        plots = kept.get("plots") if isinstance(kept, dict) else None
        if not plots:
            continue
        read = [
            Plot(**{**plot, "curves": [Curve(**curve) for curve in plot["curves"]]})
            for plot in plots
        ]
        picture = file.with_suffix(".svg")
        chart(read).save(str(picture))
        print(picture)


if __name__ == "__main__":
    main()
