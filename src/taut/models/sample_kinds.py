"""Whether a model can read samples of a kind, said before it is called on them."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from taut.models.samples import Samples

# Arguments of models of Hugging Face that samples of a kind are passed as.
_ARGUMENTS = {
    "text": ("input_ids", "inputs_embeds"),
    "images": ("pixel_values",),
    "sound": ("input_values", "input_features"),
}
_NAMES = {"input_ids": "text", "pixel_values": "images", "input_values": "sound",
          "input_features": "sound"}  # fmt: skip


def check_kind(samples: Samples, model: nn.Module) -> None:
    """Raise a ValueError that says what a model of Hugging Face reads, if it is something else."""
    if getattr(model, "config", None) is None or not hasattr(model, "main_input_name"):
        return  # a model of the user's own: nobody knows what it reads
    reads = str(model.main_input_name)
    takes = set(inspect.signature(model.forward).parameters)
    if samples.kind == "tensors":
        _check_tensor(samples.items[0], samples.source, model, reads)
    elif not takes & set(_ARGUMENTS[samples.kind]):
        asked = _NAMES.get(reads, reads)
        raise ValueError(
            f"this model reads {reads}, not {samples.kind}: give {asked} instead of "
            f"{samples.source[:80]}, or tensors"
        )


def _check_tensor(item: torch.Tensor, source: str, model: Any, reads: str) -> None:
    """What the model would be called with is one tensor of all samples, its first argument."""
    shape, kind = tuple(item.shape), str(item.dtype).removeprefix("torch.")
    found = f"{source[:80]} holds {kind} of shape {shape} for each sample"
    if reads == "input_ids":
        if item.is_floating_point() or item.ndim != 1:
            raise ValueError(
                f"this model reads token ids, a row of whole numbers for each sample: {found}. "
                "Give ids, or text that the tokenizer turns into them"
            )
        table = model.get_input_embeddings()
        size = getattr(table, "num_embeddings", None)
        if size is not None and not 0 <= int(item.min()) <= int(item.max()) < size:
            raise ValueError(
                f"the model has tokens 0 to {size - 1}, and {source[:80]} holds {int(item.min())} "
                f"to {int(item.max())}: is it meant for another model?"
            )
    elif reads == "pixel_values" and item.ndim != 3:
        raise ValueError(f"this model reads images, (channels, height, width): {found}")
