"""Find the attention and feed-forward weights of a model by how its modules are built."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from torch import nn

from taut.audit._layout import heads_of
from taut.control._multihead import MultiheadLayer
from taut.control._weights import Weight, fused

_QUERIES = (  # names of the projections in a module: query, key, value, output
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("q_proj", "k_proj", "v_proj", "dense"),
    ("query_proj", "key_proj", "value_proj", "dense"),
    ("q", "k", "v", "o"),
    ("wq", "wk", "wv", "wo"),
    ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("query", "key", "value", "dense"),
)
_FUSED = (  # names of one matrix for queries, keys and values, and of the output
    ("query_key_value", "dense"),
    ("qkv_proj", "o_proj"),
    ("Wqkv", "Wo"),
    ("qkv", "proj"),
)
_FORWARDS = (  # names of the two linear maps, the second last; gates count as first maps
    ("linear1", "linear2"),
    ("fc1", "fc2"),
    ("lin1", "lin2"),
    ("c_fc", "c_proj"),
    ("gate_proj", "up_proj", "down_proj"),
    ("wi_0", "wi_1", "wo"),
    ("wi", "wo"),
    ("weights_in", "weights_out"),
    ("intermediate_dense", "output_dense"),
    ("ffn", "ffn_output"),
    ("dense_h_to_4h", "dense_4h_to_h"),
)


ROLES = ("query", "key", "value", "output", "gate", "first", "second", "query-key-value")
KINDS = ("attention", "feed-forward")
Only = str | Sequence[str] | None


class Block(NamedTuple):
    """The weights of one attention or one feed-forward network.

    ``weights`` has the keys query, key, value and output, or first (gate) and second; where they
    are fused in an order that differs between models, query-key-value.
    """

    path: str
    kind: str  # attention or feed-forward
    weights: dict[str, Weight]
    heads: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.kind}, {', '.join(map(str, self.weights.values()))}"


def find_blocks(model: nn.Module, only: Only = None) -> list[Block]:
    """The attention and feed-forward weights of a model, in its order.

    Parameters
    ----------
    model
        Of ``torch.nn`` or Hugging Face, or built alike: modules are known by the names of their
        linear maps.
    only
        A pattern such as ``"encoder.*"``, or several: blocks whose path matches none are left out.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    modules = dict(model.named_modules())
    found: list[Block] = []
    for path, module in modules.items():
        for make in (_attention, _feed_forward):
            block = make(path, module, modules, names) if matches(path, only) else None
            if block is not None:
                found.append(block)
    if not found:
        what = f" that matches {only!r}" if only else ""
        raise ValueError(
            f"no attention or feed-forward network{what} was found; give blocks= by hand"
        )
    return found


def matches(path: str, only: Only) -> bool:
    """Whether a path is among those asked for; compiled models put a word into it."""
    patterns = [only] if isinstance(only, str) else only
    plain = path.replace("_orig_mod.", "").removeprefix("_orig_mod")
    return patterns is None or any(fnmatchcase(plain, pattern) for pattern in patterns)


def distinct(blocks: Sequence[Block]) -> list[Block]:
    """One of each where layers share all of their weights, which count once."""
    found = {
        tuple((id(weight.parameter), weight.rows) for weight in block.weights.values()): block
        for block in reversed(blocks)
    }
    return list(found.values())[::-1]


def chosen_blocks(model: nn.Module, only: Only, blocks: Sequence[Block] | None) -> list[Block]:
    """Those found, or those given by hand, checked."""
    if blocks is None:
        return find_blocks(model, only)
    if only is not None:
        raise ValueError("give only= or blocks=, not both")
    modules = dict(model.named_modules())
    own = {id(parameter) for parameter in model.parameters()}
    for block in blocks:
        if block.path not in modules:
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
                raise ValueError(f"{weight} is no parameter of this model")
            size = weight.parameter.shape[1 if weight.turned else 0]
            if weight.rows is not None and not 0 <= weight.rows[0] < weight.rows[1] <= size:
                raise ValueError(f"{weight} has {size} rows")
    return list(blocks)


Modules = Mapping[str, nn.Module]
Names = Mapping[int, str]
Make = Callable[[str, nn.Module, Modules, Names], Block | None]


def _attention(path: str, module: Any, modules: Modules, names: Names) -> Block | None:
    heads = heads_of(module)
    if isinstance(module, (nn.MultiheadAttention, MultiheadLayer)):
        return Block(path, "attention", dict(_torch_attention(module, names)), heads)
    if hasattr(module, "c_attn") and hasattr(module, "c_proj"):
        return Block(path, "attention", dict(_gpt2_attention(module, names)), heads)
    for inner, out in _FUSED:
        both = (getattr(module, inner, None), getattr(module, out, None))
        if all(map(_linear, both)):
            whole = zip(("query-key-value", "output"), both, strict=True)
            return Block(path, "attention", {k: _weight(m, names) for k, m in whole}, heads)
    for *given, out in _QUERIES:
        if not all(_linear(getattr(module, name, None)) for name in given):
            continue
        output = getattr(module, out, None) or _beside(path, modules)
        if not _linear(output):
            continue
        maps = zip(("query", "key", "value"), given, strict=True)
        weights = {role: _weight(getattr(module, name), names) for role, name in maps}
        return Block(path, "attention", {**weights, "output": _weight(output, names)}, heads)
    return None


def _beside(path: str, modules: Modules) -> Any:
    """BERT and ViT keep the output map in a module beside: attention.output.dense."""
    parent = modules.get(path.rpartition(".")[0])
    return getattr(getattr(parent, "output", None), "dense", None)


def _torch_attention(
    module: nn.MultiheadAttention | MultiheadLayer, names: Names
) -> Iterator[tuple[str, Weight]]:
    roles: tuple[str, ...] = ("query", "key", "value")
    if module.in_proj_weight is not None:
        inner: Any = module.in_proj_weight
        if len(inner) == 2 * module.embed_dim:  # L2 attention has no keys of its own
            roles = ("query", "value")
        sizes = [module.embed_dim] * len(roles)
        parts = fused(_name(inner, names), inner, sizes, bias=module.in_proj_bias)
        yield from zip(roles, parts, strict=True)
    else:
        width = module.embed_dim
        for i, (role, name) in enumerate(zip(roles, ("q", "k", "v"), strict=True)):
            parameter: Any = getattr(module, f"{name}_proj_weight")
            own = (i * width, (i + 1) * width)
            bias = module.in_proj_bias
            yield role, Weight(_name(parameter, names), parameter, bias=bias, bias_rows=own)
    outer: Any = module.out_proj.weight
    yield "output", Weight(_name(outer, names), outer)


def _gpt2_attention(module: Any, names: Names) -> Iterator[tuple[str, Weight]]:
    inner = module.c_attn.weight
    width = module.c_proj.weight.shape[0]
    if hasattr(module, "q_attn"):  # cross-attention
        yield "query", _weight(module.q_attn, names)
        roles = ["key", "value"]
    else:
        roles = ["query", "key", "value"]
    turned = _turned(module.c_attn)
    if inner.shape[1 if turned else 0] != width * len(roles):  # heads share their keys
        yield "query-key-value", _weight(module.c_attn, names)
        yield "output", _weight(module.c_proj, names)
        return
    parts = fused(
        _name(inner, names), inner, [width] * len(roles), turned=turned, bias=module.c_attn.bias
    )
    yield from zip(roles, parts, strict=True)
    yield "output", _weight(module.c_proj, names)


def _feed_forward(path: str, module: Any, modules: Modules, names: Names) -> Block | None:
    for given in _FORWARDS:
        maps = [getattr(module, name, None) for name in given]
        if all(map(_linear, maps)):
            return _forward_block(path, maps, names)
    inner = getattr(getattr(module, "intermediate", None), "dense", None)
    output = getattr(getattr(module, "output", None), "dense", None)
    if _linear(inner) and _linear(output):
        return _forward_block(path, [inner, output], names)
    return None


def _forward_block(path: str, maps: list[Any], names: Names) -> Block:
    roles = ("first", "second") if len(maps) == 2 else ("gate", "first", "second")
    weights = {role: _weight(m, names) for role, m in zip(roles, maps, strict=True)}
    return Block(path, "feed-forward", weights)


def _linear(module: Any) -> bool:
    return getattr(getattr(module, "weight", None), "ndim", 0) == 2 and isinstance(
        module, nn.Module
    )


def _weight(module: Any, names: Names) -> Weight:
    bias = getattr(module, "bias", None)
    return Weight(_name(module.weight, names), module.weight, _turned(module), bias=bias)


def _name(parameter: nn.Parameter, names: Names) -> str:
    if id(parameter) not in names:
        raise ValueError(
            "a weight is computed anew in every pass (parametrised), so that it cannot be "
            "constrained: remove the parametrisation, or leave its module out with only="
        )
    return names[id(parameter)]


def _turned(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D"
