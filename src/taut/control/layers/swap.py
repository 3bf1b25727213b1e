"""Replace the attention of a model by attention with a Lipschitz constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from taut.control.layers.cosine import CosineAttention
from taut.control.layers.l2 import L2Attention
from taut.control.layers.multihead import MultiheadLayer
from taut.control.layers.swap_hugging_face import Kind, hugging_face_swaps
from taut.control.layers.swapped import Swapped


def swap_attention(model: nn.Module, kind: Kind, **options: Any) -> list[Swapped]:
    """Replace the attention of a model by attention with a Lipschitz constant, in place.

    Every ``nn.MultiheadAttention`` inside is replaced, and the attention of models of transformers
    of the families GPT-2, BERT, RoBERTa, XLM-RoBERTa, ELECTRA, ViT, Marian and BART. Weights are
    kept, but they now compute another map: a trained model has to be trained further.

    Parameters
    ----------
    model
        The model, changed in place; nothing is changed if an error is raised.
    kind
        ``"cosine"`` (:class:`CosineAttention`) or ``"l2"`` (:class:`L2Attention`, self-attention
        only; keys become the queries).
    **options
        ``nu``, ``scale`` and ``epsilon`` of cosine attention.

    Returns
    -------
    list of Swapped
        The modules that were replaced, each with a method ``lipschitz(n)``.

    Raises
    ------
    ValueError
        If nothing can be replaced, or if some attention is not supported.

    Notes
    -----
    Models of transformers keep their modules and state dict; only the attention function changes
    (to ``"taut-cosine"`` or ``"taut-l2"`` of the AttentionInterface). The options are kept in
    ``config.taut_attention`` and saved with the model; after ``from_pretrained`` swap again, and
    the options are read from there unless given. Attention weights are not returned. Cosine
    attention works with caches; L2 attention does not (pass ``use_cache=False``), and leaves the
    weights of the keys unused.

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)
    >>> swapped = swap_attention(model, "cosine", epsilon=0.5)
    >>> swapped
    [Swapped(name='self_attn')]
    >>> swapped[0].lipschitz(16, mask="none")
    Bound(at most ..., l2, all inputs, up to 16 tokens, no mask; scsa-cov, spectral, chain)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if kind not in ("cosine", "l2"):
        raise ValueError(f"kind must be cosine or l2, got {kind!r}")
    if kind == "l2" and options:
        raise TypeError(f"L2 attention has no options, got {', '.join(options)}")
    found = hugging_face_swaps(model, kind, options)  # raises before anything is changed
    if kind == "l2":
        _no_decoders(model)
    make: type[CosineAttention | L2Attention] = CosineAttention if kind == "cosine" else L2Attention
    made = replacements(model, make, options)
    if not (found or made):
        raise ValueError(
            f"no attention to swap: this {type(model).__name__} contains neither "
            "nn.MultiheadAttention nor a supported model of transformers"
        )
    put(model, made)
    return [Swapped(name, layer, layer.lipschitz) for name, layer in made.items()] + [
        swapped for part in found for swapped in part()
    ]


Replacement = TypeVar("Replacement", bound=MultiheadLayer)


def replacements(
    model: nn.Module, make: type[Replacement], options: dict[str, Any]
) -> dict[str, Replacement]:
    """New layers for every nn.MultiheadAttention; a shared module stays shared."""
    made: dict[str, Replacement] = {}
    known: dict[int, Replacement] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.MultiheadAttention):
            if not name:
                raise ValueError(
                    "an nn.MultiheadAttention cannot be replaced in place: pass the module that "
                    "holds it"
                )
            if id(module) not in known:
                known[id(module)] = _converted(name, module, make, options)
            made[name] = known[id(module)]
    return made


def put(model: nn.Module, made: Mapping[str, nn.Module]) -> None:
    """Put each module into its place."""
    for name, layer in made.items():
        place, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(place), attribute, layer)
    for module in model.modules():
        if made and isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # nested tensors are for torch's own kernel


def _no_decoders(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.TransformerDecoderLayer):
            raise ValueError(
                f"{name or 'the model'} attends to another sequence, where L2 attention has no "
                'Lipschitz constant: use "cosine", or swap self_attn alone'
            )


def _converted(
    name: str, module: nn.MultiheadAttention, make: type[Replacement], options: dict[str, Any]
) -> Replacement:
    """A layer that holds the parameters of torch's module, or copies if shapes differ."""
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise ValueError(f"{name} has kdim, vdim, add_bias_kv or add_zero_attn: not supported")
    if "forward" in vars(module):
        raise ValueError(
            f"a constraint or monitor listens to {name}: swap or cap the attention first"
        )
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
    """Wq above Wv; the bias of the values moves into the bias of the output."""
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
