"""Transformers whose Lipschitz constant is known for all inputs, and kept while they train."""
