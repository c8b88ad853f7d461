"""Grippers by configuration, at a controller's outputs or on a wire of their own."""
