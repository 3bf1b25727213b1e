"""The areas of the campaign, one file each."""

from __future__ import annotations

from fuzz.area import Area
from fuzz.areas.attention import Attention
from fuzz.areas.boxes import Boxes
from fuzz.areas.brackets import Brackets
from fuzz.areas.constraints import Constraints
from fuzz.areas.exact_constants import ExactConstants
from fuzz.areas.games import Games
from fuzz.areas.mixed_norms import MixedNorms
from fuzz.areas.networks import Networks
from fuzz.areas.steps import Steps

AREAS: dict[str, type[Area]] = {
    area.name: area
    for area in (
        ExactConstants, Brackets, Boxes, Steps, MixedNorms,
        Attention, Games, Constraints, Networks,
    )
}  # fmt: skip
