"""Policies to and from checkpoints; checkpoints by name, with an index, or at an address."""
