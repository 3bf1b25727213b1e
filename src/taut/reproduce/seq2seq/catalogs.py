"""Parallel text from the translations of programs: gettext catalogs of installed packages."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from taut.reproduce.seq2seq.corpus import Corpus, Pair, assembled, cleaned, tidy
from taut.reproduce.seq2seq.mo import entries

LANGUAGES = ("de", "ro", "vi", "id", "et", "mk", "fr")
WORDS = 60  # at most, on either side
RATIO = 3  # at most, between the words of the two sides
SYSTEM = Path("/usr/share")

# What looks like an accelerator but is none: placeholders, tags, entities and addresses.
_FIXED = re.compile(r"%\([^)]*\)\w?|\$?\{[^}]*\}|<[^>]*>|&#?\w+;|\$\w+|\w+://\S+")
_LETTER = re.compile(r"[^\W\d_]")


def catalog_corpus(
    source: str,
    target: str,
    *,
    seed: int = 0,
    folders: Iterable[str | Path] | None = None,
) -> Corpus:
    """Messages of programs in English and another language, in either direction."""
    if (source == "en") == (target == "en"):
        raise ValueError(f"catalogs translate from English: one of {source!r}, {target!r} is 'en'")
    pairs = catalog_pairs(target if source == "en" else source, folders)
    if target == "en":
        pairs = [(other, english) for english, other in pairs]
    return assembled("catalogs", source, target, {"train": pairs}, seed=seed)


def catalog_pairs(language: str, folders: Iterable[str | Path] | None = None) -> list[Pair]:
    """Pairs (English, translation) of all catalogs of a language.

    Without folders, those of installed packages and of the system. A catalog is a file
    ``…/de/LC_MESSAGES/name.mo``; one of a country (``de_AT``) counts where there is no plain one.
    """
    places = _installed() if folders is None else [Path(folder) for folder in folders]
    found = list(_catalogs(places))
    chosen: dict[tuple[Path, str], tuple[bool, Path]] = {}
    for there, file in found:
        if there == language or there.startswith(f"{language}_"):
            place = file.parent.parent.parent, file.name
            chosen[place] = min(chosen.get(place, (True, file)), (there != language, file))
    pairs: list[Pair] = []
    broken = []
    for _, file in sorted(chosen.values()):
        try:
            pairs += _pairs(file)
        except (OSError, ValueError):
            broken.append(file)
    if broken:
        warnings.warn(
            f"{len(broken)} of {len(chosen)} catalogs cannot be read and are left out, the first "
            f"is {broken[0]}",
            stacklevel=2,
        )
    if not pairs:
        others = sorted({there.split("_")[0] for there, _ in found} - {language})
        raise ValueError(
            f"there are no translations from or into {language!r}: there are "
            f"{', '.join(others) or 'none at all'}; for more, pip install django wagtail pycountry "
            "(they are read, not imported), or give folders with LANGUAGE/LC_MESSAGES/*.mo"
        )
    return cleaned(pairs)


def _installed() -> list[Path]:
    """Folders of installed packages, and of programs of the system."""
    packages = [
        Path(place) for place in sys.path if Path(place).name in ("site-packages", "dist-packages")
    ]
    return [*packages, SYSTEM / "locale", *sorted(SYSTEM.glob("*/locale"))]


def _catalogs(places: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Language and file of each catalog."""
    for place in dict.fromkeys(places):
        for folder, _, names in os.walk(place):
            if os.path.basename(folder) == "LC_MESSAGES":
                language = os.path.basename(os.path.dirname(folder))
                for name in names:
                    if name.endswith(".mo"):
                        yield language, Path(folder, name)


def _pairs(file: Path) -> Iterator[Pair]:
    for source, target in list(entries(file.read_bytes())):
        # The first form stands for one, the last for many, in every language here.
        for english, other in zip(source, (target[0], target[-1]), strict=False):
            pair = without_accelerators(tidy(english), tidy(other))
            if usable(*pair):
                yield pair


def usable(source: str, target: str) -> bool:
    """Whether a pair is a translation: of words, changed by it, and of like length."""
    counts = sorted((len(source.split()), len(target.split())))
    return (
        source != target
        and all(_LETTER.search(text) for text in (source, target))
        and counts[1] <= min(WORDS, RATIO * counts[0])
    )


def without_accelerators(source: str, target: str) -> Pair:
    """The texts without the mark of the key that opens a menu: ``_Save``, ``S&peichern``.

    A mark is one where both sides have exactly one; within a word that both sides share it is part
    of a name, as in ``file_name``.
    """
    for mark in "&_~":
        places = [_marks(text, mark) for text in (source, target)]
        if [len(found) for found in places] != [1, 1]:
            continue
        words = [_word(text, at[0]) for text, at in zip((source, target), places, strict=True)]
        if words[0] == words[1] and re.search(rf"\w{mark}", words[0]):
            continue
        source, target = (
            text[: at[0]] + text[at[0] + 1 :]
            for text, at in zip((source, target), places, strict=True)
        )
    return source, target


def _marks(text: str, mark: str) -> list[int]:
    hidden = _FIXED.sub(lambda found: " " * len(found[0]), text)
    return [found.start() for found in re.finditer(rf"{mark}(?=\w)", hidden)]


def _word(text: str, at: int) -> str:
    start = text.rfind(" ", 0, at) + 1
    return text[start:].split(" ", 1)[0]
