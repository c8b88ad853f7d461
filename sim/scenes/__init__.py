"""Procedural rooms with labels: assets, placement, images, captions and clips of motions."""
