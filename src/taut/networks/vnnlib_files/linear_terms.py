"""Linear terms of inputs and outputs, with exact coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from taut.networks.vnnlib_files.s_expressions import Group, VnnlibError, Word


@dataclass(frozen=True)
class LinearTerm:
    """A constant and coefficients of variables such as ``("X", 0)``."""

    coefficients: dict[tuple[str, int], Fraction]
    constant: Fraction = Fraction(0)

    def plus(self, other: LinearTerm, factor: Fraction = Fraction(1)) -> LinearTerm:
        """The sum with a multiple of another."""
        found = dict(self.coefficients)
        for name, value in other.coefficients.items():
            found[name] = found.get(name, Fraction(0)) + factor * value
        kept = {name: value for name, value in found.items() if value}
        return LinearTerm(kept, self.constant + factor * other.constant)


NOTHING = LinearTerm({})


def linear_term(part: Word | Group, known: set[tuple[str, int]]) -> LinearTerm:
    """A number, a variable, or a sum, difference or multiple of such terms."""
    if isinstance(part, Word):
        return _word(part, known)
    terms = [linear_term(each, known) for each in part.parts[1:]]
    match part.head:
        case "+" if terms:
            return _sum(terms)
        case "-" if terms:
            first = terms[0] if len(terms) > 1 else NOTHING.plus(terms[0], Fraction(-1))
            return first.plus(_sum(terms[1:]), Fraction(-1))
        case "*" if terms:
            moving = [each for each in terms if each.coefficients]
            if len(moving) > 1:
                raise VnnlibError(part.line, "variables are multiplied; terms must be linear")
            factor = Fraction(1)
            for each in terms:
                factor *= 1 if each.coefficients else each.constant
            whole = moving[0] if moving else LinearTerm({}, Fraction(1))
            return NOTHING.plus(whole, factor)
    raise VnnlibError(part.line, f"expected a linear term, got ({part.head} ...)")


def _sum(terms: list[LinearTerm]) -> LinearTerm:
    found = NOTHING
    for each in terms:
        found = found.plus(each)
    return found


def _word(word: Word, known: set[tuple[str, int]]) -> LinearTerm:
    name = variable(word.text)
    if name is not None:
        if name not in known:
            raise VnnlibError(word.line, f"{word.text} was not declared")
        return LinearTerm({name: Fraction(1)})
    try:
        return LinearTerm({}, Fraction(word.text))
    except (ValueError, ZeroDivisionError):
        raise VnnlibError(word.line, f"{word.text!r} is neither a variable nor a number") from None


def variable(text: str) -> tuple[str, int] | None:
    """X_0, Y_1 and so on."""
    kind, _, index = text.partition("_")
    return (kind, int(index)) if kind in ("X", "Y") and index.isdecimal() else None
