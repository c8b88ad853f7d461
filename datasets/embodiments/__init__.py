"""Bodies: their joints, limits, cameras, kinematics and bare models."""
