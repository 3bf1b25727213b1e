"""What the data of an audit were, in sentences for the report and the terminal."""

from __future__ import annotations

from typing import Any


def data_sentences(data: dict[str, Any]) -> list[str]:
    """Say what the data were, and what was cut or scaled."""
    kind, samples = data.get("kind"), data.get("samples")
    if not kind:
        return []
    column = f", column {data['column']!r}" if data.get("column") else ""
    lines = [f"Data: {samples} samples ({kind}) from {data.get('source')}{column}."]
    if data.get("truncated"):
        lines.append(
            f"{data['truncated']} of them were cut to {data.get('max_length')} {data.get('unit')}; "
            f"the longest has {data.get('longest')}."
        )
    if data.get("image_size"):
        size = " × ".join(map(str, data["image_size"]))
        lines.append(f"The model got them at {size} pixels{_preprocessed(data)}.")
    notes = data.get("notes")
    return lines + [f"Note: {note}" for note in (notes if isinstance(notes, list) else [])]


def _preprocessed(data: dict[str, Any]) -> str:
    """How images were scaled and normalised."""
    how = data.get("preprocessing")
    if not isinstance(how, dict):
        return ""
    mean, deviation = (
        ", ".join(f"{value:.3g}" for value in how.get(key, [])) for key in ("mean", "deviation")
    )
    return f" ({how.get('resized')}), minus {mean} and divided by {deviation}"
