"""What identifies a model and what it is run on: weights, configuration, code, preprocessing."""
