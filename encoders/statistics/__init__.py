"""Statistics of paired measurements, for perception and simulation."""
