"""A model by name: load it, read its inputs, bound it, and measure its derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from taut._base.bound import Bound
from taut._base.domain import At, Ball, Everywhere
from taut._base.settings import ModelSettings
from taut.models import ContinuousInputs, load, read_continuous_inputs
from taut.networks.certificate import Certificate, shown, sides
from taut.networks.certify import certify
from taut.networks.class_radii import AttackedRadius, class_radii
from taut.networks.derivative import local_lipschitz
from taut.networks.domain_points import NetworkDomain
from taut.networks.model_words import ReplacedWords, model_words
from taut.networks.onnx_files.read import read_onnx


@dataclass(frozen=True)
class ModelCertificate:
    """What :func:`certify_model` found.

    Attributes
    ----------
    model
        The name that the model was loaded by.
    settings
        What was asked for.
    certificate
        The bound and the modules that it comes from.
    derivative
        The norm of the derivative at the inputs, or None.
    classes
        The certified radius of each input's class in l1, l2 and l∞, with that of an attack and,
        if a radius was given, whether the class holds within it; empty if it was not asked for.
    words
        For each text, whether replaced words can change its class; empty if it was not asked for.
    inputs
        What was read, or None if the bound holds for a whole shape.
    """

    model: str
    settings: ModelSettings
    certificate: Certificate
    derivative: Bound | None
    classes: tuple[AttackedRadius, ...]
    words: tuple[ReplacedWords, ...]
    inputs: ContinuousInputs | None

    def known(self, index: int) -> str:
        """What is known of the derivative at one input: its norm, two sides, or a lower bound."""
        if self.derivative is not None:
            return sides(self.derivative[index])
        assert self.certificate.measured is not None
        return f"at least {shown(float(self.certificate.measured.lower[index]), up=False)}"

    def radius(self, norm: int, index: int) -> tuple[str, str]:
        """The certified radius of one input's class, rounded down, and that of the attack."""
        found = self.classes[norm]
        certified = shown(float(found.certified.radius[index]), up=False)
        late = "" if found.certified.finished[index] else " (time limit)"
        return certified + late, shown(float(found.attack[index]))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words, for JSON."""
        import taut

        found: dict[str, Any] = {
            "taut": taut.__version__,
            "torch": torch.__version__,
            "model": self.model,
            "revision": self.settings.revision,
            "dtype": self.settings.dtype,
            "seed": self.settings.seed,
            "inputs": None if self.inputs is None else self.inputs.labels,
            "notes": [] if self.inputs is None else list(self.inputs.notes),
        }
        if self.derivative is not None:
            found["local"] = {
                "kind": self.derivative.kind,
                "lower": [float(v) for v in self.derivative.lower],
                "upper": [float(v) for v in self.derivative.upper],
                "domain": str(self.derivative.domain),
                "theorem": list(self.derivative.theorem),
            }
        found |= self.certificate.to_dict(self.derivative)
        if self.classes:
            first = self.classes[0].certified
            found["classes"] = {
                "predicted": [int(v) for v in first.predicted],
                "margin": [float(v) for v in first.margin],
                "norms": {
                    each.name: {**each.to_dict(), "shares": each.shares(self.settings.labels)}
                    for each in self.classes
                },
            }
        if self.words:
            found["words"] = [each.to_dict() for each in self.words]
        return found


def certify_model(
    model: str,
    settings: ModelSettings,
    *,
    progress: Callable[[str], object] = lambda stage: None,
) -> ModelCertificate:
    """Load a model by name, and bound how far its output can move with its input.

    Parameters
    ----------
    model
        A folder or Hub id of Hugging Face, a .gguf or .onnx file, or ``module:function``.
    settings
        Inputs or a shape, and how they are bounded.
    progress
        Called with the name of every stage before it begins.
    """
    progress("loading the model")
    network = _loaded(model, settings)
    inputs, domain, context = None, _domain(settings.shape, settings), None
    if settings.inputs:
        inputs = read_continuous_inputs(
            list(settings.inputs),
            network,
            model,
            limit=settings.limit,
            max_length=settings.max_length,
        )
        domain = At(inputs.x, settings.radius or 0.0)
        many = None if settings.labels is None else len(settings.labels)
        if many not in (None, len(inputs.x)):
            raise ValueError(f"there are {many} labels for {len(inputs.x)} inputs")
    assert domain is not None  # the settings have inputs or a shape
    context = _domain(settings.context_shape, settings) if inputs is None else inputs.context
    progress("bounding")
    certificate = certify(
        network,
        domain,
        norm=settings.norm,  # type: ignore[arg-type]
        context=context,
        seed=settings.seed,
        mask=None if inputs is None else inputs.mask,
        context_mask=None if inputs is None else inputs.context_mask,
    )
    derivative = None
    if inputs is not None and settings.local != "no":
        progress("measuring the derivative at the inputs")
        derivative = _derivative(network, inputs, settings)
    classes: tuple[AttackedRadius, ...] = ()
    if inputs is not None and settings.classify:
        classes = class_radii(network, inputs, settings, progress)
    words: tuple[ReplacedWords, ...] = ()
    if inputs is not None and (settings.synonyms or settings.nearest_words):
        progress("replacing words")
        words = model_words(network, model, inputs.labels, settings)
    return ModelCertificate(model, settings, certificate, derivative, classes, words, inputs)


def _loaded(model: str, settings: ModelSettings) -> nn.Module:
    """The model, in the precision that was asked for."""
    if model.endswith((".onnx", ".onnx.gz")):
        network = read_onnx(model)
        return network if settings.dtype == "auto" else network.to(getattr(torch, settings.dtype))
    return load(
        model, dtype=settings.dtype, revision=settings.revision,
        trust_remote_code=settings.trust_remote_code,
    )  # fmt: skip


def _domain(shape: tuple[int, ...] | None, settings: ModelSettings) -> NetworkDomain | None:
    """All inputs of a shape, with tokens of any length or of a limited one."""
    if shape is None:
        return None
    return Everywhere(shape) if settings.radius is None else Ball(settings.radius, shape)


def _derivative(network: nn.Module, inputs: ContinuousInputs, settings: ModelSettings) -> Bound:
    return local_lipschitz(
        network,
        inputs.x,
        mask=inputs.mask,
        context=inputs.context,
        context_mask=inputs.context_mask,
        method=settings.local,  # type: ignore[arg-type]
        seed=settings.seed,
    )
