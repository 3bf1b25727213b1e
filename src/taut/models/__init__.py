"""What a PyTorch model looks like: loading, inputs, layout, weights, and captured attention."""

from taut._base.optional import needing as _needing

with _needing("taut.models needs PyTorch", "torch"):
    import torch as _torch  # noqa: F401

from taut.models._data_files.images import normalised_images
from taut.models._identity.describe import describe_model
from taut.models._identity.file_stamps import file_stamp, same_environment
from taut.models._identity.identity import identify
from taut.models._identity.tensor_digests import combined_digest, tensor_digest
from taut.models._tracking.key_product import Product
from taut.models._tracking.model_inputs import ModelInputs, batch_size
from taut.models.architectures.description import (
    Architecture,
    AttentionDescription,
    LayerDescription,
)
from taut.models.architectures.expert_maps import expert_maps
from taut.models.architectures.found_maps import AttentionMaps, FeedForwardMaps
from taut.models.architectures.linear_map import LinearMap, at_path
from taut.models.architectures.registry import (
    ARCHITECTURES,
    architecture,
    described_attention,
    described_layer,
    find_attention,
    find_feed_forward,
    find_projections,
    is_cross_attention,
    number_of_heads,
    query_key_norms,
    replaceable_attention,
    rms_norm,
)
from taut.models.attention_calls import Products, Scores, draw_seed, first_computation
from taut.models.attention_gradients import attention_gradients
from taut.models.attention_mode import AttentionMode, watched
from taut.models.attention_sums import AttentionGradient
from taut.models.batches import Batch, batches, describe_fit
from taut.models.blocks import ROLES, Block, Only, chosen_blocks, distinct_blocks, find_blocks
from taut.models.capture import capture, real_rows
from taut.models.capture_training import AttentionListener
from taut.models.captured import Captured, Missed
from taut.models.continuous_inputs import ContinuousInputs, read_continuous_inputs
from taut.models.controlled_attention import (
    ControlledAttention,
    controlled_attention,
    controlled_name,
)
from taut.models.disturbed_attention import DisturbedAttention
from taut.models.embedded import embedded_data, embedded_models
from taut.models.largest_scores import largest_scores
from taut.models.latent_attention import LatentAttention, find_latent_attention
from taut.models.layout import AttentionRows, attention_rows
from taut.models.load import load
from taut.models.masks import (
    HIDDEN,
    additive_mask,
    merged_mask,
    seeing_itself,
    visible_mask,
    without_blind_rows,
)
from taut.models.model_call import call_model, logits_of
from taut.models.preprocessing import identify_preprocessor, preprocessor_of
from taut.models.projection_norms import projection_norms
from taut.models.row_measurements import LIMIT, RowMeasurements, constant_key, measure_rows
from taut.models.run_unchanged import copied_tensors, has_lazy_parameters, unchanged
from taut.models.samples import Samples, read_samples
from taut.models.score_blocks import FusedScores, ScoreBlock, WrittenScores
from taut.models.softmax_capture import SoftmaxCapture
from taut.models.tokenizer import tokenizer_of
from taut.models.weight import Weight, joined_weights

__all__ = [
    "ARCHITECTURES",
    "HIDDEN",
    "LIMIT",
    "ROLES",
    "Architecture",
    "AttentionDescription",
    "AttentionGradient",
    "AttentionListener",
    "AttentionMaps",
    "AttentionMode",
    "AttentionRows",
    "Batch",
    "Block",
    "Captured",
    "ContinuousInputs",
    "ControlledAttention",
    "DisturbedAttention",
    "FeedForwardMaps",
    "FusedScores",
    "LatentAttention",
    "LayerDescription",
    "LinearMap",
    "Missed",
    "ModelInputs",
    "Only",
    "Product",
    "Products",
    "RowMeasurements",
    "Samples",
    "ScoreBlock",
    "Scores",
    "SoftmaxCapture",
    "Weight",
    "WrittenScores",
    "additive_mask",
    "architecture",
    "at_path",
    "attention_gradients",
    "attention_rows",
    "batch_size",
    "batches",
    "call_model",
    "capture",
    "chosen_blocks",
    "combined_digest",
    "constant_key",
    "controlled_attention",
    "controlled_name",
    "copied_tensors",
    "describe_fit",
    "describe_model",
    "described_attention",
    "described_layer",
    "distinct_blocks",
    "draw_seed",
    "embedded_data",
    "embedded_models",
    "expert_maps",
    "file_stamp",
    "find_attention",
    "find_blocks",
    "find_feed_forward",
    "find_latent_attention",
    "find_projections",
    "first_computation",
    "has_lazy_parameters",
    "identify",
    "identify_preprocessor",
    "is_cross_attention",
    "joined_weights",
    "largest_scores",
    "load",
    "logits_of",
    "measure_rows",
    "merged_mask",
    "normalised_images",
    "number_of_heads",
    "preprocessor_of",
    "projection_norms",
    "query_key_norms",
    "read_continuous_inputs",
    "read_samples",
    "real_rows",
    "replaceable_attention",
    "rms_norm",
    "same_environment",
    "seeing_itself",
    "tensor_digest",
    "tokenizer_of",
    "unchanged",
    "visible_mask",
    "watched",
    "without_blind_rows",
]
