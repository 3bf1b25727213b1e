"""Find formulas in sentences: runs of symbols between words."""

from __future__ import annotations

import re

from formula_mathml import (
    ACCENTS,
    CLOSE,
    FRACTIONS,
    LARGE,
    OPEN,
    RELATIONS,
    SUBSCRIPTS,
    SUPERSCRIPTS,
    WORDS,
)  # fmt: skip

# One of these makes a formula of what it stands in; a word or a number alone does not.
STRONG = {*"‖√∞∂∇⟨⟩⌊⌋⌈⌉^_′±×·∘⊙⊗∪∩ℓ−", *RELATIONS, *LARGE, *SUBSCRIPTS, *SUPERSCRIPTS, *ACCENTS}
GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩϕϵℝ"
NAME = re.compile(r"[A-Za-z]{2,}(_[A-Za-z]{2,})+|__\w+__")  # of a file or variable: it is code
# Between spaces, but of √(s² + ε)-Lipschitz the formula alone.
CHUNK = re.compile(r"\s+|(?<=[)\]½α-ω])-[A-Za-z]{4,}|(?:(?!(?<=[)\]½α-ω])-[A-Za-z]{4})\S)+")
END = ".,;:?!"
LETTER = re.compile("[A-Za-z]|([Wb][qkvo])+")
ARTICLES = ("a", "A", "I")
INITIAL = re.compile(r"(?:^\s*|, )([A-Z])\. (?=[A-Z][a-z])")  # of a person: S. Cen, Y. Wei
ARROWS = ("→", "←", "↔")  # alone they stand between words: de → en


def find_formulas(text: str, *, letters: bool = False) -> list[tuple[bool, str]]:
    """Parts of a text, each with whether it is a formula; together they are the text.

    ``letters`` takes single letters for variables, as on pages of proofs.
    """
    found: list[tuple[bool, str]] = []
    initials = {match.start(1) for match in INITIAL.finditer(text)}
    for piece, run in _runs(text):
        if not run:
            _add(found, False, piece)
            continue
        for part, bracket in _split_at_open_brackets(piece):
            before, formula, after = _trimmed(part)
            strong = any(c in STRONG or c in GREEK for c in formula)
            lone = letters and bool(LETTER.fullmatch(formula)) and formula not in ARTICLES
            lone = lone and sum(len(said) for _, said in found) + len(before) not in initials
            if formula and (strong or lone) and formula not in ARROWS:
                _add(found, False, before)
                _add(found, True, formula)
                _add(found, False, after)
            else:
                _add(found, False, part)
            _add(found, False, bracket)
    return found


def _split_at_open_brackets(piece: str) -> list[tuple[str, str]]:
    """Parts of a run and the brackets between them whose partners are among words."""
    opened: list[int] = []
    lone = []
    for place, c in enumerate(piece):
        if c in "([":
            opened.append(place)
        elif c in ")]":
            lone.append(place) if not opened else opened.pop()
    cuts = sorted(lone + opened)
    ends = [*cuts, len(piece)]
    starts = [0, *(cut + 1 for cut in cuts)]
    return [(piece[a:b], piece[b : b + 1]) for a, b in zip(starts, ends, strict=True)]


def _add(found: list[tuple[bool, str]], formula: bool, text: str) -> None:
    if not text:
        return
    if found and not formula and not found[-1][0]:
        found[-1] = (False, found[-1][1] + text)
    else:
        found.append((formula, text))


def _runs(text: str) -> list[tuple[str, bool]]:
    """Runs of chunks that may belong to a formula, and of all others, with the spaces between."""
    found: list[tuple[str, bool]] = []
    depth = 0
    for chunk in CHUNK.findall(text):
        if chunk.isspace():
            if found:
                _join(found, chunk)
            else:
                found.append((chunk, False))
            continue
        likely = _is_likely(chunk) or (depth > 0 and chunk.strip(END + "()") in WORDS)
        starts = not found or not found[-1][1] or (depth <= 0 and _ends(found[-1][0]))
        if likely and not starts:
            _join(found, chunk)
        else:
            found.append((chunk, likely))
            depth = 0
        if likely:
            depth += sum(c in OPEN for c in chunk) - sum(c in CLOSE for c in chunk)
    return _without_spaces(found)


def _join(found: list[tuple[str, bool]], chunk: str) -> None:
    found[-1] = (found[-1][0] + chunk, found[-1][1])


def _without_spaces(found: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    result = []
    for piece, run in found:
        bare = piece.rstrip() if run else piece
        result.append((bare, run))
        if len(bare) < len(piece):
            result.append((piece[len(bare) :], False))
    return result


def _ends(piece: str) -> bool:
    """Whether a formula ends here: at a comma or a full stop that is not inside of brackets."""
    return piece.rstrip()[-1:] in END


def _is_likely(chunk: str) -> bool:
    """Whether a chunk between spaces looks like a part of a formula."""
    if NAME.search(chunk) or "`" in chunk or "://" in chunk:
        return False
    bare = chunk.strip("".join(END)).lstrip("(").rstrip(")")
    if chunk in ("…", "+", "−", "-", "/", "|") or bare in ("…", ""):
        return chunk != "-"
    for word in re.findall(r"[A-Za-z]+", bare):
        if LETTER.fullmatch(word):
            continue
        if len(word) > 3 and word not in WORDS:
            return False
        if len(word) > 1 and word not in WORDS and not _beside_symbol(bare, word):
            return False
    if re.search(r"[A-Za-z]-[A-Za-z]{2}", bare):  # hyphenated words
        return False
    if any(c in STRONG or c in GREEK or c in FRACTIONS or c.isdigit() for c in bare):
        return True
    if bare in ENGLISH:
        return False
    # Single letters, names of functions, brackets and operators: X)(T, max(a, f(x)
    return bool(re.fullmatch(r"[A-Za-z()\[\]{}|,+/=<>*…-]+", chunk.strip(END)))


# Of the words in formulas, those that stand in sentences too.
ENGLISH = {
    "inf",
    "mean",
    "span",
    "rank",
    "floor",
    "sign",
    "sin",
    "max",
    "min",
    "mod",
    "eps",
    "dist",
    "median",
    "log",
    "conv",
    "tr",
    "arg",
    "scale",
    "stack",
    "factor",
    "tolerance",
    "epsilon",
    "query",
    "key",
    "variance",
    "temperature",
    "cap",
}
SHORT_WORDS = {"As", "In", "If", "It", "Is", "At", "By", "On", "Or", "To", "We", "So", "No", "Of",
               "An", "Do", "Up", "Be"}  # fmt: skip


def _beside_symbol(chunk: str, word: str) -> bool:
    """Whether letters are variables: ssᵀ, dyⱼ, Wq; not a word such as "of" or "iff"."""
    if re.fullmatch(r"[Wb][qkvo]|[A-Z][a-z]", word) and word not in SHORT_WORDS:
        return True
    at = chunk.index(word)
    around = chunk[max(at - 1, 0) : at] + chunk[at + len(word) : at + len(word) + 1]
    return any(c in STRONG or c in GREEK or c in "([{}])|" for c in around)


def _trimmed(piece: str) -> tuple[str, str, str]:
    """What stands before a formula, the formula, and what stands after it."""
    before, after = "", ""
    while piece:
        first, last = piece[0], piece[-1]
        if last in END or last.isspace() or last in "”“\"'–":
            piece, after = piece[:-1], last + after
        elif first.isspace() or first in "“\"'–":
            piece, before = piece[1:], before + first
        elif _wrapped(piece):
            piece, before, after = piece[1:-1], before + first, last + after
        elif match := re.match(r"(a|A|I)\s+(?![=≤≥<>∈+−·])", piece):
            piece, before = piece[match.end() :], before + match[0]
        elif match := re.search(r"(?<![=≤≥<>∈+−·])\s+(a|A|I)$", piece):
            piece, after = piece[: match.start()], match[0] + after
        else:
            break
    return before, piece, after


def _wrapped(piece: str) -> bool:
    """Whether one pair of round brackets is around all of a piece, as around a remark."""
    if not (piece.startswith("(") and piece.endswith(")")):
        return False
    depth = 0
    for place, c in enumerate(piece):
        depth += (c in OPEN) - (c in CLOSE)
        if depth == 0:
            return place == len(piece) - 1
    return False
