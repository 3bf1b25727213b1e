"""Parallel text from aligned files: line n of one translates line n of the other."""

from __future__ import annotations

import warnings
from itertools import zip_longest
from pathlib import Path

from taut.reproduce.seq2seq.corpus import Corpus, Pair, assembled, tidy
from taut.reproduce.seq2seq.text_files import TextFile, text_files

PARTS = {"train": ("train",), "valid": ("valid", "val", "validation", "dev")}
NTREX = {
    "de": "deu",
    "en": "eng",
    "et": "est",
    "fr": "fra",
    "id": "ind",
    "mk": "mkd",
    "ro": "ron",
    "vi": "vie",
}


def local_corpus(
    folder: str | Path,
    source: str,
    target: str,
    *,
    test: str = "test",
    seed: int = 0,
    name: str | None = None,
) -> Corpus:
    """Parallel text of a folder with ``train.de`` and ``train.en``, and the like for other parts.

    Files may end in ``.txt`` and ``.gz`` and may be members of zip files. The part valid is called
    valid, val, validation or dev; the name of the test part begins with ``test``: where there are
    several, ``test`` says which. Parts that miss are split off from train.
    """
    folder = Path(folder)
    files: dict[tuple[str, str], TextFile] = {}
    for file in text_files(folder):
        stem, _, language = file.name.removesuffix(".gz").removesuffix(".txt").rpartition(".")
        if language in (source, target):
            files.setdefault((stem, language), file)  # sorted: the plain file before the .gz
    stems = {stem for stem, _ in files}
    pairs: dict[str, list[Pair]] = {}
    for part in ("train", "valid", "test"):
        found = _stem(part, stems, test, folder)
        if found is not None:
            pairs[part] = aligned(*(_file(files, found, side, folder) for side in (source, target)))
    if "train" not in pairs:
        wanted = f"train.{source} and train.{target}"
        there = ", ".join(sorted(str(file) for file in files.values())) or "nothing of the kind"
        raise ValueError(f"{folder} needs {wanted} (or with .txt, .gz): it has {there}")
    return assembled(name or folder.resolve().name, source, target, pairs, seed=seed)


def _stem(part: str, stems: set[str], test: str, folder: Path) -> str | None:
    """The one name of a part, without language."""
    if part == "test":
        found = [test] if test in stems else sorted(s for s in stems if s.startswith(test))
    else:
        found = [stem for stem in PARTS[part] if stem in stems]
    if len(found) > 1:
        hint = "name one of them as test" if part == "test" else "keep one of them"
        raise ValueError(f"{folder} has several files of {part} ({', '.join(found)}): {hint}")
    if not found and test != "test" and part == "test":
        raise ValueError(f"{folder} has no {test}: it has {', '.join(sorted(stems)) or 'nothing'}")
    return found[0] if found else None


def _file(
    files: dict[tuple[str, str], TextFile], stem: str, language: str, folder: Path
) -> TextFile:
    if (stem, language) not in files:
        other = next(str(file) for (name, _), file in files.items() if name == stem)
        raise ValueError(f"there is no {stem}.{language} in {folder} that goes with {other}")
    return files[stem, language]


def aligned(one: TextFile, two: TextFile) -> list[Pair]:
    """The lines of two files side by side; lines that are empty in one of them are left out.

    Each such line is a translation that is lost, or a sign that the files do not fit: a warning
    says how many there are and where they begin.
    """
    left, right = ([line.strip() for line in file.lines()] for file in (one, two))
    apart = [n for n, (a, b) in enumerate(zip_longest(left, right), 1) if bool(a) != bool(b)]
    if len(left) != len(right):
        line = apart[0] if apart else min(len(left), len(right)) + 1
        raise ValueError(
            f"{one} has {len(left)} lines and {two} has {len(right)}: they should be translations "
            f"line by line; they seem to come apart at line {line}"
        )
    if apart:
        warnings.warn(
            f"{len(apart)} lines are empty in {one} or in {two} alone, the first is line "
            f"{apart[0]}: left out",
            stacklevel=3,
        )
    return [(tidy(a), tidy(b)) for a, b in zip(left, right, strict=True) if a and b]


def ntrex(folder: str | Path, source: str, target: str) -> list[Pair]:
    """The 1997 sentences of NTREX-128 (news), for testing alone: there is nothing to train on."""
    folder = Path(folder)
    files = []
    for language in (source, target):
        code = NTREX.get(language, language)
        file = folder / ("src.eng.txt" if code == "eng" else f"ref.{code}.txt")
        if not file.is_file():
            there = ", ".join(sorted(path.name for path in folder.glob("*.txt"))) or "no text files"
            raise ValueError(f"there is no {file.name} for {language!r} in {folder}: {there}")
        files.append(TextFile(file))
    return aligned(*files)
