"""Simulated robots: workcells, arms as composer entities, and their meshes."""
