"""Every configuration that transformers can build: each head equals what the model gives out.

Each is equal, is listed here because it gives out something else, has no softmax attention, or is
reported as missed. Anything else is a fault of the capture.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import taut.models._tracking.origin_tracker  # noqa: E402
from taut import audit  # noqa: E402
from taut.models import attention_rows, number_of_heads  # noqa: E402
from tests.helpers.architectures import attentions  # noqa: E402
from tests.helpers.zoo import built, kinds  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

# What a model gives out is not the weights of its heads.
OTHER = {
    "cpmant": "leaves out the rows of its prompt",
    "groupvit": "gives out how patches are grouped",
    "minimax": "gives out linear attention beside that by a softmax",
    "pixtral": "joins all images to one sequence",
    "prophetnet": "gives out scores of its encoder and parts of its decoder's rows",
    "sam2_hiera_det_model": "gives out hidden states",
    "sam2_vision_model": "gives out hidden states",
    "squeezebert": "gives out scores",
    "t5gemma2": "cuts rows over both sequences in two",
    "wavlm": "gives out the mean of all heads",
}
# Nothing in them is a softmax over keys.
_CONVOLUTIONS = (
    "bit", "convnext", "convnextv2", "dinov3_convnext", "efficientnet", "focalnet", "hgnet_v2",
    "mobilenet_v1", "mobilenet_v2", "poolformer", "regnet", "resnet", "textnet", "univnet",
)  # fmt: skip
_RECURRENT = ("falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm")
NO_ATTENTION = {
    **dict.fromkeys(_CONVOLUTIONS, "convolutions"),
    **dict.fromkeys(_RECURRENT, "recurrent"),
    "fnet": "Fourier transforms",
    "jamba": "recurrent in its first four layers",
    "mra": "exponentials of blocks at several resolutions, never a softmax",
    "yoso": "Bernoulli weights instead of a softmax",
}


def rows_of(model, inputs):
    """The weights of all softmaxes, arranged, and what was missed."""
    modules, found, missed = dict(model.named_modules()), [], []

    def visit(seen):
        try:
            rows = attention_rows(seen, watch.inputs, number_of_heads(modules.get(seen.path)))
            found.append(torch.nan_to_num(rows.weights.float()).clone())
        except ValueError as error:
            missed.append((seen.path, str(error)))

    with torch.no_grad(), audit.capture(model, visit) as watch:
        model(**inputs)
    return found, missed + [tuple(each) for each in watch.missed]


def given_out(model, inputs):
    """The weights that a model gives out, if it does."""
    try:
        with torch.no_grad():
            return list(_tensors(attentions(model(**inputs, output_attentions=True))))
    except Exception:  # it has no such option
        return []


def _tensors(given):
    """Tensors in lists and dicts, as models with several kinds of attention give them out."""
    if isinstance(given, torch.Tensor):
        yield given
    elif given is not None:
        for part in given.values() if isinstance(given, dict) else given:
            yield from _tensors(part)


def alike(mine, theirs):
    """Equal on every head, in whatever layout, up to the column of a sink."""
    theirs = torch.nan_to_num(theirs.float())
    return any(_equal(mine, form) for form in _forms(theirs, len(mine)))


def _equal(mine, theirs):
    keys = theirs.shape[-1]
    if mine.shape[:-1] != theirs.shape[:-1] or mine.shape[-1] not in (keys, keys + 1):
        return False
    return torch.allclose(mine[..., :keys], theirs, atol=1e-5)


def _forms(theirs, samples):
    """Weights as (samples, heads, queries, keys), if they are given out in one of these layouts."""
    whole = theirs.shape[0] % samples == 0
    if theirs.ndim == 3 and whole:  # (samples·heads, ...)
        yield theirs.unflatten(0, (samples, -1))
    if theirs.ndim == 4:
        yield theirs
        yield theirs.transpose(1, 2)
        if whole:  # (samples·windows, heads, ...)
            yield theirs.unflatten(0, (samples, -1)).transpose(1, 2).flatten(2, 3)
    if theirs.ndim == 5:
        yield theirs.flatten(2, 3)  # (samples, heads, blocks, ...)
        yield theirs.transpose(1, 2).flatten(2, 3)  # (samples, blocks, heads, ...)
        yield theirs.flatten(3).transpose(1, 2)  # (samples, queries, heads, levels, points)


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_every_configuration(kind, monkeypatch):
    monkeypatch.setattr(taut.models._tracking.origin_tracker, "STRICT", True)
    try:
        model, inputs = built(kind)
    except ValueError as error:
        pytest.skip(f"{kind} cannot be built small: {error}")
    torch.manual_seed(1)
    found, missed = rows_of(model, inputs)
    torch.manual_seed(1)
    wanted = given_out(model, inputs)
    if kind in NO_ATTENTION:
        assert (found, missed) == ([], []), NO_ATTENTION[kind]
    elif kind not in OTHER:
        for weights in wanted:
            match = [i for i, rows in enumerate(found) if alike(rows, weights)]
            assert match or missed, tuple(weights.shape)
            if match:
                found.pop(match[0])
        assert wanted or found or missed, "nothing was seen"
