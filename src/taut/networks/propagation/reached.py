"""Reached: what carried rows are on the input, and where errors arose on the way."""

from __future__ import annotations

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.checkpoint import Checkpoint
from taut.networks.propagation.input_set import InputRows, InputSet
from taut.networks.propagation.node import Node, Pulled
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.source import Source

TINY = 1e-100  # more than all that underflows


class Trail:
    """Rows as they passed, for those who need more of their errors than a number.

    Attributes
    ----------
    stop
        The checkpoint at which they ended, and 0 for the input.
    ends
        The rows there.
    parts
        The rows on each operation that adds an error, with that error.
    drift
        What they are where linear parts and errors are 0.
    """

    def __init__(self, stop: int, like: torch.Tensor) -> None:
        self.stop = stop
        self.ends: Rows | None = None
        self.parts: dict[int, tuple[Rows, Source]] = {}
        self.drift = torch.zeros_like(like)


class Reached:
    """Rows that were carried to the input: the value of each is reach ± error around a shift."""

    def __init__(self, linear: InputRows | None, reach: torch.Tensor) -> None:
        self.linear = linear
        self.reach = reach
        self.shift = torch.zeros_like(reach)
        self.error = torch.zeros_like(reach)
        self.slack: dict[int, torch.Tensor] = {}
        self.rounding = torch.zeros_like(reach)
        self.trail: Trail | None = None

    def add_offset(self, rows: Rows, offset: torch.Tensor) -> None:
        """Enter what the centre of a node is off what its parents' centres lead to."""
        moved = rows.on(offset)
        self.shift += moved
        self.rounding += rows.weighed(offset.norm(dim=-1)) * ((offset.numel() + 4) * EPS)
        if self.trail is not None:
            self.trail.drift += moved

    def add(self, pulled: Pulled, rows: Rows, node: Node) -> None:
        """Enter what an operation adds to rows on its output."""
        self.shift += pulled.shift
        self.error += pulled.error
        self.rounding += pulled.rounding + rows.weighed(node.local)
        if isinstance(pulled.error, torch.Tensor):
            self.slack[node.index] = pulled.error

    def end(
        self, rows: Rows, inputs: InputSet, tokens: int, before: tuple[int, Checkpoint] | None
    ) -> None:
        """Enter the rows on the input, which has so many tokens, or on a checkpoint before it."""
        if before is None:
            rows = rows if self.trail is None else Rows(rows.dense(tokens))
            self.linear = inputs.entries(rows)
        else:
            index, checkpoint = before
            values, error, rounding = checkpoint.end(rows)
            self.linear = InputRows(values, None)
            self.error += error
            self.rounding += rounding
            self.slack[index] = error
        self.reach = inputs.reach(self.linear.values)

    @property
    def half(self) -> torch.Tensor:
        """Half of the width of the interval."""
        return (self.reach + self.error + self.rounding) * (1 + 1e-12) + TINY


def joined(parts: list[Reached]) -> Reached:
    """One result of several chunks of rows."""
    if len(parts) == 1:
        return parts[0]
    whole = Reached(None, torch.cat([part.reach for part in parts]))
    for name in ("shift", "error", "rounding"):
        setattr(whole, name, torch.cat([getattr(part, name) for part in parts]))
    for index in parts[0].slack:
        whole.slack[index] = torch.cat([part.slack[index] for part in parts])
    if all(part.linear is not None for part in parts):
        linear = [part.linear for part in parts if part.linear is not None]
        tokens = [each.token for each in linear]
        single = None if tokens[0] is None else torch.cat([t for t in tokens if t is not None])
        whole.linear = InputRows(torch.cat([each.values for each in linear]), single)
    trails = [part.trail for part in parts if part.trail is not None]
    if trails:
        whole.trail = _joined_trails(trails)
    return whole


def _joined_trails(trails: list[Trail]) -> Trail:
    whole = Trail(trails[0].stop, trails[0].drift)
    whole.drift = torch.cat([trail.drift for trail in trails])
    ends = [trail.ends for trail in trails if trail.ends is not None]
    whole.ends = _joined_rows(ends) if ends else None
    for index, (_, source) in trails[0].parts.items():
        whole.parts[index] = (_joined_rows([trail.parts[index][0] for trail in trails]), source)
    return whole


def _joined_rows(parts: list[Rows]) -> Rows:
    values = torch.cat([part.values for part in parts])
    tokens = [part.token for part in parts if part.token is not None]
    return Rows(values, torch.cat(tokens) if tokens else None)
