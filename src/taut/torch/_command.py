"""What `taut certify` does: load, bound, measure, and show."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import torch
from torch import nn

from taut._bound import Bound
from taut._text import cells, say
from taut.torch._certificate import Certificate, sides
from taut.torch._certify import certify
from taut.torch._classifier import CertifiedRadius, certified_radius
from taut.torch._domain import At, Ball, Domain, Everywhere
from taut.torch._inputs import Inputs, read_inputs
from taut.torch._load import load
from taut.torch._local import local_lipschitz


class Options(NamedTuple):
    """The options of the command."""

    inputs: list[str]
    radius: float | None
    shape: str | None
    context_shape: str | None
    norm: str
    local: str
    classify: bool
    dtype: str
    revision: str | None
    limit: int
    max_length: int
    seed: int
    depth: int
    as_json: bool
    trust_remote_code: bool


def run(name: str, options: Options) -> None:
    """Certify a model by name and print the answer."""
    _check(options)
    domain, context = _sets(options)
    _say(options, f"loading {name}")
    model = load(
        name,
        dtype=options.dtype,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
    )
    inputs = None
    if options.inputs:
        inputs = read_inputs(
            options.inputs, model, name, limit=options.limit, max_length=options.max_length
        )
        domain = At(inputs.x, options.radius or 0.0)
        context = inputs.context
    assert domain is not None
    _say(options, "bounding")
    masks = {} if inputs is None else {"mask": inputs.mask, "context_mask": inputs.context_mask}
    certificate = certify(
        model,
        domain,
        norm=options.norm,  # type: ignore[arg-type]
        context=context,
        seed=options.seed,
        **masks,  # type: ignore[arg-type]
    )
    local = _local(model, inputs, options)
    safe = None
    if options.classify and inputs is not None:
        _say(options, "certified radii of the classes")
        safe = certified_radius(model, inputs.x, mask=inputs.mask)
    if options.as_json:
        print(json.dumps(_record(name, certificate, local, safe, inputs, options), indent=1))
    else:
        _show(certificate, local, safe, inputs, options)


def _check(options: Options) -> None:
    """Refuse what cannot be meant before the work, not after it."""
    if options.norm not in ("l2", "token"):
        raise ValueError(f"--norm must be l2 or token, got {options.norm!r}")
    if options.local not in ("no", "auto", "jacobian", "probe"):
        raise ValueError(f"--local must be no, auto, jacobian or probe, got {options.local!r}")
    if bool(options.inputs) == (options.shape is not None):
        raise ValueError("give --inputs, or --shape for all inputs of a shape, and not both")
    if options.context_shape is not None and options.shape is None:
        raise ValueError("--context-shape belongs to --shape")
    if options.depth < 0:
        raise ValueError(f"--depth must be at least 0, got {options.depth}")
    if options.classify and not options.inputs:
        raise ValueError("--classify needs --inputs")
    for what, value in (("--limit", options.limit), ("--max-length", options.max_length)):
        if value < 1:
            raise ValueError(f"{what} must be at least 1, got {value}")
    if options.radius is not None and not options.radius > 0:
        raise ValueError(f"--radius must be > 0, got {options.radius}")


def _sets(options: Options) -> tuple[Domain | None, Domain | torch.Tensor | None]:
    """The sets of all inputs that were asked for."""

    def of(text: str | None) -> Domain | None:
        if text is None:
            return None
        try:
            shape = tuple(int(part) for part in text.split(","))
        except ValueError:
            raise ValueError(
                f"a shape is numbers with commas, such as 16,384; got {text}"
            ) from None
        return Everywhere(shape) if options.radius is None else Ball(options.radius, shape)

    return of(options.shape), of(options.context_shape)


def _local(model: nn.Module, inputs: Inputs | None, options: Options) -> Bound | None:
    if options.local == "no" or inputs is None:
        return None
    _say(options, "derivative at the inputs")
    return local_lipschitz(
        model,
        inputs.x,
        mask=inputs.mask,
        context=inputs.context,
        context_mask=inputs.context_mask,
        method=options.local,  # type: ignore[arg-type]
        seed=options.seed,
    )


def _say(options: Options, what: str) -> None:
    """Progress, where somebody is looking."""
    if not options.as_json and sys.stderr.isatty():
        say(f"taut certify: {what} ...", file=sys.stderr)


def _record(
    name: str,
    certificate: Certificate,
    local: Bound | None,
    safe: CertifiedRadius | None,
    inputs: Inputs | None,
    options: Options,
) -> dict[str, Any]:
    import taut

    record: dict[str, Any] = {
        "taut": taut.__version__,
        "torch": torch.__version__,
        "model": name,
        "revision": options.revision,
        "dtype": options.dtype,
        "seed": options.seed,
        "inputs": None if inputs is None else inputs.labels,
        "notes": [] if inputs is None else list(inputs.notes),
    }
    if local is not None:
        record["local"] = {
            "kind": local.kind,
            "lower": [float(v) for v in local.lower],
            "upper": [float(v) for v in local.upper],
            "domain": local.domain,
            "theorem": list(local.theorem),
        }
    record |= certificate.to_dict(local)
    if safe is not None:
        record["classes"] = {
            "radius": [float(v) for v in safe.radius],
            "predicted": [int(v) for v in safe.predicted],
            "margin": [float(v) for v in safe.margin],
        }
    return record


def _show(
    certificate: Certificate,
    local: Bound | None,
    safe: CertifiedRadius | None,
    inputs: Inputs | None,
    options: Options,
) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for note in () if inputs is None else inputs.notes:
        say(f"Note: {note}")
    for sentence in certificate.headline(local).split("\n"):
        say(sentence)
    table = Table("module", "bound", "share", "rule", title="Where the bound comes from")
    for column in table.columns[1:3]:
        column.justify = "right"
    for row in certificate.rows(options.depth):
        name = "  " * row["depth"] + (row["module"] or row["class"])
        line = (name, certificate.shown(row["bound"]), f"{row['share']:.1%}", row["rule"])
        table.add_row(*cells(*line))
    console.print(table)
    if inputs is None or (local is None and safe is None and len(inputs.labels) == 1):
        return
    table = Table("input", "measured" if local is None else "derivative", "bound")
    table.title = "Each input"
    vacuous = certificate.vacuous(local)
    if safe is not None:
        for head in ("class", "margin", "certified l2 radius"):
            table.add_column(head)
    for index, label in enumerate(inputs.labels):
        assert certificate.measured is not None
        shown = [label[:40], f"at least {certificate.measured.lower[index]:.4g}"]
        if local is not None:
            shown[1] = sides(local[index])
        bound = certificate.shown(certificate.bound.upper[index])
        shown.append(f"{bound} (vacuous)" if vacuous[index] else bound)
        if safe is not None:
            shown.append(str(safe.predicted[index]))
            shown += [f"{safe.margin[index]:.4g}", f"{safe.radius[index] * 0.9999:.4g}"]
        table.add_row(*cells(*shown))
    console.print(table)
