"""Emulated hardware that speaks the real protocols, for tests and for evaluation without a robot."""
