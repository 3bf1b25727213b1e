"""Networks in ONNX files: reading, running, and the rule that bounds them."""
