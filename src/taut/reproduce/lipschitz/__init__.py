"""Trainings under a certificate: data, networks, runs and their queue."""

from taut._base.optional import needing as _needing

with _needing("trainings under a certificate need PyTorch", "torch"):
    import torch as _torch  # noqa: F401
