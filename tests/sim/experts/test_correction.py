"""Integral control removes constant errors, and rotation vectors invert rotations."""

import numpy as np

from stringline.datasets.embodiments.transforms import pose, rotation_about
from stringline.sim.experts.motion import NEAR, Correction, rotation_vector, twist


def test_a_constant_error_is_corrected_and_a_large_one_is_left_alone() -> None:
    offset = pose((0.004, -0.003, 0.002), rotation_about((0.0, 0.6, 0.8), 0.05))
    correction = Correction()
    for _ in range(200):
        correction.update(twist(correction.transform @ offset))
    assert np.abs(twist(correction.transform @ offset)).max() < 1e-5
    far = Correction()
    far.update(np.array([NEAR[0] * 1.1, 0.0, 0.0, 0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(far.transform, np.eye(4))


def test_rotation_vectors_are_undone_by_rotations() -> None:
    for angle in (0.0, 1e-12, 0.3, 3.0):
        np.testing.assert_allclose(
            rotation_vector(rotation_about((0.0, 0.6, 0.8), angle)), angle * np.array([0, 0.6, 0.8])
        )
