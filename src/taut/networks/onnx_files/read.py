"""read_onnx: a network from an ONNX file, made of operations that have rules."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch

from taut._base.optional import needing
from taut.networks.onnx_files.execution import KNOWN, executed
from taut.networks.onnx_files.network import OnnxNetwork
from taut.networks.onnx_files.step import Step, UnknownOperationError

FLOATS = {1: torch.float32, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}


def read_onnx(path: str | Path) -> OnnxNetwork:
    """Read a network from an ONNX file, for :func:`certify`, :func:`propagate` and :func:`verify`.

    Parameters
    ----------
    path
        An .onnx file, or one compressed by gzip. Its operations must be of the known ones: linear
        maps, convolutions, activations, norm layers, attention with its projections, sums,
        pooling by means, and whatever only moves entries. Every size but that of the batch must
        be fixed, and there must be one input and one output of real numbers.

    Raises
    ------
    TypeError
        If an operation has no rule; the message names it and its node.
    """
    graph = _graph(Path(path))
    return _Reader(graph.graph, _opset(graph, path), path).network()


def _graph(path: Path) -> Any:
    with needing("ONNX files need onnx", "onnx"):
        import onnx
    from google.protobuf.message import DecodeError  # comes with onnx

    try:
        if path.suffix == ".gz":
            return onnx.load_model_from_string(gzip.decompress(path.read_bytes()))
        return onnx.load(str(path))
    except (DecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not an ONNX file that can be read: {error}") from None


def _opset(model: Any, path: str | Path) -> int:
    found = {entry.domain: entry.version for entry in model.opset_import}
    for domain in ("", "ai.onnx"):
        if domain in found:
            return int(found[domain])
    raise ValueError(f"{path} does not say which version of ONNX's operations it uses")


class _Reader:
    """Tell constants from what depends on the input, and run the rest once to know its shapes."""

    def __init__(self, graph: Any, opset: int, path: str | Path) -> None:
        from onnx import numpy_helper

        self.graph, self.opset, self.path = graph, opset, path
        self.constants = {
            each.name: _tensor(numpy_helper.to_array(each)) for each in graph.initializer
        }
        self.moving: dict[str, torch.Tensor] = {}  # at an input of zeros
        self.steps: list[Step] = []

    def network(self) -> OnnxNetwork:
        name, shape, batch_axis = self._input()
        for node in self.graph.node:
            step = _step(node, self.opset)
            if any(each in self.moving for each in step.inputs) and step.kind != "Shape":
                for part in self._simple(step):
                    self._enter(part)
            else:
                self._fold(node, step)
        outputs = [each.name for each in self.graph.output]
        if len(outputs) != 1 or outputs[0] not in self.moving:
            raise ValueError(
                f"{self.path} has the outputs {', '.join(outputs)}; there must be one, and it "
                "must depend on the input"
            )
        out = tuple(self.moving[outputs[0]].shape)
        return OnnxNetwork(
            self.steps, self.constants, (name, outputs[0]),
            (shape, out[1:] if batch_axis and out[:1] == (1,) and len(out) > 1 else out),
            batch_axis,
        ).eval()  # fmt: skip

    def _input(self) -> tuple[str, tuple[int, ...], bool]:
        given = [each for each in self.graph.input if each.name not in self.constants]
        if len(given) != 1:
            names = ", ".join(each.name for each in given)
            raise ValueError(f"{self.path} has the inputs {names}; there must be one")
        kind = given[0].type.tensor_type
        if kind.elem_type not in FLOATS:
            raise TypeError(
                f"the input {given[0].name} is not of real numbers; export the model from its "
                "embeddings on"
            )
        sizes = [each.dim_value for each in kind.shape.dim]  # 0 where it is not fixed
        batch_axis = len(sizes) > 1 and sizes[0] in (0, 1)
        shape = tuple(sizes[1:] if batch_axis else sizes)
        if not shape or 0 in shape:
            raise ValueError(
                f"the input {given[0].name} has the shape {sizes}, 0 where it is not fixed; every "
                "size but that of the batch must be fixed: export the model for one shape"
            )
        zeros = torch.zeros((1, *shape) if batch_axis else shape, dtype=FLOATS[kind.elem_type])
        self.moving[given[0].name] = zeros
        return given[0].name, shape, batch_axis

    def _simple(self, step: Step) -> list[Step]:
        """The same in fewer kinds of operations: Gemm is a product and a sum, Cast is nothing."""
        if step.kind == "Cast":
            if FLOATS.get(step.get("to")) != self.moving[step.inputs[0]].dtype:
                raise UnknownOperationError(step, "it changes the precision inside the network")
            return [_like(step, "Identity", step.inputs, step.outputs[0])]
        if step.kind == "Dropout" and self._is_training(step):
            raise UnknownOperationError(step, "it is in training mode: export in eval mode")
        if step.kind != "Gemm":
            return [step]
        a, b, *rest = step.inputs
        if b not in self.constants or (rest and rest[0] and rest[0] not in self.constants):
            raise UnknownOperationError(step, "it multiplies two terms that depend on the input")
        found, weight = [], self.constants[b]
        if step.get("transA", 0):
            found.append(_like(step, "Transpose", (a,), f"{step.name}/transposed"))
            a = found[0].outputs[0]
        weight = weight.mT if step.get("transB", 0) else weight
        self.constants[f"{step.name}/weight"] = weight * step.get("alpha", 1.0)
        biased = bool(rest and rest[0])
        out = f"{step.name}/product" if biased else step.outputs[0]
        found.append(_like(step, "MatMul", (a, f"{step.name}/weight"), out))
        if biased:
            self.constants[f"{step.name}/bias"] = self.constants[rest[0]] * step.get("beta", 1.0)
            found.append(_like(step, "Add", (out, f"{step.name}/bias"), step.outputs[0]))
        return found

    def _is_training(self, step: Step) -> bool:
        """Whether the third input of Dropout says that it drops entries."""
        name = step.inputs[2] if len(step.inputs) > 2 else ""
        return bool(name) and bool(self.constants.get(name, torch.tensor(True)).any())

    def _enter(self, step: Step) -> None:
        values = self.constants | self.moving
        missing = [name for name in step.inputs if name and name not in values]
        if missing:
            raise ValueError(f"{self.path}: node {step.name!r} reads {missing[0]!r}, which is not "
                             "computed before it")  # fmt: skip
        try:
            found = executed(step, [values[name] if name else None for name in step.inputs])
        except (RuntimeError, IndexError) as error:
            raise ValueError(
                f"{self.path}: {step.kind} at node {step.name!r} cannot be computed: {error}"
            ) from None
        self.moving.update(zip(step.outputs, found, strict=False))
        self.steps.append(step)

    def _fold(self, node: Any, step: Step) -> None:
        """Compute what does not depend on the input, as the reference of ONNX does."""
        from onnx import TypeProto, helper
        from onnx.reference import ReferenceEvaluator

        names = [name for name in step.inputs if name]
        shaped = {name: value for name, value in self.moving.items() if name in names}
        values = self.constants | shaped  # of which Shape reads the shape alone
        opsets = [helper.make_opsetid("", self.opset)]
        outputs = [name for name in step.outputs if name]
        before, after = (
            [helper.make_value_info(name, TypeProto()) for name in each]
            for each in (names, outputs)
        )
        alone = helper.make_model(
            helper.make_graph([node], "constant", before, after), opset_imports=opsets
        )
        try:
            given = {name: values[name].numpy() for name in names}
            if step.kind == "GatherElements":  # onnx 1.23 refuses one row of several
                data, index = given.values()
                found: Any = [np.take_along_axis(data, index, axis=step.get("axis", 0))]
            else:
                found = ReferenceEvaluator(alone).run(None, given)
        except Exception as error:  # whatever the reference cannot do
            why = f"it does not depend on the input and cannot be computed: {error}"
            raise UnknownOperationError(step, why) from None
        for name, value in zip(outputs, found, strict=True):
            self.constants[name] = _tensor(np.asarray(value))


def _tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array))  # a copy that can be written


def _like(step: Step, kind: str, inputs: tuple[str, ...], output: str) -> Step:
    return Step(kind, step.name, inputs, (output,), {}, step.opset)


def _step(node: Any, opset: int) -> Step:
    from onnx import helper, numpy_helper

    attributes: dict[str, Any] = {}
    for each in node.attribute:
        value = helper.get_attribute_value(each)
        if hasattr(value, "data_type"):
            value = numpy_helper.to_array(value)
        attributes[each.name] = value.decode() if isinstance(value, bytes) else value
    name = node.name or (node.output[0] if node.output else "?")
    step = Step(
        node.op_type, name, tuple(node.input), tuple(node.output), attributes, opset
    )  # fmt: skip
    if node.domain not in ("", "ai.onnx"):
        raise UnknownOperationError(step, f"it is not of ONNX but of {node.domain!r}")
    return step


__all__ = ["KNOWN", "read_onnx"]
