"""Policies to and from checkpoints, and the checkpoint that ships with the package."""
