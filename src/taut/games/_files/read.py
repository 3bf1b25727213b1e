"""Two-player games from files, and from the game objects of pygambit and nashpy."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from taut.games._files.formats import (
    from_gambit,
    from_gambit_file,
    from_json,
    from_nashpy,
    from_npy,
    is_game,
    utf8,
)
from taut.games._files.number_table import Found, Matrix, tables

__all__ = ["Payoffs", "read"]

_READ = ".csv, .tsv, .txt, .npy, .json, and with pygambit .nfg and .efg"


class Payoffs(NamedTuple):
    """What each player of a game gains, as n × m matrices over pairs of strategies.

    Both matrices are gains, which both players want large, whatever the source. A file with a
    single matrix A is a zero-sum game in which the row player pays A to the column player: then
    ``row`` is −A and ``column`` is A.

    Attributes
    ----------
    row, column
        Payoffs of the row player (player 1) and of the column player (player 2), float64.
    row_names, column_names
        Names of the strategies, or None where the source has none.
    """

    row: Matrix
    column: Matrix
    row_names: tuple[str, ...] | None = None
    column_names: tuple[str, ...] | None = None

    @property
    def zero_sum(self) -> bool:
        """Whether the players' gains sum to one constant, but for rounding: 1/10 + 2/10 − 3/10."""
        sums = self.row + self.column
        size = max(np.abs(self.row).max(), np.abs(self.column).max())
        return bool(np.ptp(sums) <= 8 * np.finfo(float).eps * size)

    @property
    def costs(self) -> Matrix:
        """The one matrix of a zero-sum game: what the row player pays, and wants small.

        It is the matrix of a single-matrix file as it stands there, and player 2's payoffs in a
        zero-sum game of pygambit or nashpy, whose player 1 maximises. Where the sum of the gains is
        another constant, half of it is taken off both.
        """
        if not self.zero_sum:
            sums = self.row + self.column
            k = int(np.argmax(np.abs(sums - sums[0, 0])))
            i, j = np.unravel_index(k, sums.shape)
            raise ValueError(
                f"the game is not zero-sum: the players' gains sum to {sums[0, 0]:g} in row 1, "
                f"column 1 and to {sums[i, j]:g} in row {i + 1}, column {j + 1}"
            )
        return (self.column - self.row) / 2

    def to_dict(self) -> dict[str, Any]:
        """What the game is, for JSON: its kind, its size and the names of the strategies."""
        return {
            "zero_sum": self.zero_sum,
            "row_player": "pays" if self.zero_sum else "gains",
            "strategies": list(self.row.shape),
            "row_names": self.row_names,
            "column_names": self.column_names,
        }


def read(source: Any) -> Payoffs:
    r"""Read a two-player game from a file, or from a pygambit or nashpy game.

    Parameters
    ----------
    source
        A path, or a ``pygambit.Game`` (also in extensive form) or ``nashpy.Game``. Files hold one
        matrix A, what the row player pays in a zero-sum game, or two, (A, B): what the row player
        and what the column player gain.

        ``.csv``, ``.tsv``, ``.txt``
            Rows of numbers (also fractions, 1/3), split by commas, semicolons, tabs or, in .txt,
            blanks; a line ``---`` stands before B. A first line and a first column that hold no
            numbers are names. Blank lines and comments from # on are skipped.
        ``.json``
            ``{"A": rows of numbers, "B": ..., "rows": names, "columns": names}``, of which only A
            is needed, or the rows of A alone.
        ``.npy``
            An array of shape (n, m), or (2, n, m) for A and B.
        ``.nfg``, ``.efg``
            Gambit's files, read by pygambit, which must be installed.

    Returns
    -------
    Payoffs
        What both players gain. ``costs`` is the single matrix of a zero-sum game.

    Raises
    ------
    ValueError
        If the source does not hold a two-player game of finite numbers. The message says where:
        lines and columns (that is, cells) of text files count from 1, JSON paths from 0.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "pennies.csv")
    ...     _ = file.write_text(",heads,tails\nheads,1,-1\ntails,-1,1\n")
    ...     game = read(file)
    >>> game.costs.tolist(), game.row_names, game.zero_sum
    ([[1.0, -1.0], [-1.0, 1.0]], ('heads', 'tails'), True)
    """
    if is_game(source, "pygambit"):
        return _payoffs(from_gambit(source, "the pygambit game"), "the pygambit game")
    if is_game(source, "nashpy"):
        return _payoffs(from_nashpy(source), "the nashpy game")
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(
            f"read takes a path, a pygambit game or a nashpy game, got {type(source).__name__}; "
            "matrices that are in memory already go to the solver as they are"
        )
    path = os.fsdecode(source)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a directory; give the path of a file in it")
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    if not os.path.isfile(path):  # a pipe would keep us waiting
        raise ValueError(f"{path} is not a regular file")
    return _payoffs(_from_file(path), path)


def _from_file(path: str) -> Found:
    """The matrices and names in a file, whose format its ending tells."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix in (".csv", ".tsv", ".txt"):
        return tables(utf8(path), path=path, suffix=suffix)
    if suffix == ".json":
        return from_json(path)
    if suffix == ".npy":
        return from_npy(path)
    if suffix in (".nfg", ".efg"):
        return from_gambit_file(path, suffix)
    ending = f"the ending {suffix} is not known" if suffix else "it has no ending"
    raise ValueError(f"cannot tell the format of {path}: {ending}; supported formats: {_READ}")


def _payoffs(found: Found, where: str) -> Payoffs:
    """A pair as it is; one matrix as what the row player pays."""
    first, *rest = found.matrices
    if not rest:
        # 0 - A has no -0.0 where A has 0.0.
        return Payoffs(0.0 - first, first, found.row_names, found.column_names)
    (second,) = rest
    if first.shape != second.shape:
        raise ValueError(
            f"{where}: both matrices must have one shape; the first is "
            f"{first.shape[0]} × {first.shape[1]}, the second {second.shape[0]} × {second.shape[1]}"
        )
    return Payoffs(first, second, found.row_names, found.column_names)
