"""Audit: watch every attention softmax of a model, and say how sensitive each head is.

:func:`run` takes a model and batches of data and gives a :class:`Record`; :func:`findings` says
what stands out in it. Needs PyTorch: ``pip install "taut[torch]"``.
"""

from taut.audit._capture import capture
from taut.audit._compare import Compared, compare
from taut.audit._findings import Finding, findings
from taut.audit._record import Layer, Record
from taut.audit._report import save_picture, write_report
from taut.audit._run import Auditor, run
from taut.audit._seen import Missed, Seen

__all__ = [
    "Auditor",
    "Compared",
    "Finding",
    "Layer",
    "Missed",
    "Record",
    "Seen",
    "capture",
    "compare",
    "findings",
    "run",
    "save_picture",
    "write_report",
]
