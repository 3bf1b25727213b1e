"""Sound for speech models: .wav files through the model's own feature extractor."""

from __future__ import annotations

import wave
from typing import Any

import numpy as np
import torch
from torch import nn

from taut._base.optional import needing
from taut.models.tokenizer import start_token

Array = np.ndarray[Any, np.dtype[Any]]
_TYPES = {1: np.uint8, 2: np.int16, 4: np.int32}


def sounds(files: list[str], model: nn.Module, features: Any) -> dict[str, torch.Tensor]:
    """Inputs of a speech model: waves or spectra, padded to the longest, and a start token."""
    waves = [_wave(file, features.sampling_rate) for file in files]
    # Whisper's encoder always takes thirty seconds.
    padding = "max_length" if features.model_input_names[0] == "input_features" else "longest"
    found = features(
        waves, sampling_rate=features.sampling_rate, return_tensors="pt", padding=padding
    )
    inputs = {features.model_input_names[0]: found[features.model_input_names[0]]}
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = torch.full((len(files), 1), start_token(model))
    return inputs


def cut_sounds(files: list[str], features: Any) -> dict[str, Any]:
    """Count the sounds that are longer than what the model listens to."""
    seconds = [len(_wave(file, features.sampling_rate)) / features.sampling_rate for file in files]
    most = getattr(features, "chunk_length", None)  # Whisper's; others take sounds whole
    cut = 0 if most is None else sum(length > most for length in seconds)
    return {"max_length": most, "longest": max(seconds), "truncated": cut, "unit": "seconds"}


def features_of(name: str) -> Any:
    """Load the feature extractor of a speech model."""
    with needing("sound needs transformers", "hf"):
        from transformers import AutoFeatureExtractor
    try:
        return AutoFeatureExtractor.from_pretrained(name)  # type: ignore[no-untyped-call]
    except Exception as error:  # damaged files raise errors of all kinds
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"no feature extractor for {name!r}: {why}") from None


def _wave(file: str, rate: int) -> Array:
    """Samples of a file, its channels averaged, from −1 to 1."""
    try:
        with wave.open(file, "rb") as sound:
            found, width = sound.getframerate(), sound.getsampwidth()
            raw, channels = sound.readframes(sound.getnframes()), sound.getnchannels()
    except Exception as error:  # damaged headers raise errors of all kinds
        why = str(error) or "it is cut short"
        raise ValueError(f"cannot read the sound {file}: {why}") from None
    if not raw or len(raw) % (width * channels):
        raise ValueError(f"cannot read the sound {file}: it is empty, or cut short")
    if found != rate:
        raise ValueError(f"{file} has {found} samples a second; the model takes {rate}: resample")
    if width not in _TYPES:
        raise ValueError(f"{file} has {8 * width} bits a sample; 8, 16 and 32 can be read")
    data: Array = np.frombuffer(raw, dtype=_TYPES[width]).astype(np.float32)
    data = (data - 128) / 128 if width == 1 else data / float(1 << (8 * width - 1))
    return np.asarray(data.reshape(-1, channels).mean(axis=1))
