"""Training data, evaluation during training and the run directory of `stringline-train`."""
