"""Properties in VNN-LIB files: reading them, and what a network's verdict on them is."""
