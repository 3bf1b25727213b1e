"""What everything stands on: arrays, checks, files, rounding, norms of matrices, and bounds."""
