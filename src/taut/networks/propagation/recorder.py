"""Recorder: read the rules of a network a second time, as operations instead of constants."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import nn

from taut.networks.module_tree import ModuleNode
from taut.networks.operations.activation_slopes import known_activation
from taut.networks.operations.attention_mask import visible
from taut.networks.operations.attention_parameters import HeadNorm, Heads, Rotary
from taut.networks.operations.linear import Affine
from taut.networks.operations.normalisation import FixedNorm
from taut.networks.operations.places import patch_places
from taut.networks.operations.setting import Setting
from taut.networks.propagation.attention_node import AttentionNode
from taut.networks.propagation.constant_node import ConstantNode
from taut.networks.propagation.linear_nodes import (
    AddNode,
    BatchNormNode,
    LinearNode,
    ScaleNode,
    ShiftNode,
)
from taut.networks.propagation.node import Node, RegionNeededError
from taut.networks.propagation.norm_nodes import CentreNode, NormNode
from taut.networks.propagation.pointwise_nodes import ActivationNode, ProductNode
from taut.networks.propagation.rotary_node import RotaryNode
from taut.networks.propagation.token_nodes import (
    BesideNode,
    MeanNode,
    PrependNode,
    RearrangeNode,
    SelectNode,
)
from taut.networks.rule_register import MissingRuleError, find


class Recorder(Setting):
    """What a rule works with when its module is recorded: the verbs of :class:`Interpreter`.

    Attributes
    ----------
    nodes
        All operations so far, in order.
    batch, sample
        How many inputs the masks are for, and which of them is recorded.
    """

    def __init__(self, device: torch.device, batch: int = 1, sample: int = 0) -> None:
        super().__init__("l2", 0.0, device)
        self.batch, self.sample = batch, sample
        self.nodes: list[Node] = []
        self._missing: list[tuple[str, nn.Module]] = []
        self._path: list[str] = []

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        """A weight in float64; a copy of one made in inference mode, which has no gradients."""
        found = super().tensor(value)
        return found.clone() if found.is_inference() else found

    def keep(self, node: Node, name: str | None = None) -> Any:
        """Enter an operation of the module in hand."""
        node.index = len(self.nodes)
        node.path = ".".join([*self._path[1:], *([name] if name else [])])
        self.nodes.append(node)
        return node

    def __call__(
        self, module: nn.Module, x: Node, name: str = "", *, context: Node | None = None,
        **inputs: Any,
    ) -> Any:  # fmt: skip
        """What a module makes of a node; by its constant if its rule works on regions."""
        rule = find(module)
        if rule is None:
            self._missing.append((".".join([*self._path[1:], name]), module))
            raise MissingRuleError(self._missing)
        given = {} if context is None else {"context": context}
        many = len(self.nodes)
        self._path.append(name)
        try:
            with self.tree.inside(ModuleNode(name, type(module).__name__)):
                return rule.bound(self, module, x, **given, **inputs)
        except RegionNeededError:
            del self.nodes[many:]
            many_inputs = (self.batch, self.sample)
            return self.keep(ConstantNode(module, x, context, inputs, many_inputs))
        finally:
            self._path.pop()

    def linear(
        self, x: Node, weight: torch.Tensor, bias: torch.Tensor | None = None,
        name: str | None = None,
    ) -> Any:  # fmt: skip
        """Wx + b, the weight laid out as (outputs, inputs)."""
        self.fits(x, weight.shape[1], "a linear layer")  # type: ignore[arg-type]
        fixed = None if bias is None else self.tensor(bias)
        return self.keep(LinearNode(x, self.tensor(weight), fixed), name)

    def scale(self, x: Node, factors: torch.Tensor | float, name: str | None = None) -> Any:
        """Each coordinate times its factor."""
        self.tokens_only(x)  # type: ignore[arg-type]
        found = torch.as_tensor(factors, dtype=torch.float64).detach().to(x.centre)
        return self.keep(ScaleNode(x, found), name)

    def shift(self, x: Node, constant: torch.Tensor) -> Any:
        """Add something fixed, such as embeddings of positions, (..., tokens, width)."""
        fixed = self.tensor(constant).reshape(-1, constant.shape[-1])
        self.fits(x, fixed.shape[-1], "what is added")  # type: ignore[arg-type]
        if len(fixed) not in (1, x.tokens):
            raise ValueError(
                f"the model has {len(fixed)} positions for {x.tokens} tokens: shorten the inputs "
                "(--max-length on the command line)"
            )
        return self.keep(ShiftNode(x, fixed))

    def patches(
        self, x: Node, weight: torch.Tensor, bias: torch.Tensor | None, name: str | None = None
    ) -> Any:
        """One linear map for each patch of an image; the weight as that of a convolution."""
        size = (weight.shape[2], weight.shape[3])
        cut = self.rearrange(x, patch_places(x.image, size), name)
        return self.linear(cut, weight.flatten(1), bias, name)

    def centre(self, x: Node, name: str | None = None) -> Any:
        """Every token less the mean of its entries."""
        self.tokens_only(x)  # type: ignore[arg-type]
        return self.keep(CentreNode(x), name)

    def normalise(
        self, x: Node, gain: torch.Tensor | None, shift: torch.Tensor | None, epsilon: float, *,
        centred: bool, name: str | None = None,
    ) -> Any:  # fmt: skip
        """LayerNorm (``centred``) or RMSNorm of every token."""
        width = x.width if gain is None else gain.shape[0]
        self.fits(x, width, "a norm layer")  # type: ignore[arg-type]
        y = self.keep(CentreNode(x), name) if centred else x
        fixed = [None if each is None else self.tensor(each) for each in (gain, shift)]
        return self.keep(NormNode(y, fixed[0], fixed[1], epsilon), name)

    def batch_norm(self, x: Node, fixed: FixedNorm, name: str | None = None) -> Any:
        """BatchNorm with fixed statistics."""
        shape = x.image or x.centre.shape
        whole = [self.tensor(each).expand(shape).reshape(x.centre.shape) for each in fixed]
        node = self.keep(BatchNormNode(x, whole[0], whole[1], whole[2]), name)
        node.image = x.image
        return node

    known = staticmethod(known_activation)

    def activation(self, x: Node, function: Any, name: str | None = None) -> Any:
        """A function applied to every number."""
        self.tokens_only(x)  # type: ignore[arg-type]
        return self.keep(ActivationNode(x, known_activation(function)), name)

    def mlp(self, x: Node, first: Affine, function: Any, second: Affine, name: str = "mlp") -> Any:
        """Linear, activation, linear."""
        y = self.activation(self.linear(x, *first, name), function, name)
        return self.linear(y, *second, name)

    def gated(
        self, x: Node, gate: Affine, function: Any, value: Affine, down: Affine, name: str = "mlp"
    ) -> Any:
        """down(activation(gate x)·(value x))."""
        opened = self.activation(self.linear(x, *gate, name), function, name)
        product = self.product(opened, self.linear(x, *value, name), name)
        return self.linear(product, *down, name)

    def average(self, x: Node, y: Node, kept: float, passed: float) -> Any:
        """kept·x + passed·y."""
        return self.add(self.scale(x, kept), self.scale(y, passed))

    def averaged_mlp(
        self, x: Node, first: Affine, function: Any, second: Affine, kept: float, passed: float,
        name: str = "mlp",
    ) -> Any:  # fmt: skip
        """kept·x + passed·(linear, activation, linear)."""
        return self.average(x, self.mlp(x, first, function, second, name), kept, passed)

    def product(self, x: Node, y: Node, name: str | None = None) -> Any:
        """Two nodes multiplied entry by entry."""
        self.tokens_only(x)  # type: ignore[arg-type]
        self.fits(y, x.width, "a product")  # type: ignore[arg-type]
        return self.keep(ProductNode(x, y), name)

    def add(self, x: Node, y: Node) -> Any:
        """The sum of two nodes."""
        return self.keep(AddNode(x, y))

    def by_constant(self, *_: Any, **__: Any) -> NoReturn:
        """No affine bounds are known of these: their module is bounded by its constant."""
        raise RegionNeededError

    into_ball = sort_pairs = distance_attention = mixture = by_constant

    def first(self, x: Node, index: int = 0) -> Any:
        """One token alone."""
        self.tokens_only(x)  # type: ignore[arg-type]
        return self.keep(SelectNode(x, torch.tensor([index % x.tokens])))

    def after(self, x: Node, index: int) -> Any:
        """The tokens from an index on."""
        return self.keep(SelectNode(x, torch.arange(index, x.tokens)))

    def prepend(self, x: Node, fixed: torch.Tensor) -> Any:
        """Fixed tokens before the others."""
        return self.keep(PrependNode(x, self.tensor(fixed)))

    def mean(self, x: Node, name: str | None = None) -> Any:
        """The mean of all tokens."""
        self.tokens_only(x)  # type: ignore[arg-type]
        return self.keep(MeanNode(x), name)

    def beside(self, x: Node, y: Node) -> Any:
        """Two nodes of equally many tokens, joined along their width."""
        return self.keep(BesideNode(x, y))

    def rearrange(self, x: Node, places: torch.Tensor, name: str | None = None) -> Any:
        """Entries in other places; −1 is a zero."""
        return self.keep(RearrangeNode(x, places), name)

    def attention(
        self, x: Node, heads: Heads, *, context: Node | None = None,
        mask: torch.Tensor | None = None, bias: torch.Tensor | None = None,
        rotary: Rotary | None = None, name: str | None = None,
    ) -> Any:  # fmt: skip
        """Dot-product attention with its projections."""
        y = x if context is None else context
        q = self._projected(x, heads.query, heads.heads, heads.query_norm, rotary, name)
        k = self._projected(y, heads.key, heads.kv_heads, heads.key_norm, rotary, name)
        v = self._projected(y, heads.value, heads.kv_heads, heads.value_norm, None, name)
        shape = (self.batch, heads.heads, x.tokens, y.tokens)
        term = None
        if bias is not None:
            term = self.tensor(bias).expand(shape)[self.sample]
        if mask is not None:
            seen = visible(mask.to(self.device), shape)[self.sample].expand(shape[1:])
            plain = x.centre.new_zeros(()) if term is None else term
            term = torch.where(seen, plain, -torch.inf)
        core = AttentionNode(q, k, v, heads.heads, heads.kv_heads, heads.scale, heads.softcap, term)
        o = self.keep(core, name)
        return o if heads.output is None else self.linear(o, *heads.output, name)

    def _projected(
        self, x: Node, map_: Affine, heads: int, norm: HeadNorm | None, rotary: Rotary | None,
        name: str | None,
    ) -> Any:  # fmt: skip
        """Queries, keys or values: projected, normalised head by head, turned."""
        z = self.linear(x, *map_, name)
        if norm is not None:
            gain = None if norm.gain is None else self.tensor(norm.gain)
            z = self.keep(NormNode(z, gain, None, norm.epsilon, heads), name)
        if rotary is not None:
            cosine, sine = (self.tensor(part) for part in rotary)
            z = self.keep(RotaryNode(z, heads, cosine, sine), name)
        return z
