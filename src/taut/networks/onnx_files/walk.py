"""Walk: the rule of a network from an ONNX file, one operation after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from taut.networks.onnx_files.execution import ACTIVATIONS, activation_module
from taut.networks.onnx_files.movement import MOVES, split
from taut.networks.onnx_files.network import OnnxNetwork
from taut.networks.onnx_files.polynomial import Polynomial
from taut.networks.onnx_files.step import Step, UnknownOperationError
from taut.networks.onnx_files.symbols import NormPart, PlacedEntries, ScoreProduct, TokenSource

Reading = Callable[["Walk", Step, list[Any]], Any]
READINGS: dict[str, Reading] = {}


def reads(*kinds: str) -> Callable[[Reading], Reading]:
    """Enter how operations are read."""

    def keep(reading: Reading) -> Reading:
        READINGS.update(dict.fromkeys(kinds, reading))
        return reading

    return keep


class Walk:
    """Follow the steps of a network with what a rule is given.

    Parameters
    ----------
    run
        What rules work with, :class:`Interpreter` or a recorder.
    """

    def __init__(self, run: Any) -> None:
        self.run = run
        self.step: Step | None = None

    def through(self, network: OnnxNetwork, x: Any) -> Any:
        """The region or node of the output: tokens if it has two axes, else one token."""
        values: dict[str, Any] = dict(network.constants)
        shape = (1, *network.input_shape) if network.batch_axis else network.input_shape
        values[network.input_name] = self.placed(x, shape)
        for step in network.steps:
            self.step = step
            given = [values[name] if name else None for name in step.inputs]
            values.update(zip(step.outputs, self._read(step, given), strict=False))
        found = self.entries(values[network.output_name])
        width = network.output_shape[-1] if len(network.output_shape) == 2 else -1
        return self.laid(found, found.places.reshape(-1 if width > 0 else 1, width))

    def _read(self, step: Step, given: list[Any]) -> tuple[Any, ...]:
        hides = step.kind in ("Add", "Where") and any(isinstance(v, ScoreProduct) for v in given)
        if not hides and any(_is_infinite(value) for value in given):
            raise self.unknown("a constant of it is infinite")
        if step.kind in ("Identity", "Dropout"):
            return (given[0],)
        if step.kind in MOVES or step.kind == "Split":
            x = self.entries(given[0])
            rest = [x.places, *given[1:]]
            parts = split(step, rest) if step.kind == "Split" else (MOVES[step.kind](step, rest),)
            return tuple(x.moved(part) for part in parts)
        if step.kind in ACTIVATIONS:
            node, places = self.whole(self.entries(given[0]))
            y = self.run.activation(node, activation_module(step), step.name)
            return (PlacedEntries(TokenSource(y), places),)
        return (READINGS[step.kind](self, step, given),)

    def placed(self, node: Any, shape: tuple[int, ...]) -> PlacedEntries:
        """All entries of a region or node, in the order of a shape."""
        tokens = TokenSource(node)
        return PlacedEntries(tokens, torch.arange(tokens.count).reshape(shape))

    def entries(self, value: Any) -> PlacedEntries:
        """A value as entries: what was left for later is done now."""
        if isinstance(value, PlacedEntries):
            return value
        if isinstance(value, Polynomial):
            return self.activated(value)
        if isinstance(value, NormPart) and value.kind in ("mean", "centred"):
            return self.averaged(value)
        raise self.unknown(f"its {_words(value)} is used in another way than rules know")

    def unknown(self, why: str) -> UnknownOperationError:
        """The error that names the operation in hand."""
        assert self.step is not None
        return UnknownOperationError(self.step, why)

    def activated(self, value: Polynomial) -> PlacedEntries:
        """A function that is written out, if it is a known activation."""
        found = value.activation()
        if found is None:
            raise self.unknown("a function of its input is not one of the known activations")
        function, factor = found
        node, places = self.whole(value.of.times(factor))
        assert self.step is not None
        return PlacedEntries(
            TokenSource(self.run.activation(node, function, self.step.name)), places
        )

    def averaged(self, value: NormPart) -> PlacedEntries:
        """The mean of the last axis, or what is left without it: linear maps."""
        node = self.matrix(value.of)
        width = node.width
        weight = torch.full((1, width), 1 / width, dtype=torch.float64)
        if value.kind == "centred":
            weight = torch.eye(width, dtype=torch.float64) - weight
        assert self.step is not None
        return self.placed(self.run.linear(node, weight, None, self.step.name), value.shape)

    def matrix(self, x: PlacedEntries) -> Any:
        """Tokens whose width is the last axis."""
        return self.laid(x, x.places.reshape(-1, x.shape[-1]))

    def laid(self, x: PlacedEntries, rows: torch.Tensor) -> Any:
        """Tokens with these places, (tokens, width), of the entries."""
        node = x.tokens.made(self.run)
        same = rows.shape == (node.tokens, node.width) and not x.tokens.is_image
        if not (same and torch.equal(rows.flatten(), torch.arange(x.tokens.count))):
            assert self.step is not None
            node = self.run.rearrange(node, rows, self.step.name)
        return node if x.factor == 1 else self.run.scale(node, x.factor)

    def whole(self, x: PlacedEntries) -> tuple[Any, torch.Tensor]:
        """Tokens of which every entry is used once, and the places of the value in them."""
        flat = x.places.flatten()
        once = len(flat) == x.tokens.count and torch.equal(
            flat.sort().values, torch.arange(len(flat))
        )
        if once and not x.tokens.is_image:
            node = x.tokens.made(self.run)
            return (node if x.factor == 1 else self.run.scale(node, x.factor)), x.places
        rows = x.places.reshape(1, -1) if x.tokens.is_image else x.places.reshape(-1, x.shape[-1])
        return self.laid(x, rows), torch.arange(len(flat)).reshape(x.shape)


def in_tokens(node: Any, places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Numbers for each entry of a value, (tokens, width) as the entries lie."""
    flat = torch.empty(places.numel(), dtype=values.dtype)
    flat[places.flatten()] = values.expand(places.shape).flatten().cpu()
    return flat.reshape(node.tokens, node.width)


def _is_infinite(value: Any) -> bool:
    real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return real and not bool(value.isfinite().all())


def _words(value: Any) -> str:
    if isinstance(value, NormPart):
        return {"root": "standard deviation"}.get(value.kind, "mean square")
    return "product of queries and keys"
