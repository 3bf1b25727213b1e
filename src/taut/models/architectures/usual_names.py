"""Maps by the names that most models use, for modules of classes that no file describes.

What is written here must be told by its names alone; a model with other names gets a file.
"""

from __future__ import annotations

import re

from taut.models.architectures.description import AttentionDescription, FeedForwardDescription
from taut.models.architectures.gpt2 import GPT2
from taut.models.architectures.torch_nn import TORCH_NN

_SEPARATE = (  # query, key, value, output
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("q_proj", "k_proj", "v_proj", "dense"),
    ("query_proj", "key_proj", "value_proj", "dense"),
    ("q", "k", "v", "o"),
    ("wq", "wk", "wv", "wo"),
    ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("query", "key", "value", "dense"),
)
_FUSED = (  # one matrix for queries, keys and values, in an order that differs; output
    ("query_key_value", "dense"),
    ("qkv_proj", "o_proj"),
    ("Wqkv", "Wo"),
    ("qkv", "proj"),
)
_BESIDE = "..output.dense"  # as BERT has it

ATTENTION = (
    TORCH_NN.attention[0],  # taut's own layers
    GPT2.attention[0],
    *(AttentionDescription(fused=fused, output=output) for fused, output in _FUSED),
    *(
        AttentionDescription(query=query, key=key, value=value, output=place)
        for query, key, value, output in _SEPARATE
        for place in (output, _BESIDE)
    ),
)

FEED_FORWARD = (
    FeedForwardDescription("linear1", "linear2"),
    FeedForwardDescription("fc1", "fc2"),
    FeedForwardDescription("lin1", "lin2"),
    FeedForwardDescription("c_fc", "c_proj"),
    FeedForwardDescription("up_proj", "down_proj", gate="gate_proj"),
    FeedForwardDescription("wi_1", "wo", gate="wi_0"),
    FeedForwardDescription("wi", "wo"),
    FeedForwardDescription("weights_in", "weights_out"),
    FeedForwardDescription("intermediate_dense", "output_dense"),
    FeedForwardDescription("ffn", "ffn_output"),
    FeedForwardDescription("dense_h_to_4h", "dense_4h_to_h"),
    FeedForwardDescription("intermediate.dense", "output.dense"),
)

QUERY_KEY_NORM = re.compile(r"(q|k|query|key)_?(layer_?|rms_?)?(norm|ln)")

HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads")
