"""Grippers by configuration, at a controller's outputs or with a connection of their own."""
