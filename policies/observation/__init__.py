"""Observation encoders: images, grippers, history and instructions to conditioning tokens."""
