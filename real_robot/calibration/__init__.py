"""Finds out where cameras sit, by a board or by the clouds of two cameras, and shows how well that is known.

What comes out is a file of `real_robot/cameras/calibration.py`, which every deployment looks at.
"""
