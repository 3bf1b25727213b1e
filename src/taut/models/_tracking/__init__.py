"""Follow entries of tensors through a forward pass, from the inputs to the attention weights."""
