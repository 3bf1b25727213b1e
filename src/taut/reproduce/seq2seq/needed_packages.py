"""The packages that training and scores need, and the error where one is missing."""

from __future__ import annotations

from contextlib import AbstractContextManager

from taut._base.optional import needing


def for_training() -> AbstractContextManager[None]:
    """Around the imports of whatever makes, trains and runs models."""
    return needing(
        "training needs PyTorch, transformers, accelerate, safetensors, tensorboard and tokenizers",
        "seq2seq",
        "torch",
    )


def for_scores() -> AbstractContextManager[None]:
    """Around the imports of whatever compares text."""
    return needing("scores of text need sacrebleu, rouge-score and nltk", "seq2seq")
