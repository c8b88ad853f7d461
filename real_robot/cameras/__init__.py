"""Cameras: a process for each, rings of pictures in shared memory, and who looks after them."""
