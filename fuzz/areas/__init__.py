"""The areas of the campaign, one file each."""

from __future__ import annotations

from fuzz.area import Area
from fuzz.areas.exact_constants import ExactConstants

AREAS: dict[str, type[Area]] = {area.name: area for area in (ExactConstants,)}
