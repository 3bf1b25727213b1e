"""Names of layers without what all of them share."""

from __future__ import annotations

from collections.abc import Sequence


def short_layer_names(names: Sequence[str]) -> list[str]:
    """Names without the parts that all of them share: ``layer 0`` for ``encoder.layer.0.self``."""
    differs = _differs(names)
    short = list(names)
    if differs:
        parts = [zip(name.split("."), differs, strict=True) for name in names]
        short = [".".join(part for part, own in pairs if own) for pairs in parts]
    return [f"layer {name}" if name.isdigit() else name for name in short]


def layer_pattern(names: Sequence[str]) -> str:
    """What all names share, with a star for the rest: ``encoder.layer.*.self``; or nothing."""
    differs = _differs(names)
    if not differs or all(differs):
        return ""
    parts = zip(names[0].split("."), differs, strict=True)
    return ".".join("*" if own else part for part, own in parts)


def _differs(names: Sequence[str]) -> list[bool]:
    """For each part of the names, whether it differs; empty if they are not built alike."""
    parts = [name.split(".") for name in names]
    if len(names) < 2 or len({len(part) for part in parts}) > 1:
        return []
    return [len(set(column)) > 1 for column in zip(*parts, strict=True)]
