"""Consequence: by how much the prediction of a model changes if one of its heads is disturbed.

``estimate`` predicts it for every head from a few backward passes, ``interventions`` disturbs one
head after the other and measures it.
"""
