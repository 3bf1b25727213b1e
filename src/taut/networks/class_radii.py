"""How far the inputs of a model may move before their class changes, in every norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import nn

from taut._base.domain import At
from taut._base.rounding import Numbers
from taut._base.settings import ModelSettings
from taut.models import ContinuousInputs
from taut.networks.certified_predictions import MarginBounded, certified_predictions
from taut.networks.classifier import CertifiedRadius, certified_radius
from taut.networks.verification.verdict import Verdict
from taut.networks.verification.verify import verify

NORMS = (1, 2, math.inf)
ROWS = 10  # of a table of radii
DETAILS = ("example", "bounded", "waiting", "seconds", "theorem", "rounding", "note")


class RadiusVerdict(NamedTuple):
    """Whether an input keeps its class within the radius that was asked about.

    Attributes
    ----------
    verdict
        ``"proved"``, ``"refuted"`` or ``"open"``.
    reason
        What decided: the certified radius, the attack, or verify, which branches over ReLUs.
    details
        What :func:`verify` found; None where the certified radius sufficed.
    """

    verdict: Literal["proved", "refuted", "open"]
    reason: Literal["certified radius", "attack", "verify"]
    details: Verdict | None

    @property
    def told(self) -> str:
        """What was tried, in a sentence or two."""
        if self.details is None:
            return "proved: the certified radius is as large"
        if self.reason == "attack":
            return "refuted: the attack needs a smaller radius"
        return str(self.details)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words, for JSON."""
        found: dict[str, Any] = {"verdict": self.verdict, "reason": self.reason}
        if self.details is not None:
            lower = self.details.lower
            found["lower"] = lower if math.isfinite(lower) else None
            every = self.details.to_dict()
            found |= {name: every[name] for name in DETAILS}
        return found


class AttackedRadius(NamedTuple):
    """A certified radius, and the smallest radius at which an attack changes each class.

    ``verdicts`` say of each input whether its class holds within the radius that was asked about;
    they are empty if none was.
    """

    certified: CertifiedRadius
    attack: Numbers
    verdicts: tuple[RadiusVerdict, ...] = ()

    @property
    def name(self) -> str:
        """The norm."""
        return f"l{self.certified.norm:g}"

    def shares(self, labels: Sequence[int] | None) -> list[tuple[float, float]]:
        """Radii from 0 on, and the share of inputs that keep their class within each.

        With labels only those whose class is right count, which is certified accuracy.
        """
        radius, right = self.certified.radius, np.ones(len(self.attack), dtype=bool)
        if labels is not None:
            right = self.certified.predicted == np.asarray(labels)
        top = float(radius.max())
        step = 10.0 ** math.floor(math.log10(top)) / 5 if top > 0 else 1.0
        step *= next(many for many in (1, 2.5, 5, 10) if top / (step * many) <= ROWS)
        at = [float(f"{step * i:.3g}") for i in range(math.ceil(top / step) + 1)]
        return [(r, float((right & (radius >= r)).mean())) for r in at]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, for JSON; what is infinite is null."""
        found = self.certified
        record = {
            "radius": [float(v) for v in found.radius],
            "attack": [float(v) if math.isfinite(v) else None for v in self.attack],
            "first_order": [float(v) if math.isfinite(v) else None for v in found.first_order],
            "rounding": found.rounding,
            "finished": [bool(v) for v in found.finished],
        }
        if self.verdicts:
            record["verdicts"] = [each.to_dict() for each in self.verdicts]
        return record


def class_radii(
    network: nn.Module,
    inputs: ContinuousInputs,
    settings: ModelSettings,
    progress: Callable[[str], object],
) -> tuple[AttackedRadius, ...]:
    """The certified and the attacked radius of each class; with a radius also its verdict.

    A model that keeps a bound for all inputs (:class:`MarginBounded`) has its radii in l2 from it.
    """
    if isinstance(network, MarginBounded) and inputs.mask is None and not settings.radius:
        progress("certifying the classes by the bound for all inputs")
        predictions = certified_predictions(network, inputs.x)
        progress("attacking the classes in l2")
        return (
            AttackedRadius(predictions.as_radius(), predictions.attack_radius(seed=settings.seed)),
        )
    found: list[AttackedRadius] = []
    for norm in NORMS:
        stage = f"certifying the classes in l{norm}"
        progress(stage)
        certified = certified_radius(
            network, inputs.x, mask=inputs.mask, norm=norm, time_limit=settings.time_limit,
            progress=_counted(progress, stage),
        )  # fmt: skip
        progress(f"attacking the classes in l{norm}")
        attack = certified.attack_radius(seed=settings.seed)
        if found:  # what is near in l1 is at least as near in l2, and so on
            attack = np.minimum(attack, found[-1].attack)
        each = AttackedRadius(certified, attack)
        if settings.radius:
            verdicts = []
            for index in range(len(inputs.x)):
                stage = f"deciding the radius {settings.radius:g} in l{norm}"
                progress(f"{stage}, {index} of {len(inputs.x)} inputs done")
                verdicts.append(_verdict(network, inputs, index, each, settings))
            refuted = np.array([verdict.verdict == "refuted" for verdict in verdicts])
            nearer = np.where(refuted, np.minimum(attack, settings.radius), attack)
            each = AttackedRadius(certified, nearer, tuple(verdicts))
        found.append(each)
    return tuple(found)


def _verdict(
    network: nn.Module,
    inputs: ContinuousInputs,
    index: int,
    known: AttackedRadius,
    settings: ModelSettings,
) -> RadiusVerdict:
    """Ask :func:`verify` where the certified radius does not answer."""
    assert settings.radius
    if settings.radius <= known.certified.radius[index]:
        return RadiusVerdict("proved", "certified radius", None)
    one = slice(index, index + 1)
    details = verify(
        network, At(inputs.x[one], settings.radius), norm=known.certified.norm,
        mask=None if inputs.mask is None else inputs.mask[one],
        time_limit=settings.time_limit, seed=settings.seed,
    )  # fmt: skip
    # The attack above takes other steps, and may have found what the one of verify did not.
    if details.verdict == "open" and known.attack[index] <= settings.radius:
        return RadiusVerdict("refuted", "attack", details)
    return RadiusVerdict(details.verdict, "verify", details)


def _counted(progress: Callable[[str], object], stage: str) -> Callable[[int, int], object]:
    """Progress through the inputs of a stage, told after each but the last."""

    def told(done: int, all_: int) -> None:
        if done < all_:
            progress(f"{stage}, {done} of {all_} inputs done")

    return told
