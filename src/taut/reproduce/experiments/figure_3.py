"""Figure 3 of Nair 2025: softmaxes of attention in language models."""

from __future__ import annotations

from taut.reproduce.attention_ratios import attention_result, audited_model, audited_models
from taut.reproduce.data_sets import PROMPTS
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Result

MODELS = ("openai-community/gpt2-large", "Qwen/Qwen3-8B")
EMBEDDED = "embedded"  # the models that ship with taut, on text that they have not seen


def run(options: Options) -> Result:
    """Attention scores of language models on prompts."""
    models = options.models or ((EMBEDDED,) if options.quick and not options.data else MODELS)
    others = tuple(model for model in models if model != EMBEDDED)
    data = options.data or PROMPTS
    audits = audited_models(others, data, options, "text", full=100, quick=12, rows=4, size=4)
    if EMBEDDED in models:
        from taut.models import embedded_data, embedded_models

        texts = embedded_data(options.size(100, 12))
        for label, folder in embedded_models().items():
            found = audited_model(str(folder), label, texts, options, 4, 4)
            audits[label, "held-out Shakespeare"] = found
    near = Claim(
        "some ratios along random directions come near ½",
        "0.4999 for GPT-2 and 0.4995 for Qwen3, on PIQA", "", None,
    )  # fmt: skip
    title = "Figure 3 of Nair 2025: attention of language models"
    return attention_result("figure-3", title, audits, options, [near])
