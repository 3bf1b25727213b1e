"""Vectors of words, read from files or made from the vectors of word pieces."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Vectors(Protocol):
    """What the measures with word vectors need."""

    name: str

    def vectors(self, words: Sequence[str]) -> tuple[Array, Array]:
        """One row for each word, and for which of them it is their own."""
        ...


class WordVectors:
    """Vectors by word. Words without one take the mean of all vectors, as in nlg-eval."""

    def __init__(self, table: dict[str, Array], *, mean: Array | None = None, name: str = "given"):
        if not table:
            raise ValueError(f"{name}: there are no word vectors")
        if len({np.shape(vector) for vector in table.values()}) > 1:
            raise ValueError(f"{name}: the vectors are not all of one length")
        self.name = name
        self._table = table
        self._mean = np.mean(list(table.values()), axis=0) if mean is None else mean

    def vectors(self, words: Sequence[str]) -> tuple[Array, Array]:
        """One row for each word, and for which of them it is their own."""
        rows = np.stack([self._table.get(word, self._mean) for word in words])
        return rows, np.array([word in self._table for word in words])

    @classmethod
    def read(
        cls, path: str | Path, *, words: Collection[str] | None = None, member: str | None = None
    ) -> WordVectors:
        """Vectors from a text file of GloVe or word2vec, plain, .gz or .zip.

        Parameters
        ----------
        path : str or Path
            The file. nlg-eval uses ``glove.6B.300d.txt``.
        words : collection of str, optional
            Keep only these, to save memory; unknown words still take the mean of the whole file.
        member : str, optional
            Which file of a .zip with several.
        """
        wanted = None if words is None else set(words)
        table: dict[str, Array] = {}
        total: Array = np.zeros(0)
        number = 0
        for word, vector in _rows(Path(path), member):
            total = vector.astype(np.float64) if not number else total + vector
            number += 1
            if wanted is None or word in wanted:
                table.setdefault(word, vector)
        if not number:
            raise ValueError(f"{path}: there are no word vectors")
        if not table:
            raise ValueError(f"{path}: none of the {len(wanted or ())} words is in it")
        return cls(table, mean=total / number, name=member or Path(path).name)


class PieceVectors:
    """Vectors of words as the mean of those of their pieces: the input of a transformer."""

    def __init__(self, tokenizer: Any, matrix: Array, *, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._matrix = matrix
        self._mean = matrix.mean(axis=0)

    def vectors(self, words: Sequence[str]) -> tuple[Array, Array]:
        """One row for each word, and which words are made of known pieces; others get the mean."""
        pieces = self._tokenizer(list(words), add_special_tokens=False)["input_ids"]
        unknown = self._tokenizer.unk_token_id
        known = np.array([bool(ids) and unknown not in ids for ids in pieces])
        rows = [
            self._matrix[ids].mean(axis=0) if own else self._mean
            for ids, own in zip(pieces, known, strict=True)
        ]
        return np.stack(rows), known


def _rows(path: Path, member: str | None) -> Iterator[tuple[str, Array]]:
    """Word and vector of each line."""
    size = 0
    for number, line in enumerate(_lines(path, member), 1):
        first = line.split(" ") if number == 1 else []
        if len(first) == 2 and all(part.isdigit() for part in first):
            size = int(first[1])
            continue  # word2vec begins with the number of words and of dimensions
        size = size or len(first) - 1
        # Some words of GloVe contain spaces, so that values are counted from the right.
        parts = line.rsplit(" ", size)
        if size < 1 or len(parts) != size + 1:
            raise ValueError(
                f"{path}, line {number}: {len(parts) - 1} values, not {max(size, 1)}: "
                "give text of GloVe or word2vec, with a word and its values on each line"
            )
        try:
            vector = np.array(parts[1:], dtype=np.float32)
        except ValueError:
            raise ValueError(f"{path}, line {number}: a value is not a number") from None
        if not np.isfinite(vector).all():
            raise ValueError(f"{path}, line {number}: a value is not finite")
        yield parts[0], vector


def _lines(path: Path, member: str | None) -> Iterator[str]:
    try:
        with ExitStack() as stack:
            for line in _open(path, member, stack):
                yield line.rstrip("\n\r ")
    except (UnicodeDecodeError, EOFError, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} cannot be read ({error}): give UTF-8 text, plain, .gz or .zip; "
            "the binary format of word2vec has to be converted to text first"
        ) from None


def _open(path: Path, member: str | None, stack: ExitStack) -> TextIO:
    if path.suffix == ".gz":
        return stack.enter_context(gzip.open(path, "rt", encoding="utf-8", newline="\n"))
    if path.suffix != ".zip":
        return stack.enter_context(path.open(encoding="utf-8", newline="\n"))
    archive = stack.enter_context(zipfile.ZipFile(path))
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if member is None and len(names) == 1:
        member = names[0]
    if member not in names:
        raise ValueError(f"{path}: choose one of its files as member: {', '.join(names)}")
    binary = stack.enter_context(archive.open(member))
    return stack.enter_context(io.TextIOWrapper(binary, encoding="utf-8", newline="\n"))
