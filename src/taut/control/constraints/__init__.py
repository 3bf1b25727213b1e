"""Constraints on attention during training, one a file."""
