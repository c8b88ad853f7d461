"""Intel's library, which only its cameras need, and the library of the system that it needs in turn."""

import ctypes
import importlib
from types import ModuleType

from stringline.real_robot.cameras.camera import CameraError


def librealsense() -> ModuleType:
    """Imports pyrealsense2.

    Where the system has no libusb, the one that comes with the extra is loaded first.

    Raises:
        CameraError: It is not installed, or cannot be loaded.
    """
    try:
        return importlib.import_module("pyrealsense2")
    except ModuleNotFoundError as error:
        raise CameraError(
            "This needs pyrealsense2, which is not installed. Run: pip install "
            '"stringline[realsense]"'
        ) from error
    except ImportError as error:
        if "libusb" not in str(error):
            raise CameraError(f"pyrealsense2 cannot be loaded: {error}.") from error
    try:
        found = importlib.import_module("libusb_package").get_library_path()
        ctypes.CDLL(str(found), ctypes.RTLD_GLOBAL)
        return importlib.import_module("pyrealsense2")
    except (ImportError, OSError) as error:
        raise CameraError(
            f"pyrealsense2 needs libusb, which cannot be loaded ({error}). Install your system's "
            f"libusb-1.0, or run: "
            'pip install "stringline[realsense]"'
        ) from error
