"""When a record was made, and by which command."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

Made = dict[str, Any]


def now() -> str:
    """The time in UTC, to the second; ``SOURCE_DATE_EPOCH`` sets it, as for reproducible builds."""
    fixed = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = (
        datetime.fromtimestamp(int(fixed), timezone.utc)
        if fixed.isdecimal()
        else datetime.now(timezone.utc)
    )
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def made_together(one: Made, other: Made) -> Made:
    """Of two records that are merged: the later date, and the command if both have the same."""
    if not one or not other:  # one of them says nothing
        return dict(one or other)
    same = {key: value for key, value in one.items() if other.get(key) == value}
    return {**same, "date": max(str(each.get("date", "")) for each in (one, other))}


def made_sentence(made: Made) -> str:
    """Date and command in a sentence; empty where neither is known.

    Examples
    --------
    >>> made_sentence({"date": "2026-11-18T09:30:00Z", "command": "taut audit gpt2"})
    'Made on 2026-11-18 at 09:30 UTC by: taut audit gpt2'
    """
    day, _, hour = str(made.get("date", "")).partition("T")
    when = f"Made on {day} at {hour[:5]} UTC" if day else ""
    command = made.get("command")
    if not command:
        return f"{when}." if when else ""
    return f"{when or 'Made'} by: {command}"
