"""Embodiments: joints, limits, cameras, kinematics and MJCF models of the robots."""
