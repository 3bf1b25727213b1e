"""A corpus by its name: catalogs, a folder, or a data set on the Hub."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from taut._base.checks import whole_number
from taut.reproduce.seq2seq.aligned_files import local_corpus
from taut.reproduce.seq2seq.catalogs import catalog_corpus
from taut.reproduce.seq2seq.corpus import Corpus
from taut.reproduce.seq2seq.dialogues import daily_dialog, persona_chat
from taut.reproduce.seq2seq.hub_data import SETS, hub_corpus
from taut.reproduce.seq2seq.persona_files import persona_files

CATALOGS = "catalogs"


def read_corpus(
    name: str, source: str, target: str, *, test: str | None = None, limit: int | None = None,
    held_out: int | None = None,
) -> Corpus:  # fmt: skip
    """Parallel text by name.

    Parameters
    ----------
    name
        ``"catalogs"``: translations of programs, of installed packages; ``"catalogs:FOLDER"``,
        those below a folder, or several, separated by commas; a folder of aligned files; one of the
        paper's data sets, such as ``"iwslt14-de-en"``, or ``"hf:owner/name:configuration"``.
    source, target
        Languages, such as ``"de"`` and ``"en"``.
    test
        Name of the test files, such as ``"test_2016_flickr"``, in a folder with several test sets.
    limit, held_out
        Pairs to train on, and those of validation and test, at most.

    Notes
    -----
    Where there is no part for validation or test, a tenth of train becomes it, at most 1000 pairs.
    Pairs of train count once, and those of which either side occurs in the other parts are left
    out. ``notes`` of the corpus say what was done.
    """
    if source == target:
        raise ValueError(f"source and target are both {source!r}")
    kind, _, folder = name.partition(":")
    if test is not None and not Path(name).is_dir():
        raise ValueError(f"only folders have test sets to choose from, not {name!r}")
    if kind == CATALOGS:
        corpus = catalog_corpus(source, target, folders=folder.split(",") if folder else None)
    elif name in SETS or kind == "hf":
        corpus = hub_corpus(name, source, target, limit=limit)
    elif Path(name).is_dir():
        corpus = local_corpus(name, source, target, test=test or "test")
    else:
        raise ValueError(
            f"no data {name!r}: give a folder with train.{source} and train.{target}, catalogs, "
            f"hf:owner/name:configuration, or one of {', '.join(SETS)}"
        )
    return _limited(corpus, limit, held_out)


def read_dialogues(
    name: str, *, turns: int = 1, limit: int | None = None, held_out: int | None = None
) -> Corpus:
    """Dialogues by name: DailyDialog in a folder, files of PersonaChat, or ``"persona-chat"``.

    A folder of DailyDialog has ``train.zip``, ``validation.zip`` and ``test.zip``, or what is in
    them: ``dialogues_train.txt`` and so on, a dialogue a line, with ``__eou__`` after each turn.
    A file of PersonaChat, such as ``train_self_original.txt``, has the personas, which then open
    every context; ``"persona-chat"`` on the Hub is read without them.
    """
    if name == "persona-chat":
        return _limited(persona_chat(turns=turns, limit=limit), limit, held_out)
    place = Path(name)
    if not place.exists():
        raise ValueError(
            f"no dialogues {name!r}: give a folder with DailyDialog, a file of PersonaChat such as "
            "train_self_original.txt, or persona-chat"
        )
    if place.is_file() or any(place.glob("train_*.txt*")):
        return _limited(persona_files(place, turns=turns), limit, held_out)
    return _limited(daily_dialog(name, turns=turns), limit, held_out)


def _limited(corpus: Corpus, limit: int | None, held_out: int | None) -> Corpus:
    for name, number in (("limit", limit), ("held_out", held_out)):
        if number is not None:
            whole_number(number, name=name, least=1)
    return replace(
        corpus, train=corpus.train[:limit], valid=corpus.valid[:held_out],
        test=corpus.test[:held_out],
    )  # fmt: skip


def checksum(corpus: Corpus) -> str:
    """A checksum of all texts, which tells runs on different corpora apart."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (corpus.train, corpus.valid, corpus.test):
        for pair in part:
            digest.update("\t".join(pair).encode())
            digest.update(b"\n")
        digest.update(b"\n")
    return digest.hexdigest()
