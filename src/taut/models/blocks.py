"""Blocks: the weights of the attention and feed-forward modules of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from torch import nn

from taut.models.architectures.expert_maps import expert_maps
from taut.models.architectures.linear_map import LinearMap
from taut.models.architectures.registry import find_attention, find_feed_forward, number_of_heads
from taut.models.architectures.sequential_maps import sequential_maps
from taut.models.weight import Weight

ROLES = ("query", "key", "value", "output", "gate", "first", "second", "query-key-value")
KINDS = ("attention", "feed-forward")
Names = Mapping[int, str]  # of parameters, by their ids
Only = str | Sequence[str] | None


class Block(NamedTuple):
    """The weights of one attention module, one feed-forward network or one expert of a mixture.

    ``weights`` has the keys query, key, value and output, or (gate,) first and second. Queries,
    keys and values that are fused in an order that differs between models are query-key-value.
    """

    path: str
    kind: str  # attention or feed-forward
    weights: dict[str, Weight]
    heads: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.kind}, {', '.join(map(str, self.weights.values()))}"


def find_blocks(model: nn.Module, only: Only = None) -> list[Block]:
    """Find the attention and feed-forward weights of a model, in its order.

    Parameters
    ----------
    model
        Any model of ``torch.nn`` or Hugging Face, or one that uses their names: modules are
        recognised by their classes, or else by the names of their linear maps. A feed-forward
        network beside attention may also be ``nn.Sequential(Linear, activation, Linear)``. Every
        expert of a mixture is a block, such as ``layers.0.mlp.experts.3``; routers are left alone.
    only
        A pattern such as ``"encoder.*"``, or several; only blocks whose paths match are returned.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    modules = dict(model.named_modules())
    found: list[Block] = []
    for path, module in modules.items():
        parent = modules.get(path.rpartition(".")[0]) if path else None
        for make in (_attention, _feed_forward):
            block = make(path, module, parent, names) if matches(path, only) else None
            if block is not None:
                found.append(block)
        if sequential_maps(module) is not None and matches(path, only) and _beside(path, modules):
            found.append(_sequential(path, module, names))
        found += _experts(path, module, names, only)
    if not found:
        what = f" that matches {only!r}" if only else ""
        raise ValueError(
            f"no attention or feed-forward network{what} was found; pass blocks= yourself"
        )
    return found


def matches(path: str, only: Only) -> bool:
    """Whether a path matches; the prefix that torch.compile adds to it does not count."""
    patterns = [only] if isinstance(only, str) else only
    plain = path.replace("_orig_mod.", "").removeprefix("_orig_mod")
    return patterns is None or any(fnmatchcase(plain, pattern) for pattern in patterns)


def distinct_blocks(blocks: Sequence[Block]) -> list[Block]:
    """The blocks without those that share all their weights with an earlier one."""
    found = {
        tuple((id(w.parameter), w.expert, w.rows) for w in block.weights.values()): block
        for block in reversed(blocks)
    }
    return list(found.values())[::-1]


def chosen_blocks(model: nn.Module, only: Only, blocks: Sequence[Block] | None) -> list[Block]:
    """The blocks that were found, or those that were passed, checked."""
    if blocks is None:
        return find_blocks(model, only)
    if only is not None:
        raise ValueError("pass only= or blocks=, not both")
    modules = dict(model.named_modules())
    own = {id(parameter) for parameter in model.parameters()}
    for block in blocks:
        stacked = any(getattr(w, "expert", None) is not None for w in block.weights.values())
        # an expert has no module of its own, but is one of those that a module holds
        place = block.path.rpartition(".")[0] if stacked else block.path
        if place not in modules:
            raise ValueError(f"the model has no module {block.path!r}")
        if block.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {block.kind!r}")
        for role, weight in block.weights.items():
            if role not in ROLES:
                raise ValueError(f"roles are some of {', '.join(ROLES)}, got {role!r}")
            if not isinstance(weight, Weight):
                raise TypeError(
                    f"{role} must be a taut.control.Weight, got {type(weight).__name__}"
                )
            if id(weight.parameter) not in own:
                raise ValueError(f"{weight} is not a parameter of this model")
            _check_place(weight)
            size = weight.parameter.shape[-1 if weight.transposed else -2]
            if weight.rows is not None and not 0 <= weight.rows[0] < weight.rows[1] <= size:
                raise ValueError(f"{weight} has {size} rows")
    return list(blocks)


def _check_place(weight: Weight) -> None:
    """Refuse a weight that is no matrix: a stack, or an expert without one."""
    shape = tuple(weight.parameter.shape)
    if weight.expert is None and len(shape) != 2:
        raise ValueError(f"{weight} has the shape {shape}, not that of a matrix; pass expert= too")
    if weight.expert is not None and (len(shape) != 3 or not 0 <= weight.expert < shape[0]):
        raise ValueError(f"{weight} is no matrix of a stack of the shape {shape}")


def _attention(path: str, module: nn.Module, parent: Any, names: Names) -> Block | None:
    found = find_attention(module, parent)
    if found is None:
        return None
    weights = {role: weight_of(each, names) for role, each in found.maps.items()}
    return Block(path, "attention", weights, number_of_heads(module))


def _feed_forward(path: str, module: nn.Module, parent: Any, names: Names) -> Block | None:
    found = find_feed_forward(module)
    if found is None:
        return None
    weights = {role: weight_of(each, names) for role, each in found.maps.items()}
    return Block(path, "feed-forward", weights)


def _sequential(path: str, module: nn.Module, names: Names) -> Block:
    found = sequential_maps(module)
    assert found is not None
    weights = {role: weight_of(each, names) for role, each in found.maps.items()}
    return Block(path, "feed-forward", weights)


def _experts(path: str, module: nn.Module, names: Names, only: Only) -> list[Block]:
    found = []
    for index, maps in enumerate(expert_maps(module)):
        place = f"{path}.{index}" if path else str(index)
        if matches(place, only):
            weights = {role: weight_of(each, names) for role, each in maps.items()}
            found.append(Block(place, "feed-forward", weights))
    return found


def _beside(path: str, modules: Mapping[str, nn.Module]) -> bool:
    """Whether attention stands beside a module, or beside what holds it, as in a transformer.

    Other sequences of linear maps, such as the head of a classifier, are not meant.
    """
    parent = path.rpartition(".")[0]
    around = [modules[place] for place in (parent, parent.rpartition(".")[0]) if path]
    return any(find_attention(child, each) for each in around for child in each.children())


def weight_of(found: LinearMap, names: Names) -> Weight:
    """The parameter that a map is kept in; refuses one that is computed anew in every pass."""
    parameter: Any = found.kept_weight
    if id(parameter) not in names:
        raise ValueError(
            "a weight is computed anew in every pass (parametrised) and cannot be constrained: "
            "remove the parametrisation, or leave its module out with only="
        )
    bias: Any = found.kept_bias
    name = names[id(parameter)]
    return Weight(
        name, parameter, found.transposed, found.rows, bias, found.bias_rows, found.expert
    )
