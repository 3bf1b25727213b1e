"""Properties of VNN-LIB files: read as written, decided truly, refused with their line."""

from __future__ import annotations

import gzip
from fractions import Fraction

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import taut.networks as tt  # noqa: E402

DECLARED = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0", "Y_1"))
BOX = "(assert (>= X_0 -1))(assert (<= X_0 1.5))\n(assert (>= X_1 0.125))(assert (<= X_1 0.125))\n"


def read(tmp_path, text, declared=DECLARED):
    path = tmp_path / "p.vnnlib"
    path.write_text(declared + text)
    return tt.read_vnnlib(path)


def linear(*rows, bias=None):
    """A network that computes y = Wx + b."""
    net = nn.Linear(2, len(rows), bias=bias is not None)
    with torch.no_grad():
        net.weight.copy_(torch.tensor(rows))
        if bias is not None:
            net.bias.copy_(torch.tensor(bias))
    return net


def test_boxes_and_disjunctions_are_read_exactly(tmp_path):
    found = read(tmp_path, BOX + """
        ; a comment (with parentheses
        (assert (or (and (<= Y_0 Y_1) (> (+ (* 2 Y_0) -0.1) 3e-1)) (>= (- Y_1) (/ 1 2)) ))
        """.replace("(/ 1 2)", "0.5"))  # fmt: skip
    assert (found.inputs, found.outputs) == (2, 2)
    one, other = found.cases
    assert one.lower == (Fraction(-1), Fraction(1, 8))
    assert one.upper == (Fraction(3, 2), Fraction(1, 8))
    first, second = one.outputs
    assert (first.coefficients, first.limit, first.strict) == ({0: 1, 1: -1}, 0, False)
    assert (second.coefficients, second.limit, second.strict) == ({0: -2}, Fraction(-4, 10), True)
    (third,) = other.outputs
    assert (third.coefficients, third.limit) == ({1: 1}, Fraction(-1, 2))


def test_several_boxes_and_empty_ones(tmp_path):
    boxes = [(-1, 0), (2, 3), (1, 0)]
    ors = " ".join(f"(and (>= X_0 {low}) (<= X_0 {high}))" for low, high in boxes)
    text = f"(assert (or {ors}))(assert (>= X_1 0))(assert (<= X_1 1))(assert (<= Y_0 Y_1))"
    cases = read(tmp_path, text).cases
    assert [(case.lower[0], case.upper[0]) for case in cases] == [(-1, 0), (2, 3)]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("(assert (<= (+ X_0 X_1) 1))", 5, "one by one"),
        ("\n(assert (<= X_0 Y_1))", 6, "mixed"),
        ("(assert (<= (* Y_0 Y_1) 1))", 5, "linear"),
        ("(assert (= Y_0 1))", 5, r"\(= ...\) is not known"),
        ("(assert (<= Y_7 1))", 5, "Y_7 was not declared"),
        ("(assert (<= Y_0 one))", 5, "'one' is neither"),
        ("(assert (not (<= Y_0 1)))", 5, r"\(not ...\)"),
        ("(define-fun f () Real 1)", 5, "define-fun"),
        ("\n\n(assert (<= Y_0 1)", 7, "not closed"),
        ("(declare-const Z Real)", 5, "variables must be"),
        ("Y_0", 5, "outside of parentheses"),
        ("(assert Y_0)", 5, "expected a formula"),
    ],
)
def test_anything_else_is_refused_with_its_line(text, line, words, tmp_path):
    with pytest.raises(ValueError, match=rf"p\.vnnlib, line {line}: .*{words}"):
        read(tmp_path, text)


def test_missing_bounds_and_variables(tmp_path):
    with pytest.raises(ValueError, match="X_1 has no lower bound"):
        read(tmp_path, "(assert (>= X_0 0))(assert (<= X_0 1))(assert (<= Y_0 0))")
    with pytest.raises(ValueError, match=r"Y_0, Y_1, \.\.\. must all be declared"):
        read(tmp_path, BOX, "".join(f"(declare-const {v} Real)\n" for v in ("X_0", "X_1", "Y_1")))
    (tmp_path / "b.vnnlib.gz").write_bytes(b"\x1f\x8b broken")
    with pytest.raises(ValueError, match="not a VNN-LIB file"):
        tt.read_vnnlib(tmp_path / "b.vnnlib.gz")


def test_verdicts(tmp_path):
    """y₀ = x₀, y₁ = 2: over x₀ in [−1, 1.5] y₀ reaches 1.5 and nothing more."""
    net = linear((1.0, 0.0), (0.0, 0.0), bias=(0.0, 2.0))
    verdicts = {
        "(assert (>= Y_0 Y_1))": "proved",
        "(assert (>= Y_0 1.6))": "proved",
        "(assert (>= Y_0 1.4))": "refuted",
        "(assert (or (>= Y_0 Y_1) (<= Y_1 1.9)))": "proved",
        "(assert (or (>= Y_0 Y_1) (<= Y_1 2)))": "refuted",
        "(assert (and (>= Y_0 1) (<= Y_0 0)))": "proved",  # each can happen, but not both
        "(assert (>= (* 0.1 Y_0) 0.16))": "proved",
        "(assert (< Y_1 2))": "open",  # holds, but the bound of 2 touches it
    }
    for text, wanted in verdicts.items():
        found = tt.verify_vnnlib(net, read(tmp_path, BOX + text), input_shape=(2,))
        assert found.verdict == wanted, text
        assert found.word == {"proved": "unsat", "refuted": "sat", "open": "unknown"}[wanted]
        record = found.to_dict()
        assert record["verdict"] == wanted
        if wanted == "refuted":
            torch.testing.assert_close(net(found.example), found.output)
            assert "(X_0 " in found.counterexample()
            assert record["input"] == found.example.flatten().tolist()
        else:
            assert found.example is None
            assert found.counterexample() == ""


def test_a_box_is_kept_though_it_has_no_exact_middle(tmp_path):
    """A third is no float: the ball that is verified must hold both ends of the box."""
    text = "(assert (>= X_0 0.1))(assert (<= X_0 0.3))(assert (>= X_1 0))(assert (<= X_1 0.7))"
    net = linear((1.0, 0.0), (0.0, 1.0)).double()
    limit = "(assert (or (>= Y_0 0.3) (<= Y_0 0.1) (>= Y_1 0.7)))"
    found = tt.verify_vnnlib(net, read(tmp_path, text + limit), input_shape=(2,))
    assert found.verdict != "proved"


def test_a_property_about_a_class_that_does_not_exist(tmp_path):
    wanted = read(tmp_path, BOX + "(assert (>= Y_0 Y_1))")
    with pytest.raises(ValueError, match="2 outputs, Y_0 to Y_1, and the network gives 3"):
        tt.verify_vnnlib(linear((1.0, 0), (0, 1.0), (0, 0)), wanted, input_shape=(2,))
    with pytest.raises(ValueError, match="2 inputs, X_0 to X_1, and the network takes 3"):
        tt.verify_vnnlib(nn.Linear(3, 2), wanted, input_shape=(3,))
    with pytest.raises(ValueError, match="every input is unsafe"):
        tt.verify_vnnlib(linear((1.0, 0), (0, 1.0)), read(tmp_path, BOX), input_shape=(2,))


def test_compressed_properties(tmp_path):
    path = tmp_path / "p.vnnlib.gz"
    path.write_bytes(gzip.compress((DECLARED + BOX + "(assert (<= Y_0 0))").encode()))
    assert len(tt.read_vnnlib(path).cases) == 1
