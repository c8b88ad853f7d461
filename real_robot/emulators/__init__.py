"""Hardware as seen from the wire: the far ends of the drivers, for tests and for evaluation without a robot."""
