"""run: an audit of a model on data, from loading both to the finished record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from taut._base.progress import shown
from taut._base.settings import AuditSettings
from taut.audit.auditor import Auditor, fresh_record
from taut.audit.finished_before import finished_before, model_stamp
from taut.audit.model_and_data import (
    AuditData,
    check_model,
    given_batches,
    in_batches,
    load_model,
    read_data,
)
from taut.audit.out_of_memory import memory_explained
from taut.audit.processes import Processes, processes
from taut.audit.record import Record
from taut.audit.resume import run_in_folder, say_found
from taut.audit.sample_spans import count
from taut.audit.shard import Shard, read_shard
from taut.models import Samples


def run(
    model: str | Path | nn.Module,
    data: str | Path | Samples | Iterable[Any],
    *,
    name: str = "",
    folder: str | Path | None = None,
    shard: str | tuple[int, int] | None = None,
    progress: bool = False,
    command: str = "",
    settings: AuditSettings | None = None,
    **options: Any,
) -> Record:
    """Audit a model on data: measure every row of every attention softmax.

    Parameters
    ----------
    model
        A PyTorch or Hugging Face model, which is run in its own mode and left unchanged; or the
        name of one: a folder or Hub id of Hugging Face, a .gguf file, or ``module:function``.
    data
        By name, one or a list: text, a text file (one sample a line), images or a folder of them,
        .wav files, tensors (.npy, .pt), a table (.jsonl, .csv, .parquet) or a data set on the Hub
        (``hf:name:configuration:split``). Or :class:`taut.models.Samples`. Or batches that the
        model is called with: dicts of keyword arguments, tuples, or tensors. Rows of padding
        tokens, where ``attention_mask`` is 0, do not count.
    name
        Name of the model in the record; by default the one it was loaded by.
    folder
        Where the record is kept. It is saved now and then, each time as a whole file, and the same
        call continues an audit that was stopped. Processes that torchrun or accelerate started
        share the samples, and all of them return the whole record. Without a folder every process
        audits all of the data it is given.
    shard
        Which part of the data to audit where several jobs share it: ``(3, 16)`` or ``"3/16"`` for
        the third of sixteen; ``"auto"`` as the variables of a job array say, ``"auto/16"`` in an
        array with the tasks 1 to 16. :func:`taut.audit.merge` makes one record of all shards.
    progress
        Whether to show a progress bar, if there is a terminal.
    command
        The command that asked for the audit; it is noted in the record.
    settings, options
        :class:`Settings`, and single ones of them by name: ``run(model, data, norms=[2],
        batch_size=4)``.

    Returns
    -------
    Record
        ``.heads`` lists every head, ``.ranked`` the most sensitive first, ``.to_pandas()`` makes a
        table, ``.save`` writes it to a file. With a folder, ``.file`` is where it is kept, and
        Ctrl-C returns the record of what was seen until then: ``.complete`` is False. That of a
        shard is not complete either, and ``.shard.complete`` says whether its own part is.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> record = run(layer, [torch.randn(3, 5, 8)])
    >>> [row["rows"] for row in record.heads]
    [15, 15]
    >>> all(row["largest"] <= 0.5 for row in record.heads)
    True
    """
    asked = replace(settings or AuditSettings(), **options)
    mine = read_shard(shard)
    with processes() if folder is not None else _alone() as here, memory_explained(asked):
        check_model(model)
        given, stamp = read_data(data, asked), model_stamp(model, asked)
        if folder is not None and mine is None and here.world == 1:
            done = finished_before(stamp, given, name or str(model), asked, Path(folder))
            if done is not None:
                say_found(done, more=False)
                return done
        network, place = load_model(model, asked)
        record = fresh_record(network, name or place, place)
        if stamp is not None:
            record.model["files"] = stamp
        record.settings, record.shard = asked.to_dict(), mine
        record.made = {"command": command} if command else {}
        if folder is None and mine is None and not isinstance(given, Samples):
            _one_by_one(Auditor(network, record, settings=asked), given)
        else:
            batched = (
                in_batches(given, network, place, asked)
                if isinstance(given, Samples)
                else given_batches(given, network)
            )
            record.data = batched.description
            record.identity["reader"] = batched.reader
            if mine is not None:
                batched = _share(record, batched, mine)
            auditor = Auditor(network, record, settings=asked)
            if folder is None:
                _in_memory(auditor, batched, progress)
            else:
                record = run_in_folder(auditor, batched, Path(folder), here, progress)
    return _checked(record, asked)


def _share(record: Record, data: AuditData, shard: Shard) -> AuditData:
    """The batches of a shard, which must be recognised later as a part of this run."""
    if unknown := record.identity.get("unknown"):
        raise ValueError(
            f"the model cannot be identified ({unknown[0]}), so that nobody could tell whether "
            "records of its shards belong together: audit it without a shard"
        )
    return data._replace(spans=shard.of(data.spans))


def _alone() -> Any:
    from contextlib import nullcontext

    return nullcontext(Processes(0, 1))


def _one_by_one(auditor: Auditor, batches: Iterable[Any]) -> None:
    for batch in batches:
        auditor.add(batch)
    if not auditor.record.samples:
        raise ValueError("there is no data: batches is empty")
    auditor.record.complete = True


def _in_memory(auditor: Auditor, data: AuditData, progress: bool) -> None:
    record, total = auditor.record, count(data.spans)
    made = data.make(data.spans)
    for batch in shown(made, total, "samples", done=lambda: record.samples, quiet=not progress):
        auditor.add(batch.inputs, tokens=batch.tokens, first=batch.first)
    record.finished()


def _checked(record: Record, settings: AuditSettings) -> Record:
    """The record, or an error if there was nothing in the model to measure."""
    if record.samples and not record.layers and not record.missed and settings.logits is None:
        raise ValueError(
            "no attention was seen: the model has no softmax whose output multiplies values; "
            "logits=1.0 (--logits) measures what comes out of it"
        )
    return record
