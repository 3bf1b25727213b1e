"""Formulas in plain Unicode, as pages and docstrings write them, as MathML.

``‖M‖_p ≤ √(2n)·s₁²`` becomes what a browser typesets by itself: nothing is loaded, no script runs.
"""

from __future__ import annotations

import re
from html import escape

PLAIN = "0123456789+−=()"
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ᵢⱼₖₗₘₙₚₛₜᵤᵥₓₐₑₒₕᵣ", PLAIN + "ijklmnpstuvxaeohr", strict=True))
SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵀᶜⁿⁱᵖᵏ", PLAIN + "Tcnipk", strict=True))
FRACTIONS = {"½": (1, 2), "¼": (1, 4), "¾": (3, 4), "⅓": (1, 3), "⅔": (2, 3), "⅛": (1, 8)}
ACCENTS = {"\u0304": "¯", "\u0302": "^", "\u0303": "~", "\u0307": "˙"}
LARGE = {"Σ": "∑", "∑": "∑", "Π": "∏", "∏": "∏", "∫": "∫"}
OPEN, CLOSE = "([{⟨⌊⌈", ")]}⟩⌋⌉"
RELATIONS = "=≤≥<>≠≈≡∈∉⊂⊆→↦⇒⇔←∼≪≫∝↔⪯⪰"
OPERATORS = "+−-±∓·×∘⊙⊗∗*/⁄,;:…∪∩∖!|‖~∀∃¬∧∨"
# Words inside of formulas: functions, and quantities that are called by their names.
WORDS = {
    "softmax",
    "max",
    "min",
    "exp",
    "log",
    "ln",
    "tanh",
    "osc",
    "Diag",
    "diag",
    "sigmoid",
    "expm1",
    "sup",
    "inf",
    "arg",
    "argmax",
    "argmin",
    "sign",
    "KL",
    "tr",
    "rank",
    "span",
    "lse",
    "erf",
    "erfc",
    "supp",
    "conv",
    "det",
    "vec",
    "mean",
    "Var",
    "Cov",
    "TV",
    "relu",
    "ReLU",
    "GELU",
    "cosh",
    "sinh",
    "cos",
    "sin",
    "eps",
    "ulp",
    "fl",
    "mod",
    "dist",
    "diam",
    "floor",
    "median",
    "stack",
    "scale",
    "factor",
    "tolerance",
    "epsilon",
    "query",
    "key",
    "variance",
    "temperature",
    "cap",
}
LONG = 24  # characters of a formula that may be broken
TOKEN = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-−+]?\d+)?|[A-Za-z]+|\s+|.", re.DOTALL)


class FormulaError(ValueError):
    """A formula that cannot be read; the page should be mended."""


def mathml(formula: str, *, block: bool = False) -> str:
    """A formula as an element ``<math>``."""
    reader = _Reader(formula)
    inside = reader.row("")
    display = ' display="block"' if block else ""
    return f"<math{display}><mrow>{inside}</mrow></math>"


def lines(formula: str) -> list[str]:
    """A formula as several ``<math>``: a long one can go on in the next line before =, ≤, + and −.

    Browsers break no formula by themselves. Nothing inside of brackets, bars or roots is parted.
    """
    reader = _Reader(formula)
    parts: list[list[str]] = [[]]
    long = len(formula) > LONG
    while reader.next:
        token, inside = reader.next, bool(reader.bars)
        item = reader.scripted()
        if token in RELATIONS and not any(parts):  # ≤ 1 begins where the text does
            item = item.replace("<mo", '<mo lspace="0"', 1)
        elif long and token in RELATIONS + "+−-" and not inside and len("".join(parts[-1])) > 30:
            item = item.replace("<mo", '<mo form="infix"', 1)
            parts.append([])
        parts[-1].append(item)
    return [f"<math><mrow>{''.join(part)}</mrow></math>" for part in parts]


class _Reader:
    """Reads tokens from left to right; every method returns MathML."""

    def __init__(self, formula: str) -> None:
        self.formula = formula
        self.tokens = [
            token for token in TOKEN.findall(re.sub(r"l∞", "l_∞", formula)) if not token.isspace()
        ]
        self.place = 0
        self.bars: list[str] = []

    @property
    def next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        if not self.next:
            raise FormulaError(f"something is missing at the end of {self.formula!r}")
        self.place += 1
        return self.tokens[self.place - 1]

    def row(self, end: str) -> str:
        """Everything up to a closing bracket, which is taken too; to the end for ``""``."""
        found, bars = [], len(self.bars)
        while self.next != end:
            if not self.next:
                raise FormulaError(f"a bracket is not closed in {self.formula!r}")
            if self.next in CLOSE and self.next not in ")]":  # ]0, 1) and the like are intervals
                raise FormulaError(f"{self.next} closes nothing in {self.formula!r}")
            found.append(self.scripted())
        if end:
            self.take()
        del self.bars[bars:]
        return "".join(found)

    def scripted(self) -> str:
        """An atom with what stands below and above it."""
        base = self.atom()
        below, above = "", ""
        while True:
            token = self.next
            if token and token[0] in SUBSCRIPTS:
                below += self.small(SUBSCRIPTS)
            elif token and token[0] in SUPERSCRIPTS:
                above += self.small(SUPERSCRIPTS)
            elif token in ("′", "’", "″"):
                above += f"<mo>{'′' if self.take() != '″' else '″'}</mo>"
            elif token == "_":
                self.take()
                below += self.script()
            elif token == "^":
                self.take()
                above += self.script()
                if self.next and self.next[0] in SUBSCRIPTS:  # in x^αₖ the k is α's
                    index = self.small(SUBSCRIPTS)
                    above = f"<msub><mrow>{above}</mrow><mrow>{index}</mrow></msub>"
            else:
                break
        if below and above:
            return f"<msubsup>{base}<mrow>{below}</mrow><mrow>{above}</mrow></msubsup>"
        if below:
            return f"<msub>{base}<mrow>{below}</mrow></msub>"
        return f"<msup>{base}<mrow>{above}</mrow></msup>" if above else base

    def small(self, table: dict[str, str]) -> str:
        """Consecutive Unicode subscripts or superscripts."""
        text = ""
        while self.next and self.next[0] in table:
            text += table[self.take()]
        return _Reader(text).row("")

    def script(self) -> str:
        """What follows ``_`` or ``^``: a group in braces, or one atom with its sign."""
        if not self.next:
            raise FormulaError(f"nothing follows _ or ^ in {self.formula!r}")
        if self.next == "{":
            self.take()
            return self.row("}")
        sign = f"<mo>{self.take()}</mo>" if self.next in "−-+" else ""
        if re.fullmatch("[ijklmnt]{2,3}", self.next):  # A_ij
            return sign + "".join(f"<mi>{letter}</mi>" for letter in self.take())
        if len(self.next) > 1 and self.next.isalpha() and self.next not in WORDS:
            word = self.take()  # one letter below or above, and the others beside it
            self.tokens.insert(self.place, word[1:])
            return f"{sign}<mi>{word[0]}</mi>"
        found = self.atom()
        if self.next == "′":  # in ‖A‖_p′ the prime is p's: the dual exponent
            self.take()
            found = f"<msup>{found}<mo>′</mo></msup>"
        return sign + found

    def atom(self) -> str:
        """One symbol, number, word, root or group in brackets."""
        token = self.take()
        if self.next in ACCENTS and len(token) == 1:
            return f'<mover accent="true"><mi>{token}</mi><mo>{ACCENTS[self.take()]}</mo></mover>'
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token in FRACTIONS:
            above, below = FRACTIONS[token]
            return f"<mfrac><mn>{above}</mn><mn>{below}</mn></mfrac>"
        if token == "√":
            return self.root()
        if token.isascii() and token.isalpha():
            return self.letters(token)
        if token in LARGE:
            return f'<mo movablelimits="true">{LARGE[token]}</mo>'
        if token in OPEN:
            return self.brackets(token)
        if token in "|‖":
            return self.bar(token)
        if token in RELATIONS + OPERATORS + CLOSE:
            minus = "−" if token == "-" else token
            slash = ' lspace="0.1em" rspace="0.1em"' if token in "/⁄" else ""
            return f'<mo{slash} stretchy="false">{escape(minus)}</mo>'
        if token in "∎%":
            return f"<mtext>{token}</mtext>"
        if token.isalpha() or token in "∞∂∇ℓ°∅⊤⊥ℝ𝔼":
            return f"<mi>{token}</mi>"
        raise FormulaError(f"{token!r} is not known in {self.formula!r}")

    def root(self) -> str:
        if self.next == "(":
            self.take()
            return f"<msqrt>{self.row(')')}</msqrt>"
        return f"<msqrt>{self.scripted()}</msqrt>"

    def brackets(self, token: str) -> str:
        """A group; intervals such as [0, 1) may close with another bracket."""
        close = CLOSE[OPEN.index(token)]
        if token in "([" and self.closes_with() in ")]":
            close = self.closes_with()
        inside = self.row(close)
        return (
            f'<mrow><mo stretchy="false" form="prefix">{token}</mo>{inside}'
            f'<mo stretchy="false" form="postfix">{close}</mo></mrow>'
        )

    def closes_with(self) -> str:
        """The bracket that closes what was just opened, by counting."""
        depth = 1
        for token in self.tokens[self.place :]:
            depth += (token in OPEN) - (token in CLOSE)
            if depth == 0:
                return token
        raise FormulaError(f"a bracket is not closed in {self.formula!r}")

    def bar(self, token: str) -> str:
        """‖ or |, which opens or closes; in between, two of ‖ may be ‖·‖‖·‖."""
        if token in self.bars:
            self.bars.remove(token)
            form = "postfix"
        else:
            self.bars.append(token)
            form = "prefix"
        return f'<mo stretchy="false" form="{form}" lspace="0" rspace="0">{token}</mo>'

    def letters(self, word: str) -> str:
        """A function by its name, weights such as Wq, or a product of letters."""
        if re.fullmatch("([Wb][qkvo]){2,}", word):
            self.tokens[self.place : self.place] = [word[2:]]
            word = word[:2]
        if word in WORDS or len(word) > 3:
            return f"<mi>{word}</mi>"
        if re.fullmatch(r"[Wb][qkvo]", word):
            return f"<msub><mi>{word[0]}</mi><mi>{word[1]}</mi></msub>"
        if len(word) > 1:  # the last letter takes the scripts
            self.place -= 1
            self.tokens[self.place : self.place + 1] = [word[0], word[1:]]
            return self.atom()
        return f"<mi>{word}</mi>"
