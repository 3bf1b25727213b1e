"""The rule for networks from ONNX files."""

from __future__ import annotations

import taut.networks.onnx_files.arithmetic_steps
import taut.networks.onnx_files.largest_steps
import taut.networks.onnx_files.linear_steps  # noqa: F401  (all enter how they are read)
from taut.networks.interpreter import Interpreter
from taut.networks.onnx_files.network import OnnxNetwork
from taut.networks.onnx_files.walk import Walk
from taut.networks.region import Region
from taut.networks.rule_register import register


@register(OnnxNetwork)
def _onnx_network(run: Interpreter, module: OnnxNetwork, x: Region) -> Region:
    run.explain("operations of an ONNX file", "chain")
    found: Region = Walk(run).through(module, x)
    return found
