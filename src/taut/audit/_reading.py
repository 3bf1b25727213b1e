"""What turns samples into the inputs of a model, and what identifies it."""

from __future__ import annotations

from typing import Any

from torch import nn

from taut.audit._data import Samples
from taut.audit._digests import mixed
from taut.audit._identity import plain
from taut.audit._sound import features_of
from taut.torch._inputs import tokenizer_of
from taut.torch._pictures import Preprocessing, preprocessing


def reader_of(
    samples: Samples,
    model: nn.Module,
    name: str,
    revision: str | None = None,
    tokens_of: str | None = None,
) -> Any:
    """The tokenizer for text, the features for sound, the settings for images; none for tensors.

    ``tokens_of`` names another model, whose tokenizer is taken.
    """
    if samples.kind == "text":
        reads = getattr(model, "main_input_name", "input_ids")
        if reads not in ("input_ids", "inputs_embeds"):
            raise ValueError(f"this model reads {reads}, not text: give images, sound or tensors")
        return tokenizer_of(tokens_of or name, revision)
    if samples.kind == "sound":
        return features_of(name)
    return preprocessing(model, name) if samples.kind == "images" else None


def identify_reader(reader: Any) -> Any:
    """Settings, and a digest of the vocabulary; chat templates and paths are left out."""
    if isinstance(reader, Preprocessing):
        return plain(reader._asdict())
    if not hasattr(reader, "get_vocab"):
        return plain(reader.to_dict() if hasattr(reader, "to_dict") else reader)
    given = {
        key: value
        for key, value in reader.init_kwargs.items()
        if key not in ("chat_template", "added_tokens_decoder") and not key.endswith("_file")
    }
    return {
        "class": type(reader).__name__,
        "content": mixed(*_content(reader)).hex(),
        "special": plain(reader.special_tokens_map),
        "sides": [reader.padding_side, reader.truncation_side],
        "longest": reader.model_max_length,
        "settings": plain(given),
    }


def _content(tokenizer: Any) -> list[bytes]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return [backend.to_str().encode()]
    pieces = getattr(tokenizer, "sp_model", None)
    whole = b"" if pieces is None else pieces.serialized_model_proto()
    return [repr(sorted(tokenizer.get_vocab().items())).encode(), whole]
