"""Cameras: one process each, rings of images in shared memory, and checks."""
