"""The safety filter: its stages, limits, clearance and reasons."""
