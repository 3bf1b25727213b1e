"""Games of two or more players from files and from pygambit's games."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from taut._base.npy_files import read_npy
from taut.games._files.formats import gambit_game, is_game
from taut.games._files.read import read

Table = np.ndarray[Any, np.dtype[np.float64]]


def read_players(source: Any) -> tuple[Table, ...]:
    """What each player of a game gains, from a file or from a pygambit or nashpy game.

    Parameters
    ----------
    source
        Whatever :func:`read` takes, for two players; for more, an .npy file with an array of shape
        (N, n₁, …, n_N), or Gambit's .nfg and .efg files, or a ``pygambit.Game``.

    Returns
    -------
    tuple of arrays
        One for each player, over all players' strategies, as :func:`logit_branches` takes them.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "votes.npy")
    ...     np.save(file, np.zeros((3, 2, 2, 2)))
    ...     [payoff.shape for payoff in read_players(file)]
    [(2, 2, 2), (2, 2, 2), (2, 2, 2)]
    """
    if is_game(source, "pygambit"):
        return _from_gambit(source, "the pygambit game")
    suffix = os.path.splitext(source)[1].lower() if isinstance(source, (str, os.PathLike)) else ""
    if suffix in (".nfg", ".efg") and os.path.isfile(source):
        path = os.fsdecode(source)
        return _from_gambit(gambit_game(path, suffix), path)
    if suffix == ".npy" and os.path.isfile(source):
        found = read_npy(Path(source))
        if found.ndim > 3:
            return _tables(found, os.fsdecode(source))
    game = read(source)
    return game.row, game.column


def _from_gambit(game: Any, where: str) -> tuple[Table, ...]:
    """The strategic form of a pygambit game."""
    try:
        payoffs = np.array(game.to_arrays(), dtype=np.float64)  # fractions, rounded once
    except Exception as error:  # from C++, of any kind
        raise ValueError(f"pygambit gives no payoffs for {where}: {error}") from error
    return _tables(payoffs, where)


def _tables(values: Any, where: str) -> tuple[Table, ...]:
    """One table for each player."""
    if values.dtype.kind not in "iuf" or values.ndim != len(values) + 1 or 0 in values.shape:
        raise ValueError(
            f"{where} must hold numbers of shape (N, n1, …, nN) for N players; its shape is "
            f"{values.shape}, its dtype {values.dtype}"
        )
    return tuple(values.astype(np.float64))
