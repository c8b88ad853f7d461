"""Coordinates of patches: pixels, depth, and metric positions in the base frame."""
