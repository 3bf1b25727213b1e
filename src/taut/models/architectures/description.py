"""How an architecture is described: where its maps, heads, scale and norms are, by name.

Names are paths from a module, such as ``intermediate.dense``; one that begins with ``..`` starts at
the module around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

ROLES = ("query", "key", "value")
Thirds = tuple[str, ...]


@dataclass(frozen=True)
class AttentionDescription:
    """Where attention modules of some classes keep what they compute with.

    Attributes
    ----------
    classes
        Full names of the classes; empty for what is found by its names alone.
    query, key, value, output
        The linear maps, or the matrices themselves.
    fused
        One map that holds several of them.
    orders
        In which order the fused map holds them, one below the other; several orders are told apart
        by its size. Empty if models differ in it.
    bias
        The fused bias of maps that are bare matrices.
    heads, groups
        The number of heads, and how many of them share one key and value.
    scale
        The factor of the scores; ``1/√width of a head`` if not given.
    query_norm, key_norm
        RMSNorms of the queries and keys of each head.
    dropouts
        Probabilities of dropout.
    cross_place, cross_flag, always_cross
        What tells attention to another sequence: the name under which layers hold it, an attribute
        that says so, or the class itself.
    replaceable
        Whether the module calls transformers' AttentionInterface on plain projections (nothing
        rotates or normalises them, nothing is added to the scores), so that another attention
        function can take its place.
    """

    output: str
    classes: tuple[str, ...] = ()
    query: str = ""
    key: str = ""
    value: str = ""
    fused: str = ""
    orders: tuple[Thirds, ...] = ()
    bias: str = ""
    heads: str = ""
    groups: str = ""
    scale: str = ""
    query_norm: str = ""
    key_norm: str = ""
    dropouts: tuple[str, ...] = ()
    cross_place: str = ""
    cross_flag: str = ""
    always_cross: bool = False
    replaceable: bool = False


@dataclass(frozen=True)
class FeedForwardDescription:
    """Where feed-forward modules of some classes keep their linear maps and their activation."""

    first: str
    second: str
    gate: str = ""
    classes: tuple[str, ...] = ()
    activation: str = ""
    dropouts: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The names of the maps, as certificates show them."""
        gate = f"{self.gate}*" if self.gate else ""
        return f"{gate}{self.first}+{self.second}"


@dataclass(frozen=True)
class Branch:
    """One part of a layer, ``x + part(x)``, and its norm.

    Attributes
    ----------
    part
        The module; empty for the layer's own feed-forward maps.
    norm
        The norm before the part, or after the sum; empty if there is none.
    kind
        Whether the part is attention of the tokens to themselves, attention to another sequence
        (``"cross"``), or feed-forward maps.
    then
        Modules that follow on the branch, such as dropout.
    residual
        Whether the input is added; not so where the part does this itself.
    """

    part: str
    norm: str = ""
    kind: Literal["self", "cross", "feed-forward"] = "feed-forward"
    then: tuple[str, ...] = ()
    residual: bool = True


@dataclass(frozen=True)
class LayerDescription:
    """Layers of some classes, as a sequence of branches."""

    classes: tuple[str, ...]
    branches: tuple[Branch, ...]
    norm_first: bool = True
    dropouts: tuple[str, ...] = ()


@dataclass(frozen=True)
class RmsNormDescription:
    """Where RMSNorms of some classes keep their gain and their epsilon."""

    classes: tuple[str, ...]
    gain: str = "weight"
    epsilon: str = "variance_epsilon"


@dataclass(frozen=True)
class Architecture:
    """A family of models that keep their maps in the same places."""

    name: str
    models: tuple[tuple[str, str], ...]  # of transformers: folders, and prefixes of classes
    attention: tuple[AttentionDescription, ...]
    feed_forward: tuple[FeedForwardDescription, ...] = ()
    layers: tuple[LayerDescription, ...] = ()
    rms_norms: tuple[RmsNormDescription, ...] = ()

    def named(self, *names: str) -> tuple[str, ...]:
        """Full names of classes of all models of the family, such as those ending in ``Layer``."""
        return hugging_face(self.models, *names)


def hugging_face(models: Iterable[tuple[str, str]], *names: str) -> tuple[str, ...]:
    """Full names of classes of transformers.

    ``models`` are folders and prefixes, such as ``("xlm_roberta", "XLMRoberta")``. Classes are
    named, not imported: importing transformers takes seconds.
    """
    return tuple(
        f"transformers.models.{folder}.modeling_{folder}.{prefix}{name}"
        for folder, prefix in models
        for name in names
    )
