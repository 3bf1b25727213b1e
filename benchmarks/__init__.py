"""Benchmarks: ratios to named peers in the same run, because machines are noisy."""
