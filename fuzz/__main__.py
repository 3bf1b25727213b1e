"""Try to break the bounds of taut for some time, and print what was found."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # no case needs the network

try:
    from fuzz.areas import AREAS
    from fuzz.campaign import again, campaign
    from fuzz.table import page, text
except ModuleNotFoundError as error:
    mend = 'pip install -c constraints.txt -e ".[test,torch]"'
    sys.exit(f"python -m fuzz needs {error.name}: {mend}, or make fuzz, which does it")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to run")
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="by default one for each core"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("taut-fuzz"),
        help="where the state is kept; a run that was stopped is continued from there",
    )  # fmt: skip
    parser.add_argument("--areas", nargs="+", choices=list(AREAS), default=list(AREAS))
    parser.add_argument("--results", type=Path, help="also write the table to this file")
    parser.add_argument("--again", type=Path, help="judge a kept case once more, and do no more")
    options = parser.parse_args()
    if options.again is not None:
        ratios = again(options.again)
        print("\n".join(map(str, ratios)))
        return int(not all(ratio <= 1 for ratio in ratios))
    tallies = campaign(
        options.areas,
        seconds=60 * options.minutes,
        seed=options.seed,
        processes=options.processes,
        folder=options.folder,
    )
    print(text(tallies))
    if options.results is not None:
        # Minutes and folders of the runs that were continued are not known here.
        command = (
            f"python -m fuzz --seed {options.seed} --processes {options.processes} "
            f"--results {options.results}"
        )
        options.results.write_text(page(tallies, command))
    return int(any(tally.broken for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
