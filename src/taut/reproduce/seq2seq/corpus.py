"""Parallel text in three parts that share no sentence."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Pair = tuple[str, str]

HELD_OUT = 1000  # pairs of valid and of test where a corpus comes without them
_NOT_LETTERS = re.compile(r"[\W\d_]+")


@dataclass(frozen=True)
class Corpus:
    """Pairs of text: ``source`` and ``target`` name the languages of the two sides.

    ``notes`` say what was left out of the data as they were found, and why. With ``latest``, a
    source that is too long for a model loses its beginning, not its end: in a dialogue, what is
    answered comes last.
    """

    name: str
    source: str
    target: str
    train: list[Pair] = field(repr=False)
    valid: list[Pair] = field(repr=False)
    test: list[Pair] = field(repr=False)
    notes: tuple[str, ...] = ()
    latest: bool = False


def tidy(text: str) -> str:
    """The text in one Unicode form (NFC), with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def cleaned(pairs: Iterable[Pair]) -> list[Pair]:
    """The tidy pairs, once each and in order, without those that have an empty side."""
    return list(dict.fromkeys(tidied(pairs)))


def tidied(pairs: Iterable[Pair]) -> list[Pair]:
    """The tidy pairs, as often as they occur: test sets are scored as they were published."""
    found = ((tidy(source), tidy(target)) for source, target in pairs)
    return [pair for pair in found if all(pair)]


def key(text: str) -> str:
    """What is left of a text for comparing: its letters, without case.

    "_Save 2 files…" and "save files" are the same text for a model that is tested on one after it
    was trained on the other. A text without letters stands for itself.
    """
    folded = unicodedata.normalize("NFC", text).casefold()
    return _NOT_LETTERS.sub("", folded) or folded.strip()


def groups(pairs: Sequence[Pair]) -> list[list[int]]:
    """Indices of pairs that hang together: each shares a side with another of its group."""
    parent = list(range(len(pairs)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[tuple[int, str], int] = {}
    for index, pair in enumerate(pairs):
        for side in (0, 1):
            other = first.setdefault((side, key(pair[side])), index)
            one, two = sorted((root(index), root(other)))
            parent[two] = one
    found: dict[int, list[int]] = {}
    for index in range(len(pairs)):
        found.setdefault(root(index), []).append(index)
    return list(found.values())


def split(
    pairs: Sequence[Pair], *, seed: int, valid: int, test: int
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Train, valid and test, where no text of one part, on either side, occurs in another.

    Pairs that hang together stay together. Which part they go to depends on the seed and on their
    text alone, not on the order they are given in: files may be found in another order elsewhere.
    A group larger than what a part still needs goes to train.
    """
    if valid == test == 0:
        return list(pairs), [], []
    if valid < 0 or test < 0 or valid + test >= len(pairs):
        raise ValueError(
            f"cannot split {len(pairs)} pairs into {valid} of valid, {test} of test and some of "
            "train: give more pairs or ask for fewer"
        )

    def rank(group: list[int]) -> bytes:
        name = min(f"{key(pairs[index][0])}\t{key(pairs[index][1])}" for index in group)
        return hashlib.blake2b(f"{seed}\t{name}".encode(), digest_size=16).digest()

    part = ["train"] * len(pairs)
    room = {"test": test, "valid": valid}
    for group in sorted(groups(pairs), key=rank):
        for name, left in room.items():
            if len(group) <= left:
                room[name] -= len(group)
                for index in group:
                    part[index] = name
                break
    for name, wanted in (("test", test), ("valid", valid)):
        if wanted and room[name] == wanted:
            raise ValueError(
                f"cannot split off {wanted} pairs of {name}: too many of the {len(pairs)} pairs "
                "share a side with one another"
            )
    train, held, tested = (
        [pair for pair, name in zip(pairs, part, strict=True) if name == wanted]
        for wanted in ("train", "valid", "test")
    )
    return train, held, tested


def held_out_size(count: int) -> int:
    """How much to split off: a tenth, at most a thousand."""
    return min(HELD_OUT, max(1, count // 10))


def without_leaks(
    train: Sequence[Pair], held_out: Sequence[Pair], *, whole: bool = False
) -> list[Pair]:
    """The pairs of train of which neither side occurs in the parts that are held out.

    With ``whole``, only pairs of which both sides occur there together are left out: in dialogues a
    reply such as "Yes." belongs to many contexts.
    """
    keys = [(key(source), key(target)) for source, target in held_out]
    if whole:
        pairs = set(keys)
        return [pair for pair in train if (key(pair[0]), key(pair[1])) not in pairs]
    sources, targets = {source for source, _ in keys}, {target for _, target in keys}
    return [pair for pair in train if key(pair[0]) not in sources and key(pair[1]) not in targets]


def assembled(
    name: str, source: str, target: str, parts: Mapping[str, Iterable[Pair]], *, seed: int
) -> Corpus:
    """A corpus of the parts there are; valid or test are split off from train where they miss.

    Parts that were given keep what they test on: a pair that occurs in two is taken from train
    first, then from valid.
    """
    train = cleaned(parts.get("train", ()))
    valid, test = (tidied(parts.get(part, ())) for part in ("valid", "test"))
    for part, found in (("train", train), ("valid", valid), ("test", test)):
        if not found and (part == "train" or part in parts):
            raise ValueError(f"{name} has no pairs of {part}: its texts are empty")
    notes = []
    before = len(train), len(valid)
    valid = without_leaks(valid, test)
    train = without_leaks(train, valid + test)
    for part, was, now in (("train", before[0], train), ("valid", before[1], valid)):
        if was > len(now):
            notes.append(f"{was - len(now)} pairs of {part} left out: they occur in a later part")
    size = held_out_size(len(train))
    train, more, tested = split(
        train, seed=seed, valid=0 if valid else size, test=0 if test else size
    )
    for part, drawn in (("valid", more), ("test", tested)):
        if drawn:
            notes.append(f"{len(drawn)} pairs of train became {part}: there was no such part")
    return Corpus(name, source, target, train, valid or more, test or tested, tuple(notes))
