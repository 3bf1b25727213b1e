"""`taut env`: the versions of taut and of the packages it works with."""

from __future__ import annotations

from taut.cli.errors import typer
from taut.cli.help import Command, examples

app = typer.Typer()
PACKAGES = ("taut", "numpy", "numba", "torch", "transformers", "safetensors", "jax", "jinja2",
            "accelerate", "pyarrow", "tokenizers", "sacrebleu")  # fmt: skip


@app.command(
    cls=Command,
    epilog=examples(
        "taut env",
        "taut env > versions.txt",
    ),
)
def env() -> None:
    """Print the installed versions of taut and of the packages it works with."""
    import platform
    from importlib import metadata

    typer.echo(f"python {platform.python_version()}, {platform.platform()}")
    for name in PACKAGES:
        try:
            typer.echo(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            typer.echo(f"{name} is not installed")
