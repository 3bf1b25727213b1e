"""See how a result of a model depends on its attention: gradients in scores, keys and values.

A zero that asks for a gradient is added where attention is computed, so that autograd reaches it
though no weight of the model asks for one. A fused attention shows its queries, keys, values and
the gradient in its outputs. Of one that is written out as matrix products and a softmax, autograd
itself gives the gradients in the scores and in the operands of both products.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.weak import WeakTensorKeyDictionary

from taut.models.attention_calls import split_heads, widened
from taut.models.attention_mode import AttentionMode, fused_arguments, watched
from taut.models.attention_sums import AttentionGradient, add_fused, add_written

_SOFTMAX = (torch.softmax, functional.softmax, torch.Tensor.softmax)
_PRODUCTS = (torch.matmul, torch.bmm, torch.Tensor.matmul, torch.Tensor.__matmul__,
             torch.Tensor.bmm, torch.baddbmm, torch.Tensor.baddbmm)  # fmt: skip
_ADDED = (torch.baddbmm, torch.Tensor.baddbmm)  # their first argument is added to the product
_MIXING = (torch.einsum, torch.tensordot, functional.linear)  # their rows are other ones
_CUTTING = (torch.cat, torch.narrow, torch.Tensor.narrow, torch.Tensor.__getitem__,
            functional.pad)  # fmt: skip
_UNSEEN = "the product of its weights with the values was not seen"
_UNREACHED = "no gradient of the prediction reaches it"
_SHARED = "several heads share one tensor of keys or values in a product that is written out"
_LAYOUT = "its tensors are not (samples, heads, tokens, width)"


@dataclass
class _Fused:
    """A fused attention, with the sums that a backward pass brings."""

    place: tuple[str, int]
    plain: bool  # whether its layout is known
    found: AttentionGradient | None = None

    def sums(self) -> AttentionGradient:
        """The sums of the last backward pass."""
        found, self.found = self.found, None
        reason = _UNREACHED if self.plain else _LAYOUT
        return found or AttentionGradient(*self.place, reason=reason)


@dataclass
class _KeyProduct:
    """A matrix product whose second operand may be keys."""

    keys: torch.Tensor


@dataclass
class _Weights:
    """A softmax that may be attention: what was given to it, and the keys behind it."""

    scores: torch.Tensor
    product: _KeyProduct | None
    heads: int


@dataclass
class _Written:
    """An attention that is written out, with the gradients that a backward pass brings."""

    place: tuple[str, int]
    tensors: dict[str, torch.Tensor]
    heads: int
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)

    def listen(self) -> None:
        for name, tensor in self.tensors.items():
            tensor.register_hook(self._keep(name))  # type: ignore[no-untyped-call]

    def _keep(self, name: str) -> Any:
        def keep(gradient: torch.Tensor) -> None:
            self.gradients[name] = gradient.detach()

        return keep

    def sums(self) -> AttentionGradient:
        """The sums of the last backward pass."""
        found = AttentionGradient(*self.place)
        if "scores" not in self.gradients or "output" not in self.gradients:
            found.reason = _UNREACHED
            return found
        pairs = {name: self._pair(name) for name in ("scores", "keys", "values")}
        scores = pairs.pop("scores")
        assert scores is not None
        if scores[0].ndim != 4:
            self.gradients.clear()
            found.reason = _LAYOUT
            return found
        for name, pair in pairs.items():
            if pair is not None and pair[0].shape[:2] != scores[0].shape[:2]:
                pairs[name], found.reason = None, _SHARED
        gradient = split_heads(widened(self.gradients["output"]), self.heads)
        add_written(found, gradient, scores, pairs["keys"], pairs["values"])
        if found.keys is None and not found.reason:
            found.reason = "the product of its queries with the keys was not seen"
        self.gradients.clear()
        return found

    def _pair(self, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
        """A tensor and its gradient, (samples, heads, tokens, width)."""
        if name not in self.gradients:
            return None
        pair = (self.tensors[name].detach(), self.gradients[name])
        one, other = (split_heads(widened(tensor), self.heads) for tensor in pair)
        if name == "keys":  # the second operand of the product: (..., width, keys)
            one, other = one.transpose(-1, -2), other.transpose(-1, -2)
        return one, other


class AttentionGradients(AttentionMode):
    """Mode that prepares every attention of a pass for :meth:`backward`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        parameter = next(iter(model.parameters()), None)
        device = torch.device("cpu") if parameter is None else parameter.device
        self._zero = torch.zeros((), device=device, requires_grad=True)
        self._seen: list[_Fused | _Written] = []
        self._marks: Any = WeakTensorKeyDictionary()
        self._begun: list[tuple[str, Any]] = []

    def backward(self, output: torch.Tensor, weights: torch.Tensor) -> list[AttentionGradient]:
        """Sums of the derivative of Σ weights · output; the pass may be used again.

        An attention that nothing reaches, or that could not be seen whole, says why.
        """
        if output.requires_grad:
            torch.autograd.grad(output, [self._zero], weights, retain_graph=True, allow_unused=True)
        return [seen.sums() for seen in self._seen]

    def fused(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a fused attention; its sums are made when the gradient of its output arrives."""
        result = function(*args, **kwargs) + self._at(args, kwargs)
        seen, heads = _Fused(self.place(), result.ndim in (3, 4)), self.heads

        def note(gradient: torch.Tensor) -> None:
            seen.found = AttentionGradient(*seen.place)
            with torch.no_grad(), torch.autocast(gradient.device.type, enabled=False):
                add_fused(seen.found, fused_arguments(heads, args, kwargs), gradient)

        if result.requires_grad and seen.plain:
            result.register_hook(note)
        self._seen.append(seen)
        return result

    def _at(self, args: Any, kwargs: Any) -> torch.Tensor:
        query = args[0] if args else kwargs["query"]
        return self._zero.to(query.device)

    def other(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run any other function, and follow matrix products to a softmax and on to the values."""
        if function in _SOFTMAX:
            return self._softmax(function, args, kwargs)
        if function in _PRODUCTS and not kwargs.get("out"):
            return self._product(function, list(args), kwargs)
        result = function(*args, **kwargs)
        if isinstance(result, torch.Tensor) and function not in _MIXING:
            self._pass_on(args, result, cut=function in _CUTTING)
        return result

    def _softmax(self, function: Any, args: Any, kwargs: Any) -> Any:
        given = args[0] if args else kwargs.pop("input")
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        if given.ndim < 3 or dim not in (-1, given.ndim - 1) or not given.is_floating_point():
            return function(given, *args[1:], **kwargs)
        scores = given + self._zero.to(given.device)
        result = function(scores, *args[1:], **kwargs)
        mark = self._marks.get(given)
        product = mark if isinstance(mark, _KeyProduct) else None
        self._marks[result] = _Weights(scores, product, self.heads)
        if product is not None and scores.requires_grad:
            self._begun.append((self.path[-1], self._marks[result]))
        return result

    def _product(self, function: Any, args: list[Any], kwargs: Any) -> Any:
        last = 2 if function in _ADDED else 1
        if len(args) <= last or args[last].ndim < 3 or not args[last].is_floating_point():
            return function(*args, **kwargs)
        args[last] = second = args[last] + self._zero.to(args[last].device)
        result = function(*args, **kwargs)
        weights = self._marks.get(args[last - 1])
        if not isinstance(weights, _Weights):
            self._marks[result] = _KeyProduct(second)
        elif result.requires_grad:
            keys = {} if weights.product is None else {"keys": weights.product.keys}
            tensors = {"scores": weights.scores, "values": second, "output": result, **keys}
            written = _Written(self.place(), tensors, weights.heads)
            written.listen()
            self._seen.append(written)
            self._begun = [(path, mark) for path, mark in self._begun if mark is not weights]
        return result

    def _pass_on(self, args: Any, result: torch.Tensor, *, cut: bool) -> None:
        """What is known of a tensor holds of one made from it entry by entry.

        ``cut`` says that keys may have been left out or added, such as those of attention sinks.
        """
        first = args[0] if args and isinstance(args[0], (tuple, list)) else ()
        for given in (*first, *args):
            mark = self._marks.get(given) if isinstance(given, torch.Tensor) else None
            if mark is not None and result is not given:
                rows = result.shape[:-1] == given.shape[:-1]
                if result.numel() == given.numel() or (cut and rows):
                    self._marks[result] = mark
                return

    @property
    def unseen(self) -> dict[str, str]:
        """Modules whose softmax of a product was never seen to meet values, and why."""
        return dict.fromkeys((path for path, _ in self._begun), _UNSEEN)


@contextmanager
def attention_gradients(model: nn.Module) -> Iterator[AttentionGradients]:
    """Prepare every attention of the model's passes meanwhile for a backward pass.

    The weights ask for no gradients meanwhile, and do again afterwards. Leave this context after
    the forward pass: :meth:`AttentionGradients.backward` can be called when it has ended.
    """
    plain: nn.Module = getattr(model, "_orig_mod", model)  # inside a compiled model
    asking = [weight for weight in plain.parameters() if weight.requires_grad]
    mode = AttentionGradients(plain)
    try:
        for weight in asking:
            weight.requires_grad_(False)
        with torch.enable_grad(), watched(plain, mode):
            yield mode
    finally:
        for weight in asking:
            weight.requires_grad_(True)
