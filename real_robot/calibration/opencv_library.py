"""OpenCV and SciPy, optional libraries that only the calibration of cameras needs."""

import importlib
from types import ModuleType

# OpenCV 5.0.0 for Python lacked the solvers (opencv/opencv thread 29565); 4.x before 4.7 has other
# names for boards.
_OF_OPENCV = ("calibrateHandEye", "calibrateRobotWorldHandEye", "solvePnPGeneric", "aruco")
_OF_ARUCO = ("CharucoDetector", "CharucoBoard", "getPredefinedDictionary")
_INSTALL = 'Run: pip install "stringline[calibration]"'


def opencv() -> ModuleType:
    """Imports OpenCV.

    Raises:
        ValueError: OpenCV is not installed, cannot be loaded, or lacks a function.
    """
    library = _imported("cv2", "OpenCV")
    missing = [name for name in _OF_OPENCV if not hasattr(library, name)]
    if not missing:
        missing = [name for name in _OF_ARUCO if not hasattr(library.aruco, name)]
    if missing:
        version = getattr(library, "__version__", "of unknown version")
        raise ValueError(
            f"OpenCV {version} lacks {', '.join(missing)}, which calibration needs. {_INSTALL}"
        )
    return library


def optimisation() -> ModuleType:
    """Imports `scipy.optimize`."""
    return _imported("scipy.optimize", "SciPy")


def neighbours() -> ModuleType:
    """Imports `scipy.spatial`."""
    return _imported("scipy.spatial", "SciPy")


def _imported(module: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"Calibration needs {name}, which cannot be imported ({error}). {_INSTALL}"
        ) from error
