"""Lines below and above an activation on an interval (theorem affine-activation)."""

from __future__ import annotations

from typing import NamedTuple

import torch

from taut._base.rounding import EPS
from taut.networks.operations.activation_slopes import Activation

CELLS = 24  # of the grid on which a remainder is bounded


class Lines(NamedTuple):
    """φ(t) − φ(m) between two lines in t − m, for t within a radius of m.

    ``slope·(t − m)`` plus something from ``low`` to ``high``; a hinge also has
    ``below·(t − m) + floor`` below it and ``slope·(t − m) + high`` above it.
    """

    slope: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    below: torch.Tensor | None = None
    floor: torch.Tensor | None = None
    bent: torch.Tensor = torch.zeros((), dtype=torch.bool)  # where ``below`` may be another slope


def lines(act: Activation, middle: torch.Tensor, radius: torch.Tensor) -> Lines:
    """Lines for every entry of ``middle``, on the interval of this radius around it."""
    if act.hinge is not None and act.hinge <= 1:
        return _hinge_lines(act.hinge, middle, radius)
    return _grid_lines(act, middle, radius)


def _hinge_lines(left: float, middle: torch.Tensor, radius: torch.Tensor) -> Lines:
    """max(t, left·t): the chord above it, and below it any line through 0 of a slope between.

    The chord is as computed: its height is what both ends need. The slope from below is that of
    the longer side, which leaves the smaller triangle.
    """
    low, high = _ends(middle, radius)
    bent = (low < 0) & (high > 0)
    here = torch.maximum(middle, left * middle)
    wide = torch.where(bent, high - low, 1.0)
    # not as plain numbers: torch.where makes float32 of two of them
    one, other = torch.ones_like(middle), torch.full_like(middle, left)
    chord = torch.where(bent, (high - left * low) / wide, torch.where(low >= 0, one, other))
    chord = chord.clamp(left, 1.0)
    height = torch.maximum((left - chord) * low, (1 - chord) * high).clamp(min=0.0)
    height = torch.where(bent, height * (1 + 8 * EPS), 0.0)
    below = torch.where(bent, torch.where(high > -low, one, other), chord)
    doubt = 8 * EPS * (middle.abs() + radius)
    start = chord * middle - here  # the line through 0, as seen from φ(m)
    floor = below * middle - here - doubt
    return Lines(chord, start - doubt, start + height + doubt, below, floor, bent)


def _grid_lines(act: Activation, middle: torch.Tensor, radius: torch.Tensor) -> Lines:
    """A chord, and the range of what is left of φ, from a grid on the interval.

    Between two points of the grid at a distance h the rest exceeds its values there by at most
    bend·h²/8, or by what its slopes allow where φ has a kink. The whole interval counts, so that
    the slope may be any number.
    """
    low, high = _ends(middle, radius)
    width = high - low
    ends = act.function(torch.stack((low, high)))
    slope = torch.where(width > 0, (ends[1] - ends[0]) / torch.where(width > 0, width, 1.0), 0.0)
    slope = slope.clamp(act.low, act.high)
    steps = torch.linspace(0, 1, CELLS + 1, dtype=middle.dtype, device=middle.device)
    at = low + width * steps.reshape(-1, *[1] * middle.ndim)
    # Inside: the last point may be rounded beyond the end of the interval.
    at = torch.minimum(at, high)
    here = act.function(middle)
    values = act.function(at) - slope * at
    start = here - slope * middle
    most = torch.maximum(low.abs(), high.abs())
    size = act.constant * most + act.at_zero + slope.abs() * most
    doubt = 32 * EPS * size + 2 * act.jump
    cell = width / CELLS * (1 + 1e-9) + 4 * EPS * most
    if act.bend < float("inf"):
        over = act.bend * cell**2 / 8
        bottom, top = values.amin(dim=0) - over, values.amax(dim=0) + over
    else:
        bottom, top = _kinked(values, cell, act.low - slope, act.high - slope)
    # Never worse than slopes between their limits all the way.
    reach = torch.maximum((act.high - slope).abs(), (act.low - slope).abs()) * radius * (1 + 1e-9)
    low_end, high_end = (torch.maximum(bottom - start, -reach), torch.minimum(top - start, reach))
    return Lines(slope, low_end - doubt, high_end + doubt)


def _kinked(
    values: torch.Tensor, cell: torch.Tensor, least: torch.Tensor, most: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Range of a function with these slopes and these values on a grid.

    From the left end of a cell it rises at most by ``most``, and towards its right end it falls at
    most by ``least``: it is highest where the two lines meet.
    """
    left, right = values[:-1], values[1:]
    spread = torch.where(most > least, most - least, 1.0)
    up = ((right - left - least * cell) / spread).clamp(min=0.0).minimum(cell)
    down = ((left - right + most * cell) / spread).clamp(min=0.0).minimum(cell)
    top = torch.maximum(torch.maximum(left, right), left + most * up).amax(dim=0)
    bottom = torch.minimum(torch.minimum(left, right), left + least * down).amin(dim=0)
    return bottom, top


def _ends(middle: torch.Tensor, radius: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The interval, rounded outward."""
    slack = 2 * EPS * (middle.abs() + radius)
    return middle - radius - slack, middle + radius + slack
