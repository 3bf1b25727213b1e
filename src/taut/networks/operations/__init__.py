"""Bounds of the operations that networks are made of, one family a file."""
