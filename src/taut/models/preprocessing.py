"""Tokenizers, feature extractors and image settings: what turns samples into inputs."""

from __future__ import annotations

from typing import Any

from torch import nn

from taut.models._data_files.images import ImagePreprocessing, image_preprocessing
from taut.models._data_files.sound import features_of
from taut.models._identity.identity import plain
from taut.models._identity.tensor_digests import combined_digest
from taut.models.sample_kinds import check_kind
from taut.models.samples import Samples
from taut.models.tokenizer import tokenizer_of


def preprocessor_of(
    samples: Samples,
    model: nn.Module,
    name: str,
    revision: str | None = None,
    tokens_of: str | None = None,
) -> Any:
    """Tokenizer for text, feature extractor for sound, settings for images, None for tensors.

    ``tokens_of`` names another model whose tokenizer is used instead.
    """
    check_kind(samples, model)
    if samples.kind == "text":
        return tokenizer_of(tokens_of or name, revision)
    if samples.kind == "sound":
        return features_of(name)
    return image_preprocessing(model, name) if samples.kind == "images" else None


def identify_preprocessor(reader: Any) -> Any:
    """Settings and a digest of the vocabulary, without chat templates and paths."""
    if isinstance(reader, ImagePreprocessing):
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
        "content": combined_digest(*_content(reader)).hex(),
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
