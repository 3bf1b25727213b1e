"""Certificates for PyTorch modules and models.

:func:`certify` bounds how far the output of a network moves with its input, on a domain
(:class:`Ball`, :class:`Everywhere`) or at given inputs (:class:`At`); :func:`register` teaches it
new modules. :func:`propagate` bounds what the output can be near an input, and
:func:`certified_radius` how far an input may move before a classifier changes its mind.
"""

from taut._base.optional import needing as _needing

with _needing("taut.networks needs PyTorch", "torch"):
    import torch as _torch  # noqa: F401

from taut._base.settings import ModelSettings
from taut.networks.certificate import Certificate
from taut.networks.certified_predictions import CertifiedPredictions, certified_predictions
from taut.networks.certify import certify
from taut.networks.certify_model import ModelCertificate, certify_model
from taut.networks.classifier import CertifiedRadius, certified_radius
from taut.networks.derivative import local_lipschitz
from taut.networks.interpreter import Interpreter
from taut.networks.onnx_files.network import OnnxNetwork
from taut.networks.onnx_files.read import read_onnx
from taut.networks.onnx_files.step import UnknownOperationError
from taut.networks.operations.activation_slopes import Activation, known_activation
from taut.networks.operations.attention_parameters import HeadNorm, Heads
from taut.networks.operations.distance_parameters import DistanceHeads
from taut.networks.propagation.propagate import propagate
from taut.networks.propagation.result import Propagation, Slack
from taut.networks.propagation.targets import margins
from taut.networks.region import Region
from taut.networks.rule_register import MissingRuleError, register
from taut.networks.verification.verdict import Verdict
from taut.networks.verification.verify import verify
from taut.networks.vnnlib_files.read import VnnlibProperty, read_vnnlib
from taut.networks.vnnlib_files.verify_vnnlib import PropertyVerdict, verify_vnnlib
from taut.networks.word_changes import WordChanges, nearest_words, word_changes
from taut.networks.word_replacements import (
    WordReplacements,
    nearest_replacements,
    read_synonyms,
    synonym_replacements,
)

__all__ = [
    "Activation",
    "Certificate",
    "CertifiedPredictions",
    "CertifiedRadius",
    "DistanceHeads",
    "HeadNorm",
    "Heads",
    "Interpreter",
    "MissingRuleError",
    "ModelCertificate",
    "ModelSettings",
    "OnnxNetwork",
    "Propagation",
    "PropertyVerdict",
    "Region",
    "Slack",
    "UnknownOperationError",
    "Verdict",
    "VnnlibProperty",
    "WordChanges",
    "WordReplacements",
    "certified_predictions",
    "certified_radius",
    "certify",
    "certify_model",
    "known_activation",
    "local_lipschitz",
    "margins",
    "nearest_replacements",
    "nearest_words",
    "propagate",
    "read_onnx",
    "read_synonyms",
    "read_vnnlib",
    "register",
    "synonym_replacements",
    "verify",
    "verify_vnnlib",
    "word_changes",
]
