"""Characters of a text as numbers: the first nine tenths to train on, the last to judge by."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch


class Characters(NamedTuple):
    """A text whose characters are numbered in the order of Unicode."""

    train: torch.Tensor
    held_out: torch.Tensor
    alphabet: str

    @classmethod
    def given(cls, experiment: str, data: Sequence[str]) -> Characters:
        """The one text that an experiment takes with ``--data``."""
        if len(data) != 1:
            raise ValueError(
                f"{experiment} needs a text: --data shakespeare.txt (tiny Shakespeare, which is "
                "experiments/shakespeare.txt.gz in the repository)"
            )
        return cls.read(Path(data[0]))

    @classmethod
    def read(cls, path: Path) -> Characters:
        """A text file in UTF-8, or a gzipped one."""
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        alphabet = "".join(sorted(set(text)))
        number = {character: i for i, character in enumerate(alphabet)}
        ids = torch.tensor([number[character] for character in text])
        many = len(ids) * 9 // 10
        return cls(ids[:many], ids[many:], alphabet)


def drawn_batch(
    ids: torch.Tensor, batch: int, tokens: int, source: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random pieces of a text, and the characters that follow each of theirs."""
    if len(ids) <= tokens + 1:
        raise ValueError(f"the text has {len(ids)} characters, too few for pieces of {tokens}")
    starts = torch.randint(0, len(ids) - tokens - 1, (batch,), generator=source)
    pieces = torch.stack([ids[i : i + tokens + 1] for i in starts.tolist()])
    return pieces[:, :-1], pieces[:, 1:]


def fixed_batches(ids: torch.Tensor, batch: int, tokens: int, many: int) -> list[torch.Tensor]:
    """Pieces at even distances over a whole text, (batch, tokens + 1) each, the same every time."""
    starts = torch.linspace(0, len(ids) - tokens - 1, batch * many).long()
    pieces = torch.stack([ids[i : i + tokens + 1] for i in starts.tolist()])
    return list(torch.split(pieces, batch))
