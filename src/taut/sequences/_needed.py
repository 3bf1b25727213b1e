"""What training and scores need besides taut, and the error that says so."""

from __future__ import annotations

from contextlib import AbstractContextManager

from taut._optional import needing


def for_training() -> AbstractContextManager[None]:
    """Around the imports of whatever makes, trains and runs models."""
    return needing(
        "sequences need PyTorch, transformers, accelerate, filelock, safetensors, tensorboard and "
        "tokenizers",
        "sequences",
        "torch",
    )


def for_scores() -> AbstractContextManager[None]:
    """Around the imports of whatever compares text."""
    return needing("scores of text need sacrebleu, rouge-score and nltk", "sequences")
