"""Batches for a model from text or images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from taut.torch._inputs import IMAGES, expanded, pixels, text_lines, tokenizer_of

Tokens = Callable[[int, int], str]


class Batch(NamedTuple):
    """Arguments of the model, the number of the first sample, and the text of tokens."""

    inputs: dict[str, Any]
    first: int
    size: int
    tokens: Tokens | None


class Samples(NamedTuple):
    """The data: lines of text or files of images."""

    kind: str
    items: list[str]

    @property
    def description(self) -> dict[str, Any]:
        """What the record says about the data."""
        import hashlib

        digest = hashlib.blake2b("\n".join(self.items).encode(), digest_size=16).hexdigest()
        return {"kind": self.kind, "samples": len(self.items), "digest": digest}


def read_samples(given: list[str], limit: int) -> Samples:
    """Lines of text files, texts themselves, images, or folders of images."""
    if not given:
        raise ValueError("give --data: a text file, text, images or a folder of images")
    given = [name for item in given for name in expanded(item)]
    if all(Path(item).suffix.lower() in IMAGES for item in given):
        return Samples("images", given[:limit])
    return Samples("text", text_lines(given)[:limit])


def batches(
    samples: Samples,
    model: nn.Module,
    name: str,
    firsts: Sequence[int],
    *,
    size: int,
    max_length: int,
) -> Iterator[Batch]:
    """The batches that begin with these samples."""
    tokenizer = tokenizer_of(name) if samples.kind == "text" else None
    device = next(model.parameters()).device
    for first in firsts:
        part = samples.items[first : first + size]
        if tokenizer is None:
            images = pixels([Path(item) for item in part], model, name)
            dtype = next(model.parameters()).dtype
            yield Batch({"pixel_values": images.to(device, dtype)}, first, len(part), None)
            continue
        encoded = tokenizer(
            part, return_tensors="pt", padding=True, truncation=True, max_length=max_length,
            padding_side="right",
        )  # fmt: skip
        inputs = {key: encoded[key].to(device) for key in ("input_ids", "attention_mask")}
        ids = inputs["input_ids"].cpu()

        def word(sample: int, query: int, ids: torch.Tensor = ids) -> str:
            if query >= ids.shape[1]:
                return ""
            return str(tokenizer.convert_ids_to_tokens(int(ids[sample, query])))

        if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = shifted(model, inputs["input_ids"])
        yield Batch(inputs, first, len(part), word)


def shifted(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """What a decoder reads when it is to write this text: the text behind a start token."""
    known = (
        getattr(model.config, key, None)
        for key in ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    )
    start = next((token for token in known if token is not None), 0)
    return torch.cat((torch.full_like(ids[:, :1], start), ids[:, :-1]), dim=1)
