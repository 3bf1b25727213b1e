"""read_vnnlib: a property of a network from a VNN-LIB file."""

from __future__ import annotations

import gzip
import itertools
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from taut.networks.vnnlib_files.linear_terms import LinearTerm, linear_term, variable
from taut.networks.vnnlib_files.s_expressions import Group, VnnlibError, Word, parsed

MOST = 10_000  # cases of a property


@dataclass(frozen=True)
class Inequality:
    """Coefficients of the outputs, times them, at most ``limit``; below it if ``strict``."""

    coefficients: dict[int, Fraction]
    limit: Fraction
    strict: bool


@dataclass(frozen=True)
class UnsafeCase:
    """A box of inputs, and outputs that none of them may have: all inequalities at once."""

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    outputs: tuple[Inequality, ...]


@dataclass(frozen=True)
class VnnlibProperty:
    """What a VNN-LIB file says: a network is safe if no case has an input with such outputs.

    Attributes
    ----------
    inputs, outputs
        How many variables of each there are.
    cases
        The unsafe cases; those whose box is empty are left out.
    """

    inputs: int
    outputs: int
    cases: tuple[UnsafeCase, ...]


def read_vnnlib(path: str | Path) -> VnnlibProperty:
    """Read a property from a .vnnlib file of version 1.0, or from one compressed by gzip.

    Inputs must be constrained by boxes, outputs by linear inequalities; ``and`` and ``or`` may be
    nested in any way. Anything else is refused with its line.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a VNN-LIB file that can be read: {error}") from None
    try:
        return _property(parsed(text))
    except VnnlibError as error:
        raise ValueError(f"{path}, {error}") from None


@dataclass(frozen=True)
class _Atom:
    term: LinearTerm  # at most 0
    strict: bool
    line: int


def _property(groups: list[Group]) -> VnnlibProperty:
    known: set[tuple[str, int]] = set()
    always: list[_Atom] = []
    choices: list[list[list[_Atom]]] = []
    for group in groups:
        match group.head:
            case "declare-const" | "declare-fun":
                known.add(_declared(group))
            case "assert" if len(group.parts) == 2:
                _assert(group.parts[1], known, always, choices)
            case "set-logic" | "set-info" | "set-option" | "check-sat" | "exit":
                pass
            case _:
                raise VnnlibError(group.line, f"({group.head} ...) is not known in VNN-LIB 1.0")
    many = [_counted(known, kind) for kind in ("X", "Y")]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MOST:
        raise VnnlibError(groups[-1].line, f"the property has more than {MOST} cases")
    box = _Box(many[0])
    outputs = _split(always, box)
    cases = []
    for chosen in itertools.product(*choices):
        own = box.copy()
        more = [each for part in chosen for each in _split(part, own)]
        found = own.case([*outputs, *more])
        if found is not None:
            cases.append(found)
    return VnnlibProperty(many[0], many[1], tuple(cases))


def _declared(group: Group) -> tuple[str, int]:
    name = group.parts[1] if len(group.parts) > 2 else None
    found = variable(name.text) if isinstance(name, Word) else None
    kind = group.parts[-1]
    if found is None or not isinstance(kind, Word) or kind.text != "Real":
        raise VnnlibError(group.line, "variables must be X_0, X_1, ... or Y_0, Y_1, ..., of Real")
    return found


def _counted(known: set[tuple[str, int]], kind: str) -> int:
    found = sorted(index for name, index in known if name == kind)
    if not found or found != list(range(len(found))):
        raise ValueError(f"variables {kind}_0, {kind}_1, ... must all be declared; got {found[:9]}")
    return len(found)


def _assert(
    part: Word | Group,
    known: set[tuple[str, int]],
    always: list[_Atom],
    choices: list[list[list[_Atom]]],
) -> None:
    """Enter what is asserted: single inequalities, or one of several lists of them."""
    found = _normal(part, known)
    if len(found) == 1:
        always.extend(found[0])
    else:
        choices.append(found)


def _normal(part: Word | Group, known: set[tuple[str, int]]) -> list[list[_Atom]]:
    """A formula as alternatives, each a list of inequalities that hold at once."""
    if not isinstance(part, Group):
        raise VnnlibError(part.line, f"expected a formula, got {part.text!r}")
    match part.head:
        case "or":
            return [each for inner in part.parts[1:] for each in _normal(inner, known)]
        case "and":
            sides = [_normal(inner, known) for inner in part.parts[1:]]
            count = 1
            for side in sides:
                count *= len(side)
            if count > MOST:
                raise VnnlibError(part.line, f"this formula has more than {MOST} cases")
            return [[a for side in each for a in side] for each in itertools.product(*sides)]
        case "<=" | ">=" | "<" | ">" if len(part.parts) == 3:
            left, right = (linear_term(each, known) for each in part.parts[1:])
            if part.head in (">=", ">"):
                left, right = right, left
            term = left.plus(right, Fraction(-1))
            return [[_Atom(term, part.head in ("<", ">"), part.line)]]
    raise VnnlibError(part.line, f"({part.head} ...) is not known: use and, or, <=, >=, < or >")


class _Box:
    def __init__(self, many: int) -> None:
        self.lower: list[Fraction | None] = [None] * many
        self.upper: list[Fraction | None] = [None] * many
        self.empty = False

    def copy(self) -> _Box:
        found = _Box(0)
        found.lower, found.upper, found.empty = list(self.lower), list(self.upper), self.empty
        return found

    def enter(self, index: int, slope: Fraction, constant: Fraction) -> None:
        """slope·x + constant ≤ 0."""
        limit = -constant / slope
        side, better = (self.upper, min) if slope > 0 else (self.lower, max)
        before = side[index]
        side[index] = limit if before is None else better(before, limit)

    def case(self, outputs: list[Inequality]) -> UnsafeCase | None:
        """The case, or None if no input is in its box."""
        for side, word in ((self.lower, "lower"), (self.upper, "upper")):
            for index, value in enumerate(side):
                if value is None:
                    raise ValueError(f"X_{index} has no {word} bound in the property")
        lower = tuple(value for value in self.lower if value is not None)
        upper = tuple(value for value in self.upper if value is not None)
        if self.empty or any(a > b for a, b in zip(lower, upper, strict=True)):
            return None
        return UnsafeCase(lower, upper, tuple(outputs))


def _split(atoms: list[_Atom], box: _Box) -> list[Inequality]:
    """Enter bounds of inputs into the box; the inequalities of outputs."""
    found = []
    for atom in atoms:
        kinds = {kind for kind, _ in atom.term.coefficients}
        if kinds == {"Y"}:
            coefficients = {index: v for (_, index), v in atom.term.coefficients.items()}
            found.append(Inequality(coefficients, -atom.term.constant, atom.strict))
        elif kinds == {"X"} and len(atom.term.coefficients) == 1:
            (((_, index), slope),) = atom.term.coefficients.items()
            box.enter(index, slope, atom.term.constant)  # a box that is closed holds an open one
        elif not kinds:
            true = atom.term.constant < 0 or (atom.term.constant == 0 and not atom.strict)
            box.empty = box.empty or not true
        elif kinds == {"X"}:
            raise VnnlibError(atom.line, "inputs must be constrained one by one, by a box")
        else:
            raise VnnlibError(atom.line, "inputs and outputs are mixed in one inequality")
    return found
