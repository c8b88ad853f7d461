"""Calibration of cameras by a board or by the point clouds of two cameras."""
