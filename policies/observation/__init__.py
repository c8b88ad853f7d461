"""Observation encoders: images, gripper positions, history and instruction as conditioning tokens."""
