"""Transformers whose Lipschitz constant is known for all inputs, and kept small while they train."""
