"""Cameras of recorded data: their calibrations, and images of other sizes."""
