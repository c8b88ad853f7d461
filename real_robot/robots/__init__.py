"""Robots from a configuration: the backends of arms, their emulators and drivers."""
