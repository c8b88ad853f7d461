"""Episodes on a robot: in real time or in lock-step, approach and environment reset."""
