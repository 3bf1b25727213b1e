"""A model or a batch that does not fit into memory: an error that says what to try."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from taut._base.settings import AuditSettings

# How the allocators of PyTorch, of the host and of accelerators, and the system say it. Errors of
# other packages carry their words on.
_WORDS = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory")


@contextmanager
def memory_explained(settings: AuditSettings) -> Iterator[None]:
    """Turn every error of an allocator into a MemoryError that says what to try."""
    try:
        yield
    except (MemoryError, RuntimeError, ValueError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        said = str(error).splitlines()[:1]  # how much was asked for, and of which device
        why = f" ({said[0][:200]})" if said else ""
        raise MemoryError(f"out of memory: {_advice(settings)}{why}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory could not be had, in whatever words."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return any(words in str(error).lower() for words in _WORDS)


def _advice(settings: AuditSettings) -> str:
    """What makes the model or its batches smaller, the cheapest first; nothing that is done."""
    advice = []
    if settings.batch_size > 1:
        advice.append(f"a batch size of {settings.batch_size // 2} (--batch-size)")
    if settings.max_length > 1:
        advice.append(f"texts of fewer than {settings.max_length} tokens (--max-length)")
    if settings.queries == "all":
        advice.append("only some queries of each sample (--queries 512)")
    if settings.dtype not in ("float16", "bfloat16"):
        advice.append("half precision (--dtype bfloat16)")
    if settings.device != "auto":
        advice.append("all devices and the disk together (--device auto)")
    return f"try {'; '.join(advice)}"
