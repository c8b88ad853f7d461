"""The optional libraries of the calibration."""

import sys

import pytest

from stringline.real_robot.calibration.opencv_library import opencv, optimisation


def test_without_the_libraries_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cv2", None)
        with pytest.raises(
            ValueError, match=r'needs OpenCV, .*pip install "stringline\[calibration\]"'
        ):
            opencv()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "scipy.optimize", None)
        with pytest.raises(
            ValueError, match=r'needs SciPy, .*pip install "stringline\[calibration\]"'
        ):
            optimisation()
    with monkeypatch.context() as older:
        older.delattr(opencv(), "calibrateHandEye")
        with pytest.raises(
            ValueError,
            match=r"OpenCV [\d.]+ lacks calibrateHandEye, which calibration needs",
        ):
            opencv()
