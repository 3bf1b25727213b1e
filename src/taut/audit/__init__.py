"""Audit: measure every attention softmax of a model on data, and how sensitive each head is.

:func:`run` takes a model and data, by name or as objects, and returns a :class:`Record`;
:func:`merge` makes one record of those of several machines, :func:`findings` says what stands out
in it, :func:`compare` sets records side by side, and :func:`write_report` writes a page.
Needs PyTorch, the extra ``torch``.
"""

from taut._base.optional import needing as _needing

with _needing("taut.audit needs PyTorch", "torch"):
    import torch as _torch  # noqa: F401

from taut._base.settings import AuditSettings as Settings
from taut.audit.auditor import Auditor
from taut.audit.compare import ComparedHead, compare, record_differences
from taut.audit.comparison import Comparison, comparison
from taut.audit.consequence.interventions import interventions
from taut.audit.consequence.sentence import consequence_sentence
from taut.audit.coverage import coverage_sentences, shown_rows
from taut.audit.data_sentences import data_sentences
from taut.audit.findings import Finding, Findings, findings
from taut.audit.layer_record import LayerRecord
from taut.audit.made import made_sentence
from taut.audit.merge import Merged, merge
from taut.audit.merge_files import merge_files
from taut.audit.record import Record
from taut.audit.records_in_folder import FolderEntry, records_in
from taut.audit.reference import ReferenceModel, reference_models
from taut.audit.report.comparison_page import write_comparison
from taut.audit.report.curves import LARGER_STEPS
from taut.audit.report.layer_names import layer_pattern, short_layer_names
from taut.audit.report.page import save_picture, write_report
from taut.audit.run import run
from taut.audit.shard import Shard
from taut.audit.statistics.column import Column
from taut.audit.statistics.worst_row import WorstRow
from taut.audit.training_steps import TrainingRecords, TrainingStep, read_training
from taut.audit.verdict import verdict
from taut.models import Captured, Missed, capture

__all__ = [
    "LARGER_STEPS",
    "Auditor",
    "Captured",
    "Column",
    "ComparedHead",
    "Comparison",
    "Finding",
    "Findings",
    "FolderEntry",
    "LayerRecord",
    "Merged",
    "Missed",
    "Record",
    "ReferenceModel",
    "Settings",
    "Shard",
    "TrainingRecords",
    "TrainingStep",
    "WorstRow",
    "capture",
    "compare",
    "comparison",
    "consequence_sentence",
    "coverage_sentences",
    "data_sentences",
    "findings",
    "interventions",
    "layer_pattern",
    "made_sentence",
    "merge",
    "merge_files",
    "read_training",
    "record_differences",
    "records_in",
    "reference_models",
    "run",
    "save_picture",
    "short_layer_names",
    "shown_rows",
    "verdict",
    "write_comparison",
    "write_report",
]
