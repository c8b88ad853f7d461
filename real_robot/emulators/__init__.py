"""Emulated hardware with the real protocols, for tests and evaluation without a robot."""
