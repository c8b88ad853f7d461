"""Things to handle, as parametric models."""
