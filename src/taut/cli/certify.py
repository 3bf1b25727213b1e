"""`taut certify`: bound how far a model's output can move with its input."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from taut._base.settings import ModelSettings
from taut._base.terminal_text import cells, say
from taut.cli.certified_radii import draw_shares, numbers_in, show_radii
from taut.cli.errors import explained, typer
from taut.cli.help import Command, examples
from taut.cli.options import (
    AsJson,
    Dtype,
    MaxLength,
    Revision,
    TrustRemoteCode,
    whole_numbers,
)
from taut.cli.property_verdict import show_verdict

if TYPE_CHECKING:
    from taut.networks import ModelCertificate

app = typer.Typer()


@app.command(
    cls=Command,
    epilog=examples(
        "taut certify sentence-transformers/all-MiniLM-L6-v2 --inputs lines.txt",
        "taut certify ./my-classifier --inputs images --classify --radius 0.1 --time-limit 60",
        "taut certify network.onnx --vnnlib property.vnnlib",
    ),
)
def certify(
    model: Annotated[
        str,
        typer.Argument(
            help="Folder or Hub id of a Hugging Face model, .gguf or .onnx file, or "
            "module:function."
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT|FILE",
            help="Text, a .txt file (one input a line), images, or tensors (.npy, .pt, "
            ".safetensors). Repeat the option for several of them.",
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            help="With --inputs: bound every input within this distance, and with --classify "
            "decide whether its class holds there. With --shape: largest length of a token."
        ),
    ] = ModelSettings.radius,
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Instead of --inputs: all inputs of shape tokens,width or channels,height,width.",
        ),
    ] = None,
    context_shape: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES", help="Shape of the encoder's inputs, for encoder-decoder models."
        ),
    ] = None,
    norm: Annotated[
        str,
        typer.Option(
            metavar="l2|token",
            help="Norm: 'l2' (all tokens together) or 'token' (largest l2 norm of a token).",
        ),
    ] = ModelSettings.norm,
    local: Annotated[
        str,
        typer.Option(
            metavar="MANNER",
            help="Derivative at the inputs: jacobian (exact), probe (from random directions, with "
            "its probability), auto, or no.",
        ),
    ] = ModelSettings.local,
    classify: Annotated[
        bool,
        typer.Option(
            "--classify",
            help="Certify the radius of each input's class in l1, l2 and linf, and attack it. "
            "With --radius, also decide it: proved, refuted or open.",
        ),
    ] = ModelSettings.classify,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --classify: the right class of each input, one number a line; the table "
            "of radii then shows certified accuracy.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --classify: its figure, .svg, .png or .html."),
    ] = None,
    synonyms: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File of synonyms ('film: movie, picture' in each line, or JSON): can any "
            "combination of them change the class of a text?",
        ),
    ] = ModelSettings.synonyms,
    nearest_words: Annotated[
        int | None,
        typer.Option(help="The same for so many words with the nearest embeddings."),
    ] = ModelSettings.nearest_words,
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --classify: seconds for the radii of each norm, and for each verdict. With "
            "replaced words: seconds for each text. With --vnnlib: seconds for the verdict.",
        ),
    ] = ModelSettings.time_limit,
    vnnlib: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Property of an ONNX network: a VNN-LIB file. Both files may be compressed (.gz).",
        ),
    ] = None,
    counterexample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --vnnlib: file for the input that refutes the property."
        ),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --vnnlib: folder for the state, so that the same command carries on.",
        ),
    ] = None,
    dtype: Dtype = ModelSettings.dtype,
    revision: Revision = ModelSettings.revision,
    limit: Annotated[
        int, typer.Option(min=1, help="Largest number of inputs.")
    ] = ModelSettings.limit,
    max_length: MaxLength = ModelSettings.max_length,
    seed: Annotated[int, typer.Option(help="Seed of the random directions.")] = ModelSettings.seed,
    depth: Annotated[int, typer.Option(min=0, help="Depth of the table of modules.")] = 2,
    json: AsJson = False,
    trust_remote_code: TrustRemoteCode = ModelSettings.trust_remote_code,
) -> None:
    """Bound how far a model's output can move with its input, module by module.

    Text models are bounded from their word embeddings, image models from the
    pixels. Exits with 0 on success, and 2 if the input is wrong or a module
    has no rule. With --vnnlib: 0 if the property is proved, 1 if it is refuted,
    and 3 if it stays open.
    """
    if vnnlib is not None:
        with explained("certify", "onnx", "torch"):
            if inputs or shape or context_shape or radius is not None or classify:
                raise ValueError("--vnnlib says which inputs are meant: give no others with it")
            code = show_verdict(
                model, vnnlib, time_limit, seed, counterexample, output_dir, json=json
            )
        raise typer.Exit(code)
    with explained("certify", "hf", "torch"):
        if counterexample is not None or output_dir is not None:
            raise ValueError("--counterexample and --output-dir need --vnnlib")
        if plot is not None and not classify:
            raise ValueError("--plot needs --classify")
        settings = ModelSettings(
            inputs=tuple(inputs or ()), radius=radius, shape=whole_numbers(shape, "shape"),
            context_shape=whole_numbers(context_shape, "context-shape"), norm=norm, local=local,
            classify=classify, labels=numbers_in(labels), synonyms=synonyms,
            nearest_words=nearest_words, time_limit=time_limit, limit=limit, max_length=max_length,
            seed=seed, dtype=dtype, revision=revision, trust_remote_code=trust_remote_code,
        )  # fmt: skip
        from taut.networks import certify_model

        quiet = json or not sys.stderr.isatty()
        found = certify_model(model, settings, progress=_nothing if quiet else _stage)
        if json:
            print(json_text.dumps(found.to_dict(), indent=1))
        else:
            _show(found, depth)
        if plot is not None:
            draw_shares(found, plot)


def _nothing(_stage: str) -> None:
    pass


def _stage(stage: str) -> None:
    say(f"taut certify: {stage} ...", file=sys.stderr)


def _show(found: ModelCertificate, depth: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console, certificate = Console(), found.certificate
    for note in () if found.inputs is None else found.inputs.notes:
        say(f"Note: {note}")
    for sentence in certificate.headline(found.derivative).split("\n"):
        say(sentence)
    show_radii(found)
    _show_words(found)
    _show_inputs(found)
    title = "Where the bound comes from (shares of its logarithm)"
    table = Table("module", "bound (upper)", "share", "rule", title=title)
    for column in table.columns[1:3]:
        column.justify = "right"
    for row in certificate.rows(depth):
        name = "  " * row["depth"] + (row["module"] or row["class"])
        line = (name, certificate.shown(row["bound"]), f"{row['share']:.1%}", row["rule"])
        table.add_row(*cells(*line))
    console.print(table)


def _show_inputs(found: ModelCertificate) -> None:
    """A line for each input: what is known of it from below and from above."""
    from rich.console import Console
    from rich.table import Table

    certificate, inputs = found.certificate, found.inputs
    derivative = found.derivative
    if inputs is None or (derivative is None and len(inputs.labels) == 1):
        return
    measured = "measured (lower)" if derivative is None else f"derivative ({derivative.kind})"
    table = Table("input", measured, "bound (upper)", title="Each input")
    vacuous = certificate.vacuous(derivative)
    for index, label in enumerate(inputs.labels):
        bound = certificate.shown(certificate.bound.upper[index])
        bound = f"{bound} (vacuous)" if vacuous[index] else bound
        table.add_row(*cells(label[:40], found.known(index), bound))
    Console().print(table)


def _show_words(found: ModelCertificate) -> None:
    """Whether replaced words can change the class of each text."""
    for each in found.words:
        changes = each.changes
        told = {
            "proved": f"none of {changes.combinations} texts of replaced words has another class",
            "refuted": f"another class: {each.example}",
            "open": f"undecided for {changes.combinations} texts of replaced words",
        }[changes.verdict]
        say(f"Class {changes.predicted} of {each.replacements.text!r}: {changes.verdict}, {told}.")
