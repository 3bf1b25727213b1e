"""Many runs in a queue: several at a time, each once, resumed after every interruption."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from taut._base.lock import InUseError, locked
from taut._base.terminal_text import say
from taut.reproduce.seq2seq.corpus import Corpus, Pair
from taut.reproduce.seq2seq.needed_packages import for_training
from taut.reproduce.seq2seq.read import checksum
from taut.reproduce.seq2seq.recipe import Recipe
from taut.reproduce.seq2seq.run import run
from taut.reproduce.seq2seq.run_folder import FACTS
from taut.reproduce.seq2seq.scored_answers import Scorer
from taut.reproduce.seq2seq.scoring import score_translations
from taut.reproduce.seq2seq.stopping import Stopped, interruptible

WAIT = 2.0  # seconds between two looks at runs of other processes


def folder_of(recipe: Recipe, corpus: Corpus, folder: Path) -> Path:
    """Where a run is: by its method and seed, and a mark of everything else."""
    method = str(recipe.method).replace(", ", "-")
    return folder / f"{method}-seed{recipe.seed}-{recipe.mark(checksum(corpus), _processes())}"


def _processes() -> int:
    """The number of processes of one training, as torchrun and accelerate set it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def run_all(
    recipes: Sequence[Recipe],
    corpus: Corpus,
    folder: str | Path,
    score: Scorer = score_translations,
    *,
    tests: Mapping[str, Sequence[Pair]] | None = None,
    jobs: int = 1,
) -> list[dict[str, Any]]:
    """Run all recipes; their facts in the same order.

    A run that is done is not done again; one that was stopped goes on. Other processes, of this
    command or of another one on the same folder, take other runs: each is locked by who works on
    it, and the lock of a process that was killed is gone with it.

    Parameters
    ----------
    recipes, corpus, score, tests
        As in :func:`run`.
    folder
        Folder of all runs; each has its own folder inside.
    jobs
        Processes, which share the cores.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    folder = Path(folder)
    arguments = (list(recipes), corpus, folder, score, dict(tests or {}))
    places = [folder_of(recipe, corpus, folder) for recipe in recipes]
    done = sum((place / FACTS).exists() for place in places)
    if _first():
        say(f"{done} of {len(places)} runs are done, in {folder}")
    with interruptible():
        if jobs > 1 and _processes() == 1:
            codes = _in_workers(jobs, arguments)
            if STOPPED in codes:
                raise Stopped
            if not all((place / FACTS).exists() for place in places):
                raise RuntimeError(
                    f"a worker ended with an error ({', '.join(map(str, codes))}), which is "
                    "printed above unless it was killed; the same command goes on"
                )
        return _work(*arguments)  # after workers, this reads what they found


def _in_workers(jobs: int, arguments: tuple[Any, ...]) -> set[int | None]:
    """The exit codes of workers that share the runs; they end when this process does."""
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_worker, args=(jobs, *arguments), daemon=True) for _ in range(jobs)
    ]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException:  # Ctrl-C reaches the workers as well; other ends do not
        for worker in workers:
            worker.terminate()  # by SIGTERM: they save
        for worker in workers:
            worker.join()
        raise
    return {worker.exitcode for worker in workers} - {0}


STOPPED = 130


def _worker(jobs: int, *arguments: Any) -> None:
    with for_training():
        import torch

    torch.set_num_threads(max((os.cpu_count() or 1) // jobs, 1))
    try:
        _work(*arguments)
    except Stopped:
        sys.exit(STOPPED)
    except (ValueError, OSError, RuntimeError) as error:
        say(f"taut: {error}", file=sys.stderr)
        sys.exit(2)


def _work(
    recipes: list[Recipe], corpus: Corpus, folder: Path, score: Scorer,
    tests: dict[str, Sequence[Pair]],
) -> list[dict[str, Any]]:  # fmt: skip
    """All runs that nobody else works on; then wait for the others."""
    _until_done(recipes, corpus, folder, score, tests)
    return [
        run(corpus, recipe, folder_of(recipe, corpus, folder), score, tests) for recipe in recipes
    ]


def _until_done(
    recipes: list[Recipe], corpus: Corpus, folder: Path, score: Scorer,
    tests: dict[str, Sequence[Pair]],
) -> None:  # fmt: skip
    places = [folder_of(recipe, corpus, folder) for recipe in recipes]
    while True:
        for recipe, place in zip(recipes, places, strict=True):
            if (place / FACTS).exists():
                continue
            place.mkdir(parents=True, exist_ok=True)
            with _mine(place / FACTS) as mine:
                # Done by another while we looked, or not: the processes of a training agree.
                if _told(mine and not (place / FACTS).exists()):
                    _one(recipe, corpus, place, score, tests)
        parent = multiprocessing.parent_process()
        if all((place / FACTS).exists() for place in places) or (
            parent is not None and not parent.is_alive()
        ):
            return
        time.sleep(WAIT)


@contextmanager
def _mine(file: Path) -> Iterator[bool]:
    """Whether this process may write a file; the first process of a training asks for all."""
    with ExitStack() as held:
        try:
            if _first():
                held.enter_context(locked(file))
            mine = True
        except InUseError:
            mine = False
        yield mine


def _first() -> bool:
    with for_training():
        from accelerate import PartialState

    return bool(PartialState().is_main_process)


def _told(mine: bool) -> bool:
    """What the first process of a training says."""
    with for_training():
        from accelerate.utils import broadcast_object_list

    return bool(broadcast_object_list([mine])[0]) if _processes() > 1 else mine


def _one(
    recipe: Recipe, corpus: Corpus, place: Path, score: Scorer, tests: dict[str, Sequence[Pair]]
) -> None:
    began = time.monotonic()
    facts = run(corpus, recipe, place, score, tests)
    told = facts.get("failed") or ", ".join(
        f"{name} {found['headline']}" for name, found in facts["scores"].items()
    )
    if not _first():
        return
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    say(f"{recipe.method}, seed {recipe.seed}: {told} ({minutes}:{seconds:02d})")
