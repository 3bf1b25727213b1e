"""The model and the data of an audit: by name, or as the objects that they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from taut._base.settings import AuditSettings
from taut.audit.sample_spans import Span
from taut.models import (
    Batch,
    Samples,
    batch_size,
    batches,
    combined_digest,
    describe_fit,
    identify_preprocessor,
    load,
    preprocessor_of,
    read_samples,
    tensor_digest,
)


class AuditData(NamedTuple):
    """Data in numbered batches, any of which can be made at any time.

    Attributes
    ----------
    description
        What the record says about the data, with a digest of their content.
    spans
        The samples of each batch: (first, one after the last).
    make
        The batches of some spans.
    reader
        What identifies the tokenizer or preprocessing, or None.
    """

    description: dict[str, Any]
    spans: list[Span]
    make: Callable[[Sequence[Span]], Iterator[Batch]]
    reader: Any = None


def check_model(model: Any) -> None:
    """Raise a TypeError unless this is a module, or may be the name of one."""
    if not isinstance(model, (str, Path, nn.Module)):
        raise TypeError(
            f"model must be a torch.nn.Module, or the name of one, got {type(model).__name__}"
        )


def load_model(model: str | Path | nn.Module, settings: AuditSettings) -> tuple[nn.Module, str]:
    """The module, and the place that it was loaded from; nothing if it was given itself."""
    if isinstance(model, nn.Module):
        return model, ""
    device = settings.device
    if device == "cuda" and "LOCAL_RANK" in os.environ:  # each process has its own accelerator
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    network = load(
        str(model),
        dtype=settings.dtype,
        revision=settings.revision,
        trust_remote_code=settings.trust_remote_code,
        device=device,
    )
    return network, str(model)


def read_data(data: Any, settings: AuditSettings) -> Any:
    """Samples, where data are given by name; batches are left alone."""
    if isinstance(data, (str, Path)):
        data = [data]
    if isinstance(data, Samples) or not isinstance(data, (list, tuple)):
        return data
    if not data:
        raise ValueError("there is no data: give names of data, samples, or batches")
    if not all(isinstance(item, (str, Path)) for item in data):
        return data
    return read_samples([str(item) for item in data], settings.limit, settings.column)


def in_batches(
    samples: Samples, model: nn.Module, place: str, settings: AuditSettings
) -> AuditData:
    """Samples as batches for a model, whose tokenizer or preprocessing is found by its place."""
    if not place and settings.tokenizer is None and samples.kind != "tensors":
        place = str(getattr(model, "name_or_path", ""))
    reader = preprocessor_of(samples, model, place, settings.revision, settings.tokenizer)
    size, total = settings.batch_size, len(samples.items)
    spans = [(first, min(first + size, total)) for first in range(0, total, size)]

    def make(chosen: Sequence[Span]) -> Iterator[Batch]:
        firsts = [first for first, _ in chosen]
        return batches(
            samples, model, place, firsts, size=size, max_length=settings.max_length, reader=reader
        )

    described = {**samples.description, **describe_fit(samples, model, settings.max_length, reader)}
    return AuditData(described, spans, make, identify_preprocessor(reader))


def given_batches(given: Any, model: nn.Module) -> AuditData:
    """Batches that were given themselves, numbered and with a digest of what is in them."""
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise TypeError(
            "with a folder or a shard, give data by name, samples, or a list of batches: they are "
            f"found by the number of the batch, and a {type(given).__name__} can be read only once"
        )
    ends = [0]
    for inputs in given:
        ends.append(ends[-1] + batch_size(inputs, model))
    spans = list(pairwise(ends))

    def make(chosen: Sequence[Span]) -> Iterator[Batch]:
        for span in chosen:
            yield Batch(given[spans.index(span)], span[0])

    described = {
        "kind": "batches",
        "samples": ends[-1],
        "source": "batches",
        "digest": combined_digest(*map(_digest, given)).hex(),
    }
    return AuditData(described, spans, make)


def _digest(value: Any) -> bytes:
    """A digest of a batch: tensors with their type and shape, inside lists and dicts."""
    if isinstance(value, torch.Tensor):
        return tensor_digest(value)
    if isinstance(value, Mapping):
        return combined_digest(
            *(combined_digest(str(key).encode(), _digest(value[key])) for key in value)
        )
    if isinstance(value, (list, tuple)):
        return combined_digest(*map(_digest, value))
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return combined_digest(type(value).__name__.encode(), repr(value).encode())
    raise TypeError(f"with a folder, batches must hold tensors, not a {type(value).__name__}")
