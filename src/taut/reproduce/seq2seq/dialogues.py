"""Dialogues as pairs of text: what was said, and the reply."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from taut.reproduce.seq2seq.corpus import (
    Corpus,
    Pair,
    cleaned,
    held_out_size,
    key,
    tidied,
    without_leaks,
)
from taut.reproduce.seq2seq.hub_data import hub_rows
from taut.reproduce.seq2seq.text_files import text_files

# Stands between the turns of a context. The mark for the end of a sequence, which some models use
# here, would tell a model that the context ends after its first turn.
TURN = " <turn> "

Dialogue = Sequence[str]


def replies(dialogue: Dialogue, turns: int = 1) -> list[Pair]:
    """Each turn but the first, with the turns before it."""
    return [
        (TURN.join(dialogue[max(0, at - turns) : at]), dialogue[at])
        for at in range(1, len(dialogue))
    ]


def dialogue_corpus(
    name: str, parts: Mapping[str, Iterable[Dialogue]], *, turns: int = 1, seed: int = 0,
    pairs: Callable[[Dialogue, int], list[Pair]] = replies,
) -> Corpus:  # fmt: skip
    """Pairs of context and reply, where the context is the last ``turns`` turns before a reply.

    ``pairs`` makes them from a dialogue and a number of turns. Parts that miss are split off from
    train by whole dialogues. Pairs that occur in a later part too are taken from train, then from
    valid; the notes of the corpus say how many.
    """
    if turns < 1:
        raise ValueError(f"a reply needs at least one turn before it, not {turns}")
    dialogues = {part: list(parts.get(part, ())) for part in ("train", "valid", "test")}
    published = [part for part in ("valid", "test") if dialogues[part]]
    for part in ("valid", "test"):
        if part not in published:
            size = held_out_size(len(dialogues["train"]))
            dialogues["train"], dialogues[part] = _split(dialogues["train"], size, seed)
    found = {
        part: [pair for dialogue in spoken for pair in pairs(dialogue, turns)]
        for part, spoken in dialogues.items()
    }
    train, valid, test = (
        tidied(made) if part in published else cleaned(made) for part, made in found.items()
    )
    if not (train and valid and test):
        counts = ", ".join(f"{len(found)} of {part}" for part, found in dialogues.items())
        raise ValueError(f"{name} has too few dialogues with a reply: {counts}")
    new_valid = without_leaks(valid, test, whole=True)
    new_train = without_leaks(train, [*valid, *test], whole=True)
    notes = tuple(
        f"{len(was) - len(now)} of {len(was)} pairs of {part} left out: they occur in a later part"
        for part, was, now in (("train", train, new_train), ("valid", valid, new_valid))
        if len(was) > len(now)
    )
    return Corpus(name, "context", "reply", new_train, new_valid, test, notes, latest=True)


def _split(
    dialogues: list[Dialogue], size: int, seed: int
) -> tuple[list[Dialogue], list[Dialogue]]:
    """Train and ``size`` dialogues for another part; those that begin alike stay together.

    Persona-Chat has each dialogue twice, once for either persona.
    """
    groups: dict[str, list[Dialogue]] = {}
    for dialogue in dialogues:
        groups.setdefault("\t".join(key(turn) for turn in dialogue[:4]), []).append(dialogue)
    held: set[str] = set()
    left = size
    for name in sorted(groups, key=lambda name: hashlib.blake2b(f"{seed}{name}".encode()).digest()):
        if len(groups[name]) <= left:
            held.add(name)
            left -= len(groups[name])
    train = [dialogue for name in groups if name not in held for dialogue in groups[name]]
    return train, [dialogue for name in groups if name in held for dialogue in groups[name]]


def daily_dialog(folder: str | Path, *, turns: int = 1) -> Corpus:
    """DailyDialog from its zip files ``train.zip``, ``validation.zip`` and ``test.zip``.

    The files ``dialogues_train.txt`` and so on may also lie in the folder by themselves. Of the
    1000 dialogues of test 150 occur in train too: their pairs are left out of train.
    """
    files = {file.name: file for file in text_files(Path(folder))}
    parts = {}
    for part, name in (("train", "train"), ("valid", "validation"), ("test", "test")):
        file = files.get(f"dialogues_{name}.txt")
        if file is None:
            raise ValueError(
                f"{folder} has no {name}.zip with dialogues_{name}.txt: get DailyDialog from "
                "http://yanran.li/dailydialog"
            )
        lines = [line.split("__eou__") for line in file.lines()]
        parts[part] = [[turn.strip() for turn in line if turn.strip()] for line in lines]
    return dialogue_corpus("daily-dialog", parts, turns=turns)


def persona_chat(*, turns: int = 1, seed: int = 0, limit: int | None = None) -> Corpus:
    """Persona-Chat from the Hub, without the personas; its text files have them, too."""
    rows = hub_rows("AlekseyKorshuk/persona-chat", "", limit=limit)
    parts = {part: [persona_dialogue(row) for row in found] for part, found in rows.items()}
    return dialogue_corpus("persona-chat", parts, turns=turns, seed=seed)


def persona_dialogue(row: Mapping[str, object]) -> Dialogue:
    """The turns of a row: the history of its last utterance, and the true one of its candidates.

    The true candidate is the last. A dialogue that the other side opens begins with a turn of
    silence.
    """
    utterances = row["utterances"]
    if not isinstance(utterances, list) or not utterances:
        return []
    last = utterances[-1]
    spoken = [*last["history"], last["candidates"][-1]]
    return [turn for turn in spoken if "SILENCE" not in turn]
