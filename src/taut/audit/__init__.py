"""Audit: measure every attention softmax of a model on data, and how sensitive each head is.

:func:`run` takes a model and data, by name or as objects, and returns a :class:`Record`;
:func:`findings` says what stands out in it, :func:`compare` sets records side by side, and
:func:`write_report` writes a page. Needs PyTorch, the extra ``torch``.
"""

from taut._base.optional import needing as _needing

with _needing("taut.audit needs PyTorch", "torch"):
    import torch as _torch  # noqa: F401

from taut._base.settings import AuditSettings as Settings
from taut.audit.auditor import Auditor
from taut.audit.compare import ComparedHead, compare, record_differences
from taut.audit.consequence.interventions import interventions
from taut.audit.consequence.sentence import consequence_sentence
from taut.audit.data_sentences import data_sentences
from taut.audit.findings import LOOKED_FOR, Finding, findings
from taut.audit.layer_record import LayerRecord
from taut.audit.record import Record
from taut.audit.records_in_folder import FolderEntry, records_in
from taut.audit.report.layer_names import layer_pattern, short_layer_names
from taut.audit.report.page import save_picture, write_report
from taut.audit.run import run
from taut.audit.statistics.column import Column
from taut.models import Captured, Missed, capture

__all__ = [
    "LOOKED_FOR",
    "Auditor",
    "Captured",
    "Column",
    "ComparedHead",
    "Finding",
    "FolderEntry",
    "LayerRecord",
    "Missed",
    "Record",
    "Settings",
    "capture",
    "compare",
    "consequence_sentence",
    "data_sentences",
    "findings",
    "interventions",
    "layer_pattern",
    "record_differences",
    "records_in",
    "run",
    "save_picture",
    "short_layer_names",
    "write_report",
]
