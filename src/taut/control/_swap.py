"""Put attention with a Lipschitz constant into a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from taut._bound import Bound
from taut.control._cosine import CosineAttention
from taut.control._l2 import L2Attention
from taut.control._multihead import MultiheadLayer

Kind = Literal["cosine", "l2"]


@dataclass(frozen=True)
class Swapped:
    """One attention module that was replaced.

    Attributes
    ----------
    name
        Where it stands in the model.
    module
        The new layer; in a model of transformers, the attention module that it was and is.
    """

    name: str
    module: nn.Module = field(repr=False)
    _bound: Callable[..., Bound] = field(repr=False)

    def lipschitz(self, n: int, **options: Any) -> Bound:
        """Lipschitz constant with the weights of now, as that of the layers.

        In a model of transformers it is that of the attention with its output projection.
        """
        return self._bound(n, **options)


def swap_attention(model: nn.Module, kind: Kind, **options: Any) -> list[Swapped]:
    """Replace the attention of a model by attention with a Lipschitz constant, in place.

    Every ``nn.MultiheadAttention`` inside is replaced, and the attention of models of transformers
    of the families GPT-2, BERT, RoBERTa, XLM-RoBERTa, ELECTRA, ViT, Marian and BART. Weights are
    kept. The map is another one all the same: a trained model has to be trained on.

    Parameters
    ----------
    model
        The model, changed in place; nothing is changed if an error is raised.
    kind
        ``"cosine"`` (:class:`CosineAttention`) or ``"l2"`` (:class:`L2Attention`, self-attention
        only; keys become the queries).
    **options
        ``nu``, ``tau`` and ``eps`` of cosine attention.

    Returns
    -------
    list of Swapped
        What was replaced, each with a method ``lipschitz(n)``.

    Raises
    ------
    ValueError
        If nothing can be replaced, or something that is not supported is in the way.

    Notes
    -----
    Models of transformers keep their modules and state dict; only the attention function is another
    (``"taut-cosine"`` or ``"taut-l2"`` of its AttentionInterface). The options are kept in
    ``config.taut_attention`` and saved with the model; after ``from_pretrained`` swap again, and
    the options are read from there unless given. Attention weights are not returned. Cosine
    attention works with caches; L2 attention does not (pass ``use_cache=False``), and leaves the
    weights of the keys unused.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)
    >>> swapped = swap_attention(model, "cosine", eps=0.5)
    >>> swapped
    [Swapped(name='self_attn')]
    >>> swapped[0].lipschitz(16, mask="none")
    Bound(at most ..., l2, all inputs, up to 16 tokens, no mask; scsa-cov, spectral, chain)
    """
    from taut.control import _swap_hf

    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if kind not in ("cosine", "l2"):
        raise ValueError(f"kind must be cosine or l2, got {kind!r}")
    if kind == "l2" and options:
        raise TypeError(f"L2 attention has no options, got {', '.join(options)}")
    found = _swap_hf.find(model, kind, options)  # raises before anything is changed
    if kind == "l2":
        _no_decoders(model)
    make: type[CosineAttention | L2Attention] = CosineAttention if kind == "cosine" else L2Attention
    made = replacements(model, make, options)
    if not (found or made):
        raise ValueError(
            "no attention to swap: neither nn.MultiheadAttention nor a supported model of "
            f"transformers is in this {type(model).__name__}"
        )
    put(model, made)
    return [Swapped(name, layer, layer.lipschitz) for name, layer in made.items()] + [
        swapped for part in found for swapped in part()
    ]


Layer = TypeVar("Layer", bound=MultiheadLayer)


def replacements(model: nn.Module, make: type[Layer], options: dict[str, Any]) -> dict[str, Layer]:
    """New layers for all places of nn.MultiheadAttention; a shared one stays shared."""
    made: dict[str, Layer] = {}
    known: dict[int, Layer] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.MultiheadAttention):
            if not name:
                raise ValueError(
                    "an nn.MultiheadAttention cannot become another module in place: give what "
                    "holds it"
                )
            if id(module) not in known:
                known[id(module)] = _converted(name, module, make, options)
            made[name] = known[id(module)]
    return made


def put(model: nn.Module, made: Mapping[str, nn.Module]) -> None:
    """Each module to its place."""
    for name, layer in made.items():
        place, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(place), attribute, layer)
    for module in model.modules():
        if made and isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # that is for torch's own kernel


def _no_decoders(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.TransformerDecoderLayer):
            raise ValueError(
                f"{name or 'the model'} attends to another sequence, where L2 attention has no "
                'Lipschitz constant: take "cosine", or swap self_attn alone'
            )


def _converted(
    name: str, module: nn.MultiheadAttention, make: type[Layer], options: dict[str, Any]
) -> Layer:
    """The layer with the parameters of torch's themselves, where it has the same."""
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise ValueError(f"{name} has kdim, vdim, add_bias_kv or add_zero_attn: not supported")
    if "forward" in vars(module):
        raise ValueError(f"{name} is watched by a constraint or a monitor: swap or cap it before")
    weight = module.in_proj_weight
    layer = make(
        module.embed_dim,
        module.num_heads,
        module.dropout,
        module.in_proj_bias is not None,
        module.batch_first,
        weight.device,
        weight.dtype,
        **options,
    )
    if layer.in_proj_weight.shape == weight.shape:
        layer.in_proj_weight, layer.in_proj_bias = weight, module.in_proj_bias
        layer.out_proj.weight, layer.out_proj.bias = module.out_proj.weight, module.out_proj.bias
    else:
        layer.load_state_dict(_without_keys(module))
        layer.in_proj_weight.requires_grad_(weight.requires_grad)
        layer.out_proj.requires_grad_(module.out_proj.weight.requires_grad)
    return layer.train(module.training)


def _without_keys(module: nn.MultiheadAttention) -> dict[str, Tensor]:
    """Wq over Wv; what the bias of the values adds goes into that of the output."""
    with torch.no_grad():
        query, _, value = module.in_proj_weight.chunk(3)
        state = {
            "in_proj_weight": torch.cat([query, value]),
            "out_proj.weight": module.out_proj.weight,
        }
        if module.in_proj_bias is not None:
            shift = module.out_proj.weight @ module.in_proj_bias.chunk(3)[2]
            state["out_proj.bias"] = module.out_proj.bias + shift
    return state
