"""Bound propagation: affine bounds of a network near an input, carried backwards row by row."""
