"""Settings of the audit and of certificates of whole models, with their defaults.

They are plain numbers and words, apart from PyTorch, because the command line shows the defaults
in its help and must start at once. The packages give them out as :class:`taut.audit.Settings` and
:class:`taut.networks.ModelSettings`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from taut._base.checks import exponent, real_number, whole_number

# All queries of a sample are measured up to so many, which an ordinary machine does in about the
# time of the forward pass; of longer ones so many are drawn.
ALL_QUERIES, DRAWN_QUERIES = 4096, 512
CONSEQUENCE_SAMPLES = 16  # of an audit from the command line, if it is asked for


@dataclass(frozen=True)
class AuditSettings:
    """How an audit loads a model, reads its data, and measures.

    Attributes
    ----------
    norms
        Exponents p of the norms: 1, 2 and ∞ have exact constants for every row, others an upper
        bound.
    epsilons
        Step sizes of the empirical constants of Nair (2025), which are measured on some rows;
        empty for none.
    threshold
        Rows whose l2 constant is at least this are counted.
    logits
        Inverse temperature by which the final logits are multiplied before they are measured like
        a head; None leaves them out.
    consequence
        Number of samples, the first ones, on which the consequence of noise on each head is
        estimated by backward passes; 0 for none. The model must give out logits.
    seed
        Seed of the random directions, sampled rows and drawn labels.
    sampled, rows
        Number of samples that rows are taken from for empirical constants, and number of rows of
        each layer from each of them.
    batch_size, max_length, limit
        Samples in a batch, tokens of a sample at most, and samples at most.
    queries
        Queries of each sample and head that are measured: a number of them, ``"all"``, or
        ``"auto"``, which measures all of up to 4,096 and draws 512 of more.
    quick
        Find the constants from the largest weight of each row alone. Those in l1 and l∞ are the
        same as otherwise; that in l2 lies between one half of them and all of them.
    theta
        Keep a bracket of the constant from l∞ to l1 of every row, 4 max P(S)(1 − P(S)) over sets S
        of keys, which takes longer than all other constants.
    column, tokenizer
        Column of a table that holds the samples, and the model whose tokenizer is used if it is
        another one.
    dtype, device, revision, trust_remote_code
        How a model is loaded by name.
    """

    norms: tuple[float, ...] = (1.0, 2.0, 4.0, math.inf)
    epsilons: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0)
    threshold: float = 0.45  # nine tenths of what a constant of softmax can be
    logits: float | None = None
    seed: int = 0
    consequence: int = 0
    sampled: int = 64
    rows: int = 1
    batch_size: int = 8
    max_length: int = 256
    limit: int = 256
    queries: int | str = "auto"
    quick: bool = False
    theta: bool = False
    column: str | None = None
    tokenizer: str | None = None
    dtype: str = "auto"
    device: str = "cpu"
    revision: str | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "norms", tuple(exponent(p) for p in self.norms))
        put(self, "epsilons", tuple(_between(e, "epsilon", 0.0, math.inf) for e in self.epsilons))
        put(self, "threshold", _between(self.threshold, "threshold", 0.0, 0.5))
        if self.logits is not None:
            put(self, "logits", _between(self.logits, "logits", 0.0, math.inf))
        for name, least in (("seed", 0), ("consequence", 0), ("sampled", 0), ("rows", 1),
                            ("batch_size", 1), ("max_length", 1), ("limit", 1)):  # fmt: skip
            put(self, name, whole_number(getattr(self, name), name=name, least=least))
        if self.queries not in ("all", "auto"):
            if isinstance(self.queries, str):
                raise ValueError(f"queries must be a number, 'all' or 'auto', got {self.queries!r}")
            put(self, "queries", whole_number(self.queries, name="queries", least=1))

    def queries_of(self, count: int) -> int:
        """How many of so many queries are measured."""
        if self.queries == "auto":
            return count if count <= ALL_QUERIES else DRAWN_QUERIES
        return count if isinstance(self.queries, str) else min(count, self.queries)

    def to_dict(self) -> dict[str, Any]:
        """Settings that change a number, as JSON can hold them."""
        elsewhere = ("device", "revision", "trust_remote_code", "column")
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in elsewhere}
        return {**found, "norms": [str(p) for p in self.norms], "epsilons": list(self.epsilons)}


@dataclass(frozen=True)
class ModelSettings:
    """What is bounded when a model is certified by name, and how.

    Attributes
    ----------
    inputs
        Text, a text file (one input a line), images or tensors: the model is bounded at them.
    radius
        With inputs, the distance from them within which the bound holds, and which is decided on
        for their classes; with a shape, the largest length of a token.
    shape, context_shape
        Instead of inputs: all inputs of this shape, and those of the encoder.
    norm
        ``"l2"`` over all tokens, or ``"token"``, the largest token.
    local
        How the derivative at the inputs is found: ``"jacobian"``, ``"probe"``, ``"auto"``, or
        ``"no"``.
    classify
        Whether to certify the radius of each input's class, in l1, l2 and l∞, and to attack it.
        With a radius also whether the class holds within it: proved, refuted or open.
    labels
        The right class of each input, so that certified accuracy can be told.
    synonyms, nearest_words
        A file of synonyms, or a number of nearest words: whether any combination of such words in
        the place of a text's own changes its class.
    time_limit
        Seconds for the radii of each norm, for each verdict on a radius, and for the words of each
        text; what was certified until then counts. None for no limit.
    limit, max_length
        Number of inputs, and tokens of an input, at most.
    seed
        Seed of the random directions.
    dtype, revision, trust_remote_code
        How the model is loaded.
    """

    inputs: tuple[str, ...] = ()
    radius: float | None = None
    shape: tuple[int, ...] | None = None
    context_shape: tuple[int, ...] | None = None
    norm: str = "l2"
    local: str = "auto"
    classify: bool = False
    labels: tuple[int, ...] | None = None
    synonyms: str | None = None
    nearest_words: int | None = None
    time_limit: float | None = None
    limit: int = 16
    max_length: int = 128
    seed: int = 0
    dtype: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "token"):
            raise ValueError(f"norm must be l2 or token, got {self.norm!r}")
        if self.local not in ("no", "auto", "jacobian", "probe"):
            raise ValueError(f"local must be no, auto, jacobian or probe, got {self.local!r}")
        if bool(self.inputs) == (self.shape is not None):
            raise ValueError("give either inputs or a shape")
        if self.context_shape is not None and self.shape is None:
            raise ValueError("context_shape needs shape")
        if self.classify and not self.inputs:
            raise ValueError("classify needs inputs")
        if self.labels is not None and not self.classify:
            raise ValueError("labels need classify")
        if self.synonyms is not None and self.nearest_words is not None:
            raise ValueError("give either synonyms or nearest_words")
        if (self.synonyms is not None or self.nearest_words is not None) and not self.inputs:
            raise ValueError("synonyms and nearest_words need inputs")
        for name in ("limit", "max_length", "nearest_words"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name=name, least=1)
        if self.time_limit is not None and not self.time_limit > 0:
            raise ValueError(f"time_limit must be > 0 seconds, got {self.time_limit}")
        if self.radius is not None and not self.radius > 0:
            raise ValueError(f"radius must be > 0, got {self.radius}")


def _between(value: float, name: str, low: float, high: float) -> float:
    found = real_number(value, name=name)
    if not low < found < high:
        raise ValueError(f"{name} must be a number between {low:g} and {high:g}, got {value}")
    return found
