"""lipschitz_like: a Lipschitz transformer of the size of another model."""

from __future__ import annotations

from typing import Any

from torch import nn

from taut.control.lipschitz.transformer import LipschitzTransformer

# Names of sizes in configurations of Hugging Face, by the names of ours.
_TEXT = {
    "width": ("n_embd", "hidden_size"),
    "layers": ("n_layer", "num_hidden_layers"),
    "heads": ("n_head", "num_attention_heads"),
    "hidden": ("n_inner", "intermediate_size"),
    "tokens": ("n_positions", "max_position_embeddings"),
}


def lipschitz_like(source: Any, *, target: float, **options: Any) -> LipschitzTransformer:
    """A new :class:`LipschitzTransformer` with the sizes of a model or a configuration.

    Weights are drawn anew: another map, with other constants, needs other weights.

    Parameters
    ----------
    source
        A model or configuration of Hugging Face such as GPT-2, BERT or ViT, or a
        ``torch.nn.TransformerEncoder``, for which ``words`` and ``tokens`` are given too.
    target
        The bound.
    **options
        Options of :class:`LipschitzTransformer` that the source does not say or that are to differ,
        such as ``activation="maxmin"``, and ``words`` or ``outputs``.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    >>> encoder = torch.nn.TransformerEncoder(layer, 3)
    >>> model = lipschitz_like(encoder, words=50, tokens=8, outputs=2, target=1.0)
    >>> len(model.blocks), model.certificate().upper <= 1.0
    (3, True)
    """
    if isinstance(source, nn.TransformerEncoder):
        found = _of_encoder(source)
    else:
        found = _of_config(getattr(source, "config", source))
    found |= options
    if "image" in found:
        found.setdefault("outputs", 10)
        return LipschitzTransformer.of_images(target=target, **found)
    missing = [name for name in ("words", "tokens") if name not in found]
    if missing:
        raise TypeError(
            f"{type(source).__name__} does not say how many {' and '.join(missing)} there are: "
            f"pass {', '.join(f'{name}=' for name in missing)}"
        )
    return LipschitzTransformer.of_text(target=target, **found)


def _of_encoder(source: nn.TransformerEncoder) -> dict[str, Any]:
    layer: Any = source.layers[0]
    return {
        "width": layer.self_attn.embed_dim,
        "heads": layer.self_attn.num_heads,
        "layers": len(source.layers),
        "hidden": layer.linear1.out_features,
    }


def _of_config(config: Any) -> dict[str, Any]:
    found = {
        name: value
        for name, theirs in _TEXT.items()
        if (value := _first(config, theirs)) is not None
    }
    missing = [name for name in ("width", "layers", "heads") if name not in found]
    if missing:
        raise TypeError(
            f"{type(config).__name__} has no sizes that are known ({', '.join(missing)}): pass a "
            "configuration of Hugging Face or a torch.nn.TransformerEncoder"
        )
    size = getattr(config, "image_size", None)
    if size is None:
        return {**found, "words": config.vocab_size}
    found.pop("tokens", None)
    return {**found, "image": (config.num_channels, size, size), "patch": config.patch_size}


def _first(config: Any, names: tuple[str, ...]) -> Any:
    return next((value for n in names if (value := getattr(config, n, None)) is not None), None)
