r"""PersonaChat from its text files: dialogues of two people, each described by a few sentences.

Lines are numbered from 1 in each dialogue. Personas come first, ``1 your persona: i ski.`` and
``2 partner's persona: i cook.``, either or none of them; then the turns, ``3 hello\thi there``:
what the partner says, and your reply. Further columns are candidates for other tasks.
"""

from __future__ import annotations

from pathlib import Path

from taut.reproduce.seq2seq.corpus import Corpus, Pair
from taut.reproduce.seq2seq.dialogues import TURN, Dialogue, dialogue_corpus
from taut.reproduce.seq2seq.text_files import TextFile, text_files

OWN, PARTNER = "your persona:", "partner's persona:"
# After each sentence of a persona in a context, before the turns.
PERSONA, OTHER_PERSONA = " <persona> ", " <partner> "


class PersonaDialogue(list[str]):
    """The turns of a dialogue; ``personas`` opens every context, ``replies_at`` are your turns."""

    def __init__(self) -> None:
        super().__init__()
        self.personas = ""
        self.replies_at: list[int] = []


def read_personas(file: TextFile) -> list[PersonaDialogue]:
    """The dialogues of a file; a ValueError names the line that is wrong."""
    found: list[PersonaDialogue] = []
    for at, line in enumerate(file.lines(), 1):
        number, _, rest = line.strip().partition(" ")
        if not number:
            continue
        if not number.isdigit():
            raise ValueError(
                f"{file}, line {at}: {number!r} is not a number. Lines of PersonaChat begin with "
                "one, such as '1 your persona: i ski.' or '2 hello<tab>hi there'"
            )
        if int(number) == 1 or not found:
            found.append(PersonaDialogue())
        _add(found[-1], rest, f"{file}, line {at}")
    return found


def _add(dialogue: PersonaDialogue, text: str, place: str) -> None:
    """Add a line without its number."""
    for mark, after in ((OWN, PERSONA), (PARTNER, OTHER_PERSONA)):
        if text.startswith(mark):
            dialogue.personas += text.removeprefix(mark).strip() + after
            return
    said, *more = text.split("\t")
    if not more or not more[0].strip():
        raise ValueError(f"{place}: there is no reply after a tab, and no persona")
    if "SILENCE" not in said:  # then it is you who opens the dialogue
        dialogue.append(said.strip())
    dialogue.append(more[0].strip())
    dialogue.replies_at.append(len(dialogue) - 1)


def persona_replies(dialogue: Dialogue, turns: int = 1) -> list[Pair]:
    """Your replies, each with the personas and the turns before it."""
    assert isinstance(dialogue, PersonaDialogue)
    return [
        (dialogue.personas + TURN.join(dialogue[max(0, at - turns) : at]), dialogue[at])
        for at in dialogue.replies_at
        if at
    ]


def persona_files(place: Path, *, turns: int = 1) -> Corpus:
    """The corpus of a file such as ``train_self_original.txt``, or of a folder with one such file.

    ``valid_self_original.txt`` and ``test_self_original.txt`` beside it are its other parts; those
    that are not there are split off by whole dialogues.
    """
    train = TextFile(place) if place.is_file() else _only_training_file(place)
    parts = {"train": read_personas(train)}
    for part in ("valid", "test") if train.name.startswith("train") else ():
        file = train.path.with_name(train.name.replace("train", part, 1))
        if file.is_file():
            parts[part] = read_personas(TextFile(file))
    return dialogue_corpus("persona-chat", parts, turns=turns, pairs=persona_replies)


def _only_training_file(folder: Path) -> TextFile:
    names = [
        file for file in text_files(folder) if not file.member and file.name.startswith("train_")
    ]  # fmt: skip
    if len(names) != 1:
        told = ", ".join(file.name for file in names) or "none"
        raise ValueError(
            f"{folder} has neither DailyDialog nor one training file of PersonaChat, such as "
            f"train_self_original.txt (found: {told}): give the file itself"
        )
    return names[0]
