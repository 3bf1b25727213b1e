"""Games read from files and from other libraries; every error says what is wrong and where."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from taut.games import Payoffs, read

NFG = 'NFG 1 R "x" { "a" "b" } { { "U" "D" } { "L" "R" } } ""\n\n1 -1 1/3 2.5 3 -3 4 4'
EFG = """EFG 2 R "pennies" { "a" "b" }
p "" 1 1 "" { "H" "T" } 0
p "" 2 1 "" { "h" "t" } 0
t "" 1 "" { 1, -1 }
t "" 2 "" { -1, 1 }
p "" 2 1 "" { "h" "t" } 0
t "" 3 "" { -1, 1 }
t "" 4 "" { 1, -1 }
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Write a file into the current directory, so that messages hold its bare name."""
    monkeypatch.chdir(tmp_path)

    def write(name, content):
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return name

    return write


def npy(values):
    file = io.BytesIO()
    np.save(file, values, allow_pickle=True)
    return file.getvalue()


def message(source):
    with pytest.raises(ValueError, match=r".") as caught:
        read(source)
    return str(caught.value)


# ---------------------------------------------------------------- text files


@pytest.mark.parametrize(
    ("name", "content", "costs"),
    [
        ("a.csv", "1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("a.csv", "1,2\n3,4", [[1, 2], [3, 4]]),
        ("A.CSV", "1,2\r\n3,4\r\n", [[1, 2], [3, 4]]),
        ("a.csv", "1,2\r3,4\r", [[1, 2], [3, 4]]),
        ("a.csv", b"\xef\xbb\xbf1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("a.csv", b"\xef\xbb\xbf\r\n1,2\r\n3,4\r\n\r\n", [[1, 2], [3, 4]]),
        ("a.csv", "1;2\n3;4\n", [[1, 2], [3, 4]]),
        ("a.csv", "1\t2\n3\t4\n", [[1, 2], [3, 4]]),
        ("a.csv", " 1 , +2 \n-3.5,4e-1\n", [[1, 2], [-3.5, 0.4]]),
        ("a.csv", "# note\n\n1,2 # one\n  # two\n3,4\n\n", [[1, 2], [3, 4]]),
        ("a.csv", "1,2,3", [[1, 2, 3]]),
        ("a.csv", "5", [[5]]),
        ("a.csv", "1\n2", [[1], [2]]),
        ("a.csv", '"1","2"\n', [[1, 2]]),
        ("a.csv", ",,\n1,2\n,,\n", [[1, 2]]),
        ("a.csv", "1/3,-2/4\n0/7,7 / 2\n", [[1 / 3, -0.5], [0, 3.5]]),
        ("a.tsv", "1\t2\n3\t4\n", [[1, 2], [3, 4]]),
        ("a.txt", "1 2\n3 4\n", [[1, 2], [3, 4]]),
        ("a.txt", "  1   2 \n 3 4", [[1, 2], [3, 4]]),
        ("a.txt", "1, 2\n3, 4\n", [[1, 2], [3, 4]]),
        ("a.txt", "1\t2\n3\t4\n", [[1, 2], [3, 4]]),
    ],
)
def test_text(make, name, content, costs):
    game = read(make(name, content))
    np.testing.assert_array_equal(game.costs, costs)
    np.testing.assert_array_equal(game.row, -np.array(costs))
    assert game.zero_sum
    assert game.costs.dtype == game.row.dtype == np.float64
    assert game[2:] == (None, None)


@pytest.mark.parametrize(
    ("name", "content", "rows", "columns"),
    [
        ("a.csv", "L,R\n1,2\n3,4", None, ("L", "R")),
        ("a.csv", "a,1,2\nb,3,4", ("a", "b"), None),
        ("a.csv", ",L,R\na,1,2\nb,3,4", ("a", "b"), ("L", "R")),
        ("a.csv", "name,L,R\na,1,2\nb,3,4", ("a", "b"), ("L", "R")),
        ("a.csv", "L,R\na,1,2\nb,3,4", ("a", "b"), ("L", "R")),  # as R's write.table has it
        ("a.csv", ",0,1\n0,1,2\n1,3,4", ("0", "1"), ("0", "1")),  # as pandas has it
        ("a.csv", ",L,R\n0,1,2\n1,3,4", ("0", "1"), ("L", "R")),
        ("a.csv", '"a,b",1,2\n"c ""d""",3,4', ("a,b", 'c "d"'), None),
        ("a.csv", '"x # y",C#\n1,2\n3,4', None, ("x # y", "C#")),
        ("a.csv", "Stein,Größe\n1,2\n3,4", None, ("Stein", "Größe")),
        ("a.csv", "↑,2nd\n1,2\n3,4", None, ("↑", "2nd")),
        ("a.csv", b"\xef\xbb\xbf,L,R\r\na,1,2\r\nb,3,4\r\n", ("a", "b"), ("L", "R")),
        ("a.tsv", "\tL one\tR\na\t1\t2\nb\t3\t4", ("a", "b"), ("L one", "R")),
        ("a.txt", '    L R\n"a b" 1 2\nc 3 4', ("a b", "c"), ("L", "R")),
    ],
)
def test_names(make, name, content, rows, columns):
    game = read(make(name, content))
    assert game.costs.tolist() == [[1, 2], [3, 4]]
    assert (game.row_names, game.column_names) == (rows, columns)


@pytest.mark.parametrize("separator", ["---\n", " --- \n", "---,\n", "\n---\n\n"])
def test_two_tables_are_the_gains_of_both_players(make, separator):
    game = read(make("a.csv", f"1,2\n3,4\n{separator}5,6\n7,8\n"))
    assert game.row.tolist() == [[1, 2], [3, 4]]
    assert game.column.tolist() == [[5, 6], [7, 8]]
    assert not game.zero_sum


@pytest.mark.parametrize(
    "content", ["x,L\na,1\n---\nx,L\na,2", "x,L\na,1\n---\n2", "1\n---\nx,L\na,2"]
)
def test_names_of_two_tables(make, content):
    game = read(make("a.csv", content))
    assert game == Payoffs(np.array([[1.0]]), np.array([[2.0]]), ("a",), ("L",))


HINT = "; names must fill the first line or the first column, without numbers among them"
SAME = "every row must have the same"
EMPTY = "the cell is empty; every cell must hold a number"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "a.csv is empty: it must hold rows of numbers"),
        ("\n# only this\n,,\n", "a.csv is empty: it must hold rows of numbers"),
        ("---\n", "a.csv is empty: it must hold rows of numbers"),
        ("L,R\n", "a.csv has no numbers below the names in line 1"),
        ("#\n1,2,3,4\n#\n5,6,7\n", f"a.csv: line 4 has 3 numbers, line 2 has 4; {SAME}"),
        ("1,2\n3\n", f"a.csv: line 2 has 1 number, line 1 has 2; {SAME}"),
        ("a,1,2\nb,3,4,5", f"a.csv: line 2 has 3 numbers, line 1 has 2; {SAME}"),
        ("x,y,L,R\na,1,2", "a.csv: the names in line 1 fill 4 cells, line 2 has 3"),
        (",L\n1", "a.csv: the names in line 1 fill 2 cells, line 2 has 1"),
        ("L\n1,2", "a.csv: the names in line 1 fill 1 cell, line 2 has 2"),
        (",L,R\na,1,2,3", "a.csv: the names in line 1 fill 3 cells, line 2 has 4"),
        ("1,2\n3,x\n", "a.csv, line 2, column 2: 'x' is not a number"),
        ("L,R\na,1,2\nb,3,4.0.0", "a.csv, line 3, column 3: '4.0.0' is not a number"),
        ("1.O,2\n3,4", f"a.csv, line 1, column 1: '1.O' is not a number{HINT}"),
        ("1,2\nx,4", f"a.csv, line 2, column 1: 'x' is not a number{HINT}"),
        ("L,2,R\n1,2,3", f"a.csv, line 1, column 1: 'L' is not a number{HINT}"),
        ("L,,R\n1,2,3", f"a.csv, line 1, column 1: 'L' is not a number{HINT}"),
        ("a\nb", f"a.csv, line 2, column 1: 'b' is not a number{HINT}"),
        ("1,5;2\n", "a.csv, line 1, column 1: '1,5' is not a number; write decimals with a point"),
        ("1 2\n3 4", "a.csv, line 1, column 1: '1 2' is not a number"),
        ("50%,1", "a.csv, line 1, column 1: '50%' is not a number"),
        ("−1,2", "a.csv, line 1, column 1: '−1' is not a number"),
        ("1_000", "a.csv, line 1, column 1: '1_000' is not a number"),
        ("1,1/0", "a.csv, line 1, column 2: '1/0' is not a number"),
        ("1,1/2/3", "a.csv, line 1, column 2: '1/2/3' is not a number"),
        ("1,.5/2", "a.csv, line 1, column 2: '.5/2' is not a number"),
        ("1,2\n3," + "9x" * 50, f"a.csv, line 2, column 2: '{'9x' * 18}9...' is not a number"),
        ("1,,2", f"a.csv, line 1, column 2: {EMPTY}"),
        ("1,2,\n3,4,", f"a.csv, line 1, column 3: {EMPTY}"),
        (",2,3\n4,5,6", f"a.csv, line 1, column 1: {EMPTY}"),
        (",L\n,1", "a.csv, line 2, column 1: the name of the row is empty"),
        ("1,nan", "a.csv, line 1, column 2: 'nan' is not a finite number"),
        ("NaN,NaN\n1,2", "a.csv, line 1, column 1: 'NaN' is not a finite number"),
        ("1\r\n-inf\r\n", "a.csv, line 2, column 1: '-inf' is not a finite number"),
        ("1e999", "a.csv, line 1, column 1: '1e999' is not a finite number"),
        (
            "1," + "9" * 400 + "/7",
            "a.csv, line 1, column 2: '" + "9" * 37 + "...' is not a finite number",
        ),
        ("1\n---", "a.csv has no numbers after the line ---"),
        ("---\n1", "a.csv has no numbers before the line ---"),
        ("1\n---\n2\n---\n3", "a.csv, line 4: a second ---; a file holds one table or two"),
        (
            "1,2\n---\n1,2\n3,4",
            "a.csv: both matrices must have one shape; the first is 1 × 2, the second 2 × 2",
        ),
        (
            "a,1\n---\nb,2",
            "a.csv: row 1 is named 'a' in the first table, 'b' in the second; "
            "name them alike, or in one table only",
        ),
        (
            "L,R\n1,2\n---\nL,r\n1,2",
            "a.csv: column 2 is named 'R' in the first table, 'r' in the second; "
            "name them alike, or in one table only",
        ),
        (
            '1,2\n"a,3\n4,5',
            "a.csv, line 2: cannot be split into cells, check its quotes: unexpected end of data",
        ),
        (
            '"1"2,3',
            "a.csv, line 1: cannot be split into cells, check its quotes: ',' expected after '\"'",
        ),
        (
            b"1,2\r\n3,\xe9\n",
            "a.csv, line 2: byte 8 of the file, 0xe9, is not UTF-8; save the file as UTF-8",
        ),
        (
            b"\xff\xfe1\x00,\x002\x00",
            "a.csv, line 1: byte 1 of the file, 0xff, is not UTF-8; save the file as UTF-8",
        ),
    ],
)
def test_malformed_text(make, content, expected):
    assert message(make("a.csv", content)) == expected


def test_long_cells_are_refused(make):
    assert message(make("a.csv", "x" * 200_000)).startswith("a.csv, line 1: cannot be split")


def test_fractions_are_rounded_once(make):
    top, bottom = 10**40 + 1, 3 * 10**39 + 7
    assert read(make("a.csv", f"{top}/{bottom}")).costs[0, 0] == float(Fraction(top, bottom))


def test_numbers_survive_savetxt(make):
    values = np.random.default_rng(0).standard_normal((30, 40))
    file = io.StringIO()
    np.savetxt(file, values, fmt="%.17g")
    np.testing.assert_array_equal(read(make("a.txt", file.getvalue())).costs, values)


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize("prefix", ["", "\ufeff"])
def test_json(make, prefix):
    assert read(make("a.json", prefix + "[[1, 2], [3, 4.5]]")).costs.tolist() == [[1, 2], [3, 4.5]]
    content = {"A": [[1, 2]], "B": [[3, 4]], "rows": ["a"], "columns": ["é", "y"]}
    game = read(make("a.json", prefix + json.dumps(content)))
    assert (game.row.tolist(), game.column.tolist()) == ([[1, 2]], [[3, 4]])
    assert (game.row_names, game.column_names) == (("a",), ("é", "y"))
    game = read(make("a.json", '{"A": [[1]], "B": null, "rows": null}'))
    assert game == Payoffs(np.array([[-1.0]]), np.array([[1.0]]))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "a.json, line 1, column 1: not JSON: Expecting value"),
        ('{"A": [[1]],\n "B" 3}', "a.json, line 2, column 6: not JSON: Expecting ':' delimiter"),
        ("3", 'a.json must hold {"A": rows of numbers} or rows of numbers'),
        ('{"A": [[1]], "C": 3}', 'a.json: unknown key "C"; the keys are A, B, rows, columns'),
        ('{"B": [[1]]}', 'a.json: the key "A" is missing; it holds the rows of numbers'),
        ('{"A": [[1]], "A": [[2]]}', 'a.json: the key "A" stands twice in one object'),
        ("[]", "a.json: A must be a list of rows, got a list without entries"),
        ('{"A": {}}', "a.json: A must be a list of rows, got an object without entries"),
        ("[[]]", "a.json: A[0] must be a list of numbers, got a list without entries"),
        ("[[1], 2]", "a.json: A[1] must be a list of numbers, got 2"),
        (
            '{"A": [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3]]}',
            f"a.json: A[2] has 3 numbers, A[0] has 4; {SAME}",
        ),
        (
            '{"A": [[1, 2], [3, 4]], "B": [[1, 2], [3]]}',
            f"a.json: B[1] has 1 number, B[0] has 2; {SAME}",
        ),
        ("[[1, 2], [3, true]]", "a.json: A[1][1] must be a number, got true"),
        ('[[1, "1/3"]]', 'a.json: A[0][1] must be a number, got "1/3"'),
        ('{"A": [[1]], "B": [[null]]}', "a.json: B[0][0] must be a number, got null"),
        ("[[[1]]]", "a.json: A[0][0] must be a number, got a list"),
        ("[[NaN]]", "a.json: A[0][0] must be a finite number, got NaN"),
        ("[[1, -Infinity]]", "a.json: A[0][1] must be a finite number, got -Infinity"),
        ("[[1e999]]", "a.json: A[0][0] must be a finite number, got Infinity"),
        (
            "[[" + "9" * 400 + "]]",
            "a.json: A[0][0] must be a finite number, got " + "9" * 37 + "...",
        ),
        (
            '{"A": [[1]], "B": [[1, 2]]}',
            "a.json: both matrices must have one shape; the first is 1 × 1, the second 1 × 2",
        ),
        ('{"A": [[1, 2]], "rows": ["a", "b"]}', "a.json: rows has 2 names, A has 1 row"),
        ('{"A": [[1, 2]], "columns": ["a"]}', "a.json: columns has 1 name, A has 2 columns"),
        ('{"A": [[1]], "rows": [1]}', "a.json: rows[0] must be a name in quotes, got 1"),
        ('{"A": [[1]], "rows": "a"}', 'a.json: rows must be a list of names, got "a"'),
        (
            b'\n["\xff"]',
            "a.json, line 2: byte 4 of the file, 0xff, is not UTF-8; save the file as UTF-8",
        ),
    ],
)
def test_malformed_json(make, content, expected):
    assert message(make("a.json", content)) == expected


@pytest.mark.parametrize("content", ["[" * 200_000, "[[" + "1" * 5000 + "]]"])
def test_excessive_json(make, content):
    assert message(make("a.json", content)).startswith("a.json: ")


# ---------------------------------------------------------------- NumPy


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "f4", "f2", "i1", "u8", "g"])
def test_npy(make, dtype):
    values = np.array([[1, 2, 3], [4, 5, 6]], dtype=dtype)
    for array in (values, np.asfortranarray(values)):
        game = read(make("a.npy", npy(array)))
        assert game.costs.tolist() == values.tolist()
        assert game.costs.dtype == np.dtype("=f8")
        assert game.costs.flags.c_contiguous
    game = read(make("a.npy", npy(np.stack([values, 2 * values]))))
    assert (game.row.tolist(), game.column.tolist()) == (values.tolist(), (2 * values).tolist())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (npy(np.zeros(3)), "a.npy must have shape (n, m) or (2, n, m); its shape is (3,)"),
        (npy(np.array(1.0)), "a.npy must have shape (n, m) or (2, n, m); its shape is ()"),
        (
            npy(np.zeros((3, 2, 2))),
            "a.npy must have shape (n, m) or (2, n, m); its shape is (3, 2, 2)",
        ),
        (npy(np.zeros((0, 2))), "a.npy must be a matrix with entries; its shape is (0, 2)"),
        (npy(np.zeros((2, 2, 0))), "a.npy[0] must be a matrix with entries; its shape is (2, 0)"),
        (npy(np.eye(2) * 1j), "a.npy must hold real numbers; its dtype is complex128"),
        (npy(np.eye(2) > 0), "a.npy must hold real numbers; its dtype is bool"),
        (npy(np.array([["a"]])), "a.npy must hold real numbers; its dtype is <U1"),
        (
            npy(np.array([[1, 2], [3, np.nan]])),
            "a.npy: entry [1, 1] is nan; payoffs must be finite in float64",
        ),
        (
            npy(np.array([[[1, 2]], [[3, -np.inf]]])),
            "a.npy[1]: entry [0, 1] is -inf; payoffs must be finite in float64",
        ),
        (b"", "a.npy is not an .npy file; write one with numpy.save"),
        (b"1,2\n3,4\n", "a.npy is not an .npy file; write one with numpy.save"),
        (b"PK\x03\x04", "a.npy is not an .npy file; write one with numpy.save"),
    ],
)
def test_malformed_npy(make, content, expected):
    assert message(make("a.npy", content)) == expected


@pytest.mark.parametrize(
    "content",
    [
        npy(np.array([[1, None]], dtype=object)),
        npy(np.eye(3))[:-5],
        npy(np.eye(3))[:20],
        npy(np.eye(3))[:7],
        npy(np.eye(3)).replace(b"(3, 3)", b"(3, x)"),
        npy(np.eye(3)).replace(b"(3, 3), }           ", b"(99999999, 9999999)}"),
    ],
)
def test_unreadable_npy(make, content):
    assert message(make("a.npy", content)).startswith(
        "a.npy cannot be read as an array of numbers: "
    )


# ---------------------------------------------------------------- pygambit and nashpy


def strategic(*payoffs):
    pygambit = pytest.importorskip("pygambit")
    kind = getattr(pygambit, "StrategicGame", pygambit.Game)  # pygambit 17, or before
    return kind.from_arrays(*(np.array(matrix) for matrix in payoffs))


def test_gambit_player_1_gains_what_costs_negates():
    game = read(strategic([[1, 2], [3, 4]], [[-1, -2], [-3, -4]]))
    assert game.row.tolist() == [[1, 2], [3, 4]]
    assert game.costs.tolist() == [[-1, -2], [-3, -4]]
    assert game.zero_sum
    assert (game.row_names, game.column_names) == (("1", "2"), ("1", "2"))


def test_gambit_general_sum():
    game = read(strategic([[1, 2, 3]], [[1, -2, -3]]))
    assert not game.zero_sum
    with pytest.raises(ValueError, match=r"sum to 2 in row 1, column 1 and to 0 in row 1, col"):
        _ = game.costs


@pytest.mark.parametrize(("players", "count"), [(1, "1 player"), (3, "3 players")])
def test_gambit_other_numbers_of_players(players, count):
    game = strategic(*[np.zeros((2,) * players, dtype=int)] * players)
    assert message(game) == f"the pygambit game has {count}; only two-player games are read"


def test_gambit_without_payoff_matrices(monkeypatch):
    pygambit = pytest.importorskip("pygambit")

    class Broken:
        players = ("a", "b")

        def to_arrays(self):
            raise RuntimeError("no strategies")

    monkeypatch.setattr(pygambit, "Game", Broken)
    expected = "pygambit gives no payoff matrices for the pygambit game: no strategies"
    assert message(Broken()) == expected


def test_gambit_files(make):
    pytest.importorskip("pygambit")
    game = read(make("a.nfg", "\ufeff" + NFG))
    assert game.row.tolist() == [[1, 3], [1 / 3, 4]]
    assert game.column.tolist() == [[-1, -3], [2.5, 4]]
    assert (game.row_names, game.column_names) == (("U", "D"), ("L", "R"))
    game = read(Path(make("a.efg", EFG)))
    assert game.costs.tolist() == [[-1, 1], [1, -1]]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.nfg", "garbage", "a.nfg: Parse error in game file: line 1:9: "),
        ("a.efg", NFG, "a.efg: Parse error in game file: line 1:5: "),
        ("a.nfg", NFG[:-4], "a.nfg: Parse error in game file: line 3:"),
        ("a.nfg", b"\n\xe9", "a.nfg, line 2: byte 2 of the file, 0xe9, is not UTF-8"),
        ("a.nfg", 'NFG 1 R "" { "a" } { 2 }\n\n1 2', "a.nfg has 1 player; only two-player"),
        ("a.nfg", NFG + "0" * 400, "player 2 of a.nfg must hold real numbers that fit float64: "),
    ],
)
def test_malformed_gambit_files(make, name, content, expected):
    pytest.importorskip("pygambit")
    assert message(make(name, content)).startswith(expected)


def test_gambit_files_need_pygambit(make, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygambit", None)
    with pytest.raises(ImportError, match=r"^a\.nfg: .* need pygambit.*: pip install .*pygambit"):
        read(make("a.nfg", NFG))


@pytest.mark.parametrize(
    ("matrices", "row", "column", "zero_sum"),
    [
        (([[1, 2], [3, 4]],), [[1, 2], [3, 4]], [[-1, -2], [-3, -4]], True),
        (([[1, 2]], [[3, 4]]), [[1, 2]], [[3, 4]], False),
        (([[Fraction(1, 3)]],), [[1 / 3]], [[-1 / 3]], True),
    ],
)
def test_nashpy(matrices, row, column, zero_sum):
    nashpy = pytest.importorskip("nashpy")
    game = read(nashpy.Game(*matrices))
    assert (game.row.tolist(), game.column.tolist()) == (row, column)
    assert game.zero_sum == zero_sum
    assert game[2:] == (None, None)
    if zero_sum:
        assert game.costs.tolist() == column


def test_nashpy_arrays_are_copied():
    nashpy = pytest.importorskip("nashpy")
    A = np.eye(2)
    game = read(nashpy.Game(A))
    A[0, 0] = 7
    assert game.row[0, 0] == 1


@pytest.mark.parametrize(
    ("matrices", "expected"),
    [
        (
            ([[1, np.nan]],),
            "A of the nashpy game: entry [0, 1] is nan; payoffs must be finite in float64",
        ),
        (([[1j]],), "A of the nashpy game must hold real numbers; its dtype is complex128"),
        (([1, 2],), "A of the nashpy game must be a matrix with entries; its shape is (2,)"),
        (
            ([[1], [2]], [[1], [Fraction(10**400)]]),
            "B of the nashpy game must hold real numbers that fit float64: "
            "integer division result too large for a float",
        ),
    ],
)
def test_malformed_nashpy(matrices, expected):
    nashpy = pytest.importorskip("nashpy")
    assert message(nashpy.Game(*matrices)) == expected


def test_neither_library_is_imported(make):
    make("a.csv", "1,2")
    code = (
        "import sys\n"
        "from taut.games import read\n"
        "read('a.csv')\n"
        "assert not {'pygambit', 'nashpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- what is no game, and zero sums


@pytest.mark.parametrize("source", [np.eye(2), [[1, 2]], None, b"a.csv", 3])
def test_other_sources(source):
    kind = type(source).__name__
    with pytest.raises(TypeError, match=rf"got {kind}; matrices .* go to the solver as they are"):
        read(source)


def test_missing_files_directories_and_endings(make, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^there is no file nope\.csv$"):
        read("nope.csv")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read("1,2\n3,4")
    with pytest.raises(IsADirectoryError, match=r"is a directory; give the path of a file in it$"):
        read(tmp_path)
    known = "supported formats: .csv, .tsv, .txt, .npy, .json, and with pygambit .nfg and .efg"
    assert message(make("a.xlsx", "")) == (
        f"cannot tell the format of a.xlsx: the ending .xlsx is not known; {known}"
    )
    assert message(make("a", "1")) == f"cannot tell the format of a: it has no ending; {known}"


@pytest.mark.parametrize(
    ("column", "zero_sum"),
    [
        ([[-1.0, 0.0]], True),
        ([[-1.0, -0.0]], True),
        ([[np.nextafter(-1, 0), 0.0]], True),  # but for rounding
        ([[2.0, 3.0]], True),  # the sum is constant
        ([[-1.0, 1e-12]], False),
    ],
)
def test_zero_sum_up_to_a_constant(column, zero_sum):
    game = Payoffs(np.array([[1.0, 0.0]]), np.array(column))
    assert game.zero_sum == zero_sum
    if zero_sum:
        np.testing.assert_allclose(game.costs[0, 1] - game.costs[0, 0], 1.0)


def test_a_blank_line_between_rows(make):
    expected = "a.csv, line 3: a blank line between rows; a line --- separates two matrices"
    assert message(make("a.csv", "1,2\n3,4\n\n5,6\n7,8\n")) == expected


def test_no_negative_zeros(make):
    assert not np.signbit(read(make("a.csv", "0,1")).row[0, 0])


def test_paths_of_any_kind(make, tmp_path):
    make("a b.csv", "1,2")
    assert read(tmp_path / "a b.csv").costs.tolist() == [[1, 2]]
    assert read(str(tmp_path / "a b.csv")).costs.tolist() == [[1, 2]]


def test_integers_that_float64_does_not_hold(make, tmp_path):
    big = 2**53 + 1
    path = tmp_path / "big.npy"
    np.save(path, np.array([[big, 0]]))
    for source in (make("a.json", f"[[{big}, 0]]"), make("b.json", f"[[{big}, 0.5]]"), str(path)):
        with pytest.raises(ValueError, match="cannot hold exactly"):
            read(source)
    np.save(path, np.array([[2**60, -(2**63)]]))
    assert read(str(path)).costs.tolist() == [[2.0**60, -(2.0**63)]]
