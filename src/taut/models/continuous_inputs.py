"""Inputs that can be perturbed: tensors, pixels, or the word embeddings of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from taut.models._data_files.images import pixels
from taut.models.sample_kinds import check_kind
from taut.models.samples import Samples, read_samples
from taut.models.tokenizer import start_token, tokenizer_of


class ContinuousInputs(NamedTuple):
    """Tensors or embeddings, their mask, and the context that an encoder reads."""

    x: torch.Tensor
    mask: torch.Tensor | None
    context: torch.Tensor | None
    context_mask: torch.Tensor | None
    labels: list[str]
    notes: tuple[str, ...] = ()  # remarks on how they were read


def read_continuous_inputs(
    given: list[str], model: nn.Module, name: str, *, limit: int, max_length: int
) -> ContinuousInputs:
    """Read tensors (.npy, .pt, .safetensors), text (one input a line) or images.

    What is not a file is taken as text itself.
    """
    if not given:
        raise ValueError("no inputs were given")
    samples = read_samples(given, limit, option="--inputs")
    if samples.kind != "tensors":  # those are taken as embeddings or pixels
        check_kind(samples, model)
    if samples.kind == "text":
        return _embedded(samples, model, name, max_length)
    if samples.kind == "tensors":
        x = torch.stack(samples.items)
        labels = [str(number) for number in range(len(x))]
    elif samples.kind == "images":
        x = pixels(samples.items, model, name)
        labels = [_image_name(item, number) for number, item in enumerate(samples.items)]
    else:
        raise ValueError(f"{samples.source} is {samples.kind}: give tensors, images or text")
    return ContinuousInputs(x, None, None, None, labels, samples.notes)


def _image_name(item: Any, number: int) -> str:
    return Path(item).name if isinstance(item, str) else str(number)


def _embedded(texts: Samples, model: Any, name: str, max_length: int) -> ContinuousInputs:
    """Embed words; an encoder-decoder model reads the text and has written one token."""
    if not hasattr(model, "get_input_embeddings"):
        raise ValueError("this model takes no text; give --inputs as a file of tensors")
    tokenizer, lines = tokenizer_of(name), texts.items
    cut = sum(len(ids) > max_length for ids in tokenizer(lines, verbose=False)["input_ids"])
    notes = texts.notes
    if cut:
        notes += (f"{cut} of {len(lines)} inputs were cut to {max_length} tokens (--max-length).",)
    encoded = tokenizer(
        lines, return_tensors="pt", padding=True, truncation=True, max_length=max_length,
        padding_side="right",
    )  # fmt: skip
    table = model.get_input_embeddings()
    with torch.no_grad():
        x = table(encoded["input_ids"].to(table.weight.device))
    real = encoded["attention_mask"].bool()
    mask = None if bool(real.all()) else real
    if not getattr(model.config, "is_encoder_decoder", False):
        return ContinuousInputs(x, mask, None, None, lines, notes)
    start = torch.full((len(lines), 1), start_token(model))
    with torch.no_grad():
        written = table(start.to(table.weight.device))
    scale = getattr(getattr(model.get_encoder(), "embed_scale", None), "__float__", lambda: 1.0)()
    return ContinuousInputs(written, None, x * scale, mask, lines, notes)
