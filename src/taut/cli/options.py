"""Options that several commands share, with the same words in each of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

from taut.cli.errors import typer

Dtype = Annotated[
    str,
    typer.Option(
        metavar="TYPE",
        help="Number format of the model: auto, float16, bfloat16, float32, float64.",
    ),
]
Revision = Annotated[
    str | None, typer.Option(metavar="NAME", help="Revision of the model on the Hub.")
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run Python code that comes with the model."),
]
MaxLength = Annotated[int, typer.Option(min=1, help="Maximum number of tokens per text.")]
Parquet = Annotated[
    bool,
    typer.Option("--parquet", help="Also write the heads as Parquet (.parquet) beside the record."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def comma_separated(values: Sequence[float]) -> str:
    """Numbers as they are typed: ``1,2,inf``."""
    return ",".join(f"{value:g}" for value in values)


def numbers(text: str, option: str) -> tuple[float, ...]:
    """Comma-separated numbers."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"--{option} must be comma-separated numbers, got {text!r}") from None


def whole_numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    """Comma-separated whole numbers, or nothing."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--{option} must be comma-separated whole numbers, such as 16,384; got {text!r}"
        ) from None


def queries_of(text: str) -> int | str:
    """How many queries are measured: a number, or a word that the settings know."""
    return int(text) if text.isdecimal() else text


def command_line() -> str:
    """The command as it was typed, without the folder of the program itself."""
    return shlex.join(["taut", *sys.argv[1:]])
