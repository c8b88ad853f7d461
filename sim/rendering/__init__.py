"""Rendering: OpenGL contexts without a screen, images, depth and the depth sensor's noise."""
