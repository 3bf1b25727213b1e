"""The disturbances that consequences are given for, and the column of each."""

from __future__ import annotations

KINDS = ("scores", "keys", "values")
# Standard deviation of independent noise. On scores as it is; on the coordinates of keys and values
# times their root mean square, in the head and the sample.
NOISE = {"scores": 0.1, "keys": 0.1, "values": 0.1}


def kl_column(kind: str) -> str:
    """Name of the column of a disturbance."""
    return f"kl_{kind}"
