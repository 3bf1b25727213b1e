"""Measure attention from time to time while a model is trained."""
