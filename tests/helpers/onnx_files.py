"""ONNX files made by hand or exported by torch, for the tests."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn


def exported(net: nn.Module, x: torch.Tensor, path: Path, opset: int = 17) -> Path:
    """A network as torch's exporter writes it, with any number of inputs in a batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.eval(), (x,), str(path), dynamo=False, opset_version=opset, input_names=["x"],
            output_names=["y"], dynamic_axes={"x": {0: "batch"}},
        )  # fmt: skip
    return path


def by_hand(path: Path, nodes, shapes, opset: int = 17, **weights) -> Path:
    """A file of given nodes from an input x of a shape to an output y."""
    from onnx import TensorProto, helper, numpy_helper, save

    (before, after) = shapes
    graph = helper.make_graph(
        nodes, "by hand",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, before)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, after)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )  # fmt: skip
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), str(path))
    return path
