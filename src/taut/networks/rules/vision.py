"""Rules for image models, from pixels through patches to hidden states or classes."""

from __future__ import annotations

from typing import Any

import torch

from taut.networks.interpreter import Interpreter
from taut.networks.operations.linear import affine
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.hugging_face import named


def _call_pixels(module: Any, x: Any) -> Any:
    return module(x)


@register(
    *named("vit", "ViTPatchEmbeddings"), *named("dinov2", "Dinov2PatchEmbeddings"),
    call=_call_pixels,
)  # fmt: skip
def _patches(run: Interpreter, module: Any, x: Region) -> Region:
    """A convolution whose windows do not overlap is one linear map for each patch."""
    convolution = module.projection
    if len(x.image) != 3 or x.image[0] != convolution.in_channels:
        raise ValueError(
            f"{type(module).__name__} takes images of {convolution.in_channels} channels, got "
            f"{x.image or (x.tokens, x.width)}"
        )
    plain = convolution.groups == 1 and tuple(convolution.dilation) == (1, 1)
    if convolution.stride != convolution.kernel_size or any(convolution.padding) or not plain:
        raise TypeError("a rule exists for patches that neither overlap nor are padded")
    return run.patches(x, convolution.weight, convolution.bias)


def _embedded(run: Interpreter, module: Any, x: Region) -> Region:
    """The class token followed by the patches, with positions added."""
    y = run(module.patch_embeddings, x, "patch_embeddings")
    places = _positions(run, module, y.tokens + 1, x.image)
    token = run.tensor(module.cls_token)[0] + places[:, :1][0]
    return run.prepend(run.shift(y, places[:, 1:]), token)


def _positions(run: Interpreter, module: Any, tokens: int, image: tuple[int, ...]) -> torch.Tensor:
    """Position embeddings, interpolated as the module does for this size of image."""
    _, height, width = image
    fixed = module.position_embeddings
    like = torch.empty(1, tokens, fixed.shape[-1], dtype=fixed.dtype, device=fixed.device)
    if type(module).__name__ == "Dinov2Embeddings":
        fixed = module.interpolate_pos_encoding(like, height, width)
    elif fixed.shape[1] != tokens:
        raise ValueError(
            f"the model has {fixed.shape[1]} positions, an image of {height} by {width} makes "
            f"{tokens}"
        )
    return run.tensor(fixed)


@register(*named("vit", "ViTEmbeddings"), *named("dinov2", "Dinov2Embeddings"), call=_call_pixels)
def _embeddings(run: Interpreter, module: Any, x: Region) -> Region:
    run.explain("patches and positions", "chain")
    return run(module.dropout, _embedded(run, module, x), "dropout")


@register(*named("vit", "ViTModel"), call=_call_pixels)
def _vit(run: Interpreter, module: Any, x: Region) -> Region:
    run.explain("chain", "chain")
    x = run(module.embeddings, x, "embeddings")
    for index, layer in enumerate(module.layers):
        x = run(layer, x, f"layers.{index}")
    return run(module.layernorm, x, "layernorm")


@register(*named("dinov2", "Dinov2Encoder"), call=_call_pixels)
def _dinov2_encoder(run: Interpreter, module: Any, x: Region) -> Region:
    run.explain("chain", "chain")
    for index, layer in enumerate(module.layer):
        x = run(layer, x, f"layer.{index}")
    return x


@register(*named("dinov2", "Dinov2Model"), call=_call_pixels)
def _dinov2(run: Interpreter, module: Any, x: Region) -> Region:
    run.explain("chain", "chain")
    x = run(module.embeddings, x, "embeddings")
    x = run(module.encoder, x, "encoder")
    return run(module.layernorm, x, "layernorm")


@register(*named("vit", "ViTForImageClassification"), call=_call_pixels)
def _vit_classifier(run: Interpreter, module: Any, x: Region) -> Region:
    run.explain("chain", "chain")
    x = run.first(run(module.vit, x, "vit"))
    return run.linear(x, *affine(module.classifier), "classifier")


@register(*named("dinov2", "Dinov2ForImageClassification"), call=_call_pixels)
def _dinov2_classifier(run: Interpreter, module: Any, x: Region) -> Region:
    """The class token beside the mean of the patches."""
    run.explain("chain", "chain")
    x = run(module.dinov2, x, "dinov2")
    both = run.beside(run.first(x), run.mean(run.after(x, 1), "mean of patches"))
    return run.linear(both, *affine(module.classifier), "classifier")
