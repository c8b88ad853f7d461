"""Probes of a trained policy: attention over the scene and aim at objects."""
