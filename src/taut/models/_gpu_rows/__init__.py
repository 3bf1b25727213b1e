"""Numbers of the rows of attention from queries and keys on a GPU, without a matrix of scores."""
