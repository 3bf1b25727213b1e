"""Attention layers with a Lipschitz constant, and how to put them into a model."""
