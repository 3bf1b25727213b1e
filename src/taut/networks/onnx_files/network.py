"""OnnxNetwork: a network from an ONNX file, as a module of torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from taut.networks.onnx_files.execution import executed
from taut.networks.onnx_files.step import Step


class OnnxNetwork(nn.Module):
    """The operations of an ONNX file, which :func:`read_onnx` read.

    Its weights are those of the file, and what the file computes of them alone: such terms are
    computed once, in the precision of the file, and are weights from then on.

    Attributes
    ----------
    steps
        What is computed of the input, in order.
    input_shape, output_shape
        Shapes of one input and one output, without the axis of the batch.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        constants: dict[str, torch.Tensor],
        names: tuple[str, str],
        shapes: tuple[tuple[int, ...], tuple[int, ...]],
        batch_axis: bool,
    ) -> None:
        super().__init__()
        self.steps = tuple(steps)
        self.input_name, self.output_name = names
        self.input_shape, self.output_shape = shapes
        self.batch_axis = batch_axis
        used = {name for step in steps for name in step.inputs} & set(constants)
        real = sorted(name for name in used if _is_weight(constants[name]))
        self._index = {name: index for index, name in enumerate(real)}
        self._fixed = {name: constants[name] for name in sorted(used - set(real))}
        self.weights = nn.ParameterList(
            nn.Parameter(constants[name], requires_grad=False) for name in real
        )

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """Everything that does not depend on the input, by its name in the file."""
        return {name: self.weights[at] for name, at in self._index.items()} | self._fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs of inputs with a batch in front, each computed by itself."""
        if tuple(x.shape[1:]) != self.input_shape:
            raise ValueError(
                f"the network takes inputs of shape (batch, {', '.join(map(str, self.input_shape))}"
                f"), got {tuple(x.shape)}"
            )
        constants = self.constants | {
            name: value.to(x) if value.is_floating_point() else value.to(x.device)
            for name, value in self._fixed.items()
        }

        def one(sample: torch.Tensor) -> torch.Tensor:
            values = dict(constants)
            values[self.input_name] = sample[None] if self.batch_axis else sample
            for step in self.steps:
                given = [values[name] if name else None for name in step.inputs]
                values.update(zip(step.outputs, executed(step, given), strict=False))
            return values[self.output_name].reshape(self.output_shape)

        found: torch.Tensor = torch.vmap(one)(x)
        return found


def _is_weight(value: torch.Tensor) -> bool:
    """Real numbers; those with infinities hide scores, and are no weights."""
    return value.is_floating_point() and not bool(torch.isinf(value).any())
