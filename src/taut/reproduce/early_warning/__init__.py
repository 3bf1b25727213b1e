"""Trainings with faults, the signals that are recorded in them, and the alarms that these raise."""

from taut._base.optional import needing as _needing

with _needing("trainings with faults need PyTorch", "torch"):
    import torch as _torch  # noqa: F401
