"""Find the record of the same audit, so that a finished one does not load its model again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from taut._base.settings import AuditSettings
from taut.audit.auditor import CODE
from taut.audit.record import Record
from taut.audit.records_in_folder import record_files
from taut.audit.run_identity import short_digest
from taut.models import Samples, file_stamp, same_environment


def model_stamp(model: str | Path | nn.Module, settings: AuditSettings) -> str | None:
    """What tells by the files alone that a model and its tokenizer are the same; None if nothing.

    Code that comes with a model may do anything, and devices may be chosen anew each time.
    """
    if isinstance(model, nn.Module) or settings.trust_remote_code or settings.device == "auto":
        return None
    places = [str(model), *([] if settings.tokenizer is None else [settings.tokenizer])]
    stamps = [file_stamp(place, settings.revision) for place in places]
    return None if None in stamps else "-".join(map(str, stamps))


def finished_before(
    stamp: str | None, data: Any, name: str, settings: AuditSettings, folder: Path
) -> Record | None:
    """The finished record of the same model, data and settings in a folder, if there is one."""
    if stamp is None or not isinstance(data, Samples) or not folder.is_dir():
        return None
    device = torch.device(settings.device).type
    described: dict[str, Any] = {}
    for file in record_files(folder):
        try:
            record = Record.load(file)
        except ValueError:
            continue
        known = record.identity
        if (
            not record.complete
            or short_digest(record) not in file.name  # it is not what it was saved as
            or known.get("unknown")
            or record.model.get("files") != stamp
            or record.model.get("name") != name
            or record.settings != settings.to_dict()
            or known.get("devices") != [device]
        ):
            continue
        described = described or data.description  # a digest of all data: only if it is needed
        same = all(record.data.get(key) == described[key] for key in ("kind", "samples", "digest"))
        if same and same_environment(known, CODE):
            return record
    return None
