"""Batches for a model from samples of text, images or sound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from taut.models._data_files.images import normalised_images, oddities
from taut.models._data_files.sound import cut_sounds, sounds
from taut.models.preprocessing import preprocessor_of
from taut.models.samples import Samples
from taut.models.tokenizer import start_token, token_text

TokenText = Callable[[int, int], str]


class Batch(NamedTuple):
    """Arguments of the model, the index of the first sample, and a function that names tokens."""

    inputs: dict[str, torch.Tensor] | torch.Tensor
    first: int
    tokens: TokenText | None = None


def batches(
    samples: Samples,
    model: nn.Module,
    name: str,
    firsts: Sequence[int],
    *,
    size: int,
    max_length: int,
    reader: Any = None,
) -> Iterator[Batch]:
    """Yield the batches that begin at these samples.

    ``reader`` is the tokenizer, feature extractor or image preprocessing.
    """
    weight = next(model.parameters())
    max_length = min(max_length, longest(model))
    reader = preprocessor_of(samples, model, name) if reader is None else reader
    for first in firsts:
        part = samples.items[first : first + size]
        if samples.kind == "tensors":
            yield Batch(_moved(torch.stack(part), weight), first)
            continue
        if samples.kind == "text":
            inputs, tokens = _text(part, model, reader, max_length)
        elif samples.kind == "sound":
            inputs, tokens = sounds(part, model, reader), None
        else:
            inputs, tokens = {"pixel_values": normalised_images(part, *reader)}, None
        moved = {key: _moved(value, weight) for key, value in inputs.items()}
        yield Batch(moved, first, tokens)


def describe_fit(
    samples: Samples, model: nn.Module, max_length: int, reader: Any
) -> dict[str, Any]:
    """Say how samples fit a model: how many are truncated, or the size of its images."""
    if samples.kind == "images":
        notes = [*samples.notes, *oddities(samples.items)]
        return {
            "image_size": list(reader.size),
            "preprocessing": {
                "resized": "bicubic, not cropped",
                "mean": _numbers(reader.mean),
                "deviation": _numbers(reader.deviation),
            },
            "notes": notes,
        }
    if samples.kind == "sound":
        return cut_sounds(samples.items, reader)
    if samples.kind != "text":
        return {"shape": list(samples.items[0].shape)}
    lengths: list[int] = []
    for first in range(0, len(samples.items), 256):
        read = reader(samples.items[first : first + 256], verbose=False)
        lengths += [len(ids) for ids in read["input_ids"]]
    most = min(max_length, longest(model))
    cut = sum(length > most for length in lengths)
    return {"max_length": most, "longest": max(lengths), "truncated": cut, "unit": "tokens"}


def _numbers(values: Any) -> list[float]:
    """One number for each of three channels, or one for all."""
    return [float(value) for value in (values if isinstance(values, Sequence) else [values])]


def longest(model: Any) -> int:
    """Largest number of tokens that a model has positions for."""
    config = getattr(model, "config", None)
    names = ("max_position_embeddings", "n_positions", "max_sequence_length")
    known = [getattr(config, name, None) for name in names]
    found = min((k for k in known if isinstance(k, int) and k > 0), default=1 << 30)
    if getattr(config, "model_type", "") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        found -= 2  # their positions start after the padding index
    return found


def _moved(value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Move a tensor to the device of the weights, and floating-point numbers to their type."""
    # Weights of a model that is spread over devices may not be loaded yet; hooks move the inputs.
    device = weight.device if weight.device.type != "meta" else torch.device("cpu")
    return value.to(device, weight.dtype) if value.is_floating_point() else value.to(device)


def _check_vocabulary(ids: torch.Tensor, model: Any) -> None:
    """Raise a ValueError if a tokenizer gives tokens that the model does not have."""
    table = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    size = getattr(table, "num_embeddings", None)
    if size is not None and int(ids.max()) >= size:
        raise ValueError(
            f"the tokenizer gives token {int(ids.max())}, and the model has 0 to {size - 1}: "
            "is it that of another model (--tokenizer)?"
        )


def _text(
    part: list[str], model: Any, tokenizer: Any, max_length: int
) -> tuple[dict[str, torch.Tensor], TokenText]:
    encoded = tokenizer(
        part, return_tensors="pt", padding=True, truncation=True, max_length=max_length,
        padding_side="right",
    )  # fmt: skip
    inputs = {key: encoded[key] for key in ("input_ids", "attention_mask")}
    ids = inputs["input_ids"]
    _check_vocabulary(ids, model)

    def word(sample: int, query: int) -> str:
        if query >= ids.shape[1]:
            return ""
        return token_text(tokenizer, int(ids[sample, query]))

    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        # A decoder that is to write this text reads a start token and the text before each token.
        start = torch.full_like(ids[:, :1], start_token(model))
        inputs["decoder_input_ids"] = torch.cat((start, ids[:, :-1]), dim=1)
    return inputs, word
