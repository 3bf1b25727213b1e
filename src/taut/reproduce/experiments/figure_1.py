"""Figure 1 of Nair 2025: softmaxes of attention in vision transformers."""

from __future__ import annotations

from taut.reproduce.attention_ratios import attention_result, audited_models
from taut.reproduce.data_sets import IMAGES
from taut.reproduce.options import Options
from taut.reproduce.result import Result

MODELS = (
    "google/vit-base-patch16-224",
    "google/vit-large-patch16-224",
    "google/vit-huge-patch14-224-in21k",
)


def run(options: Options) -> Result:
    """Attention scores of vision transformers on images."""
    models, data = options.models or MODELS, options.data or IMAGES
    audits = audited_models(models, data, options, "images", full=100, quick=4, rows=8, size=1)
    return attention_result(
        "figure-1", "Figure 1 of Nair 2025: attention of vision transformers", audits, options, []
    )
