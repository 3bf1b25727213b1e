"""Matrices out of JSON, NumPy's and Gambit's files, and out of pygambit's and nashpy's games."""

from __future__ import annotations

import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taut._base.checks import as_float_array
from taut._base.integers import floats_of, refuse_rounded
from taut._base.json_files import without_repeats
from taut._base.npy_files import read_npy
from taut._base.number_text import how_many
from taut._base.optional import needing
from taut.games._files.number_table import Found, Matrix, Names, lines

__all__ = [
    "from_gambit",
    "from_gambit_file",
    "from_json",
    "from_nashpy",
    "from_npy",
    "gambit_game",
    "is_game",
    "utf8",
]

_KEYS = ("A", "B", "rows", "columns")


def utf8(path: str) -> str:
    """The text of a UTF-8 file, without a byte order mark."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = len(lines(data[: error.start].decode("utf-8")))
        raise ValueError(
            f"{path}, line {line}: byte {error.start + 1} of the file, 0x{data[error.start]:02x}, "
            "is not UTF-8; save the file as UTF-8"
        ) from None


def from_json(path: str) -> Found:
    """The matrices A and B with the names "rows" and "columns", or A alone as a bare list."""
    text = utf8(path)
    try:
        content = json.loads(text, object_pairs_hook=without_repeats)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:  # a key twice, endless digits, endless brackets
        raise ValueError(f"{path}: {error}") from None
    if isinstance(content, list):
        content = {"A": content}
    if not isinstance(content, dict):
        raise ValueError(f'{path} must hold {{"A": rows of numbers}} or rows of numbers')
    for key in content:
        if key not in _KEYS:
            raise ValueError(f"{path}: unknown key {_short(key)}; the keys are {', '.join(_KEYS)}")
    if "A" not in content:
        raise ValueError(f'{path}: the key "A" is missing; it holds the rows of numbers')
    matrices = [
        _json_matrix(content[key], key, path=path)
        for key in ("A", "B")
        if key == "A" or content.get(key) is not None
    ]
    n, m = matrices[0].shape
    rows = _json_names(content.get("rows"), f"{path}: rows", f"A has {how_many(n, 'row')}", n)
    columns = _json_names(
        content.get("columns"), f"{path}: columns", f"A has {how_many(m, 'column')}", m
    )
    return Found(matrices, rows, columns)


def _json_matrix(rows: Any, name: str, *, path: str) -> Matrix:
    """A list of equally long lists of finite numbers."""
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path}: {name} must be a list of rows, got {_short(rows)}")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or not row:
            raise ValueError(f"{path}: {name}[{i}] must be a list of numbers, got {_short(row)}")
        if len(row) != len(rows[0]):
            raise ValueError(
                f"{path}: {name}[{i}] has {how_many(len(row), 'number')}, "
                f"{name}[0] has {len(rows[0])}; every row must have the same"
            )
        for j, value in enumerate(row):
            if type(value) not in (int, float):  # True is an int to isinstance
                kind = "number"
            elif not abs(value) <= sys.float_info.max:  # NaN, 1e400, whole numbers of any size
                kind = "finite number"
            else:
                continue
            raise ValueError(f"{path}: {name}[{i}][{j}] must be a {kind}, got {_short(value)}")
    matrix: Matrix = as_float_array(rows, name=f"{path}: {name}")[1]
    return matrix


def _json_names(names: Any, where: str, size: str, length: int) -> Names:
    """A list of strings, one for each row or column."""
    if names is None:
        return None
    if not isinstance(names, list):
        raise ValueError(f"{where} must be a list of names, got {_short(names)}")
    for i, name in enumerate(names):
        if not isinstance(name, str):
            raise ValueError(f"{where}[{i}] must be a name in quotes, got {_short(name)}")
    if len(names) != length:
        raise ValueError(f"{where} has {how_many(len(names), 'name')}, {size}")
    return tuple(names)


def _short(value: Any) -> str:
    """The content of the file, shortened for a message."""
    if isinstance(value, (list, dict)):
        kind = "a list" if isinstance(value, list) else "an object"
        return kind if value else f"{kind} without entries"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def from_npy(path: str) -> Found:
    """An (n, m) array, or a (2, n, m) array with two matrices."""
    values: NDArray[Any] = read_npy(Path(path))
    if values.ndim == 3 and len(values) == 2:
        return Found([_matrix(half, f"{path}[{k}]") for k, half in enumerate(values)])
    if values.ndim != 2:
        raise ValueError(f"{path} must have shape (n, m) or (2, n, m); its shape is {values.shape}")
    return Found([_matrix(values, path)])


def _matrix(values: NDArray[Any], where: str) -> Matrix:
    """A matrix of finite numbers, copied to float64."""
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"{where} must be a matrix with entries; its shape is {values.shape}")
    if values.dtype.kind not in "iufO":
        raise ValueError(f"{where} must hold real numbers; its dtype is {values.dtype}")
    if values.dtype.kind in "iu":
        values = floats_of(values, values.dtype.name, name=where)
    elif values.dtype == object:
        refuse_rounded(values, name=where)
    try:
        with np.errstate(over="ignore"):  # long doubles may be beyond float64, and are seen below
            matrix = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:  # of objects such as fractions
        raise ValueError(f"{where} must hold real numbers that fit float64: {error}") from None
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        i, j = (int(index) for index in bad[0])
        raise ValueError(
            f"{where}: entry [{i}, {j}] is {values[i, j]}; payoffs must be finite in float64"
        )
    return matrix


def is_game(source: Any, package: str) -> bool:
    """Whether ``source`` is a Game of ``package``, without importing it."""
    kind = getattr(sys.modules.get(package), "Game", None)
    return isinstance(kind, type) and isinstance(source, kind)


def from_nashpy(game: Any) -> Found:
    """The two payoff matrices of a nashpy game, which has no names."""
    first, second = (np.asarray(matrix) for matrix in game.payoff_matrices)
    return Found([_matrix(first, "A of the nashpy game"), _matrix(second, "B of the nashpy game")])


def from_gambit(game: Any, where: str) -> Found:
    """The strategic form of a two-player pygambit game, its payoffs rounded once."""
    players = list(game.players)
    if len(players) != 2:
        raise ValueError(
            f"{where} has {how_many(len(players), 'player')}; only two-player games are read"
        )
    try:
        payoffs = game.to_arrays()
        if hasattr(game, "get_strategies"):  # since pygambit 17
            names = [tuple(map(str, game.get_strategies(player))) for player in players]
        else:
            names = [tuple(s.label for s in player.strategies) for player in players]
    except Exception as error:  # from C++, of any kind
        raise ValueError(f"pygambit gives no payoff matrices for {where}: {error}") from error
    matrices = [_matrix(payoffs[k], f"player {k + 1} of {where}") for k in range(2)]
    return Found(matrices, *names)


def from_gambit_file(path: str, suffix: str) -> Found:
    """A two-player game in Gambit's own format, strategic (.nfg) or extensive (.efg)."""
    return from_gambit(gambit_game(path, suffix), path)


def gambit_game(path: str, suffix: str) -> Any:
    """The pygambit game in a file."""
    with needing(f"{path}: Gambit's {suffix} files need pygambit", packages="pygambit"):
        pygambit: Any = importlib.import_module("pygambit")
    parse = pygambit.read_nfg if suffix == ".nfg" else pygambit.read_efg
    text = utf8(path)
    try:
        return parse(io.StringIO(text))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
