"""A camera of the emulated world, behind a local socket of the emulator."""

import socket

from stringline.real_robot.cameras.camera import CameraError, Frame, Identity
from stringline.real_robot.cameras.camera_settings import CameraSettings
from stringline.real_robot.ipc.array_messages import receive, send

_TIMEOUT_S = 5.0


def emulated_serial(name: str) -> str:
    """Returns the serial number of an emulated camera."""
    return f"emulated/{name}"


class EmulatedCamera:
    """Requests each image after the last one from the emulator, which does not wait for cameras.

    Args:
        settings: The source is the address of the images of the emulator.
    """

    def __init__(self, settings: CameraSettings) -> None:
        self._settings = settings
        self._number = 0
        self._connection: socket.socket | None = None

    def start(self) -> Identity:
        """Connects and requests one image."""
        connection = self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(self._settings.source)
        except OSError as error:
            raise CameraError(f"no emulator at {self._settings.source}: {error}.") from error
        height, width = self.frame().colour.shape[:2]
        self._number = 0
        return Identity(
            emulated_serial(self._settings.name),
            height,
            width,
            self._settings.hz,
            "of the emulated world",
        )

    def frame(self) -> Frame:
        """Waits for the next image."""
        assert self._connection is not None
        name = self._settings.name
        try:
            send(self._connection, {"camera": name, "after": self._number})
            header, arrays = receive(self._connection)
        except (OSError, ValueError) as error:
            raise CameraError(
                f"the emulator delivers no images: {error or type(error).__name__}."
            ) from error
        if "error" in header:
            raise CameraError(str(header["error"]))
        self._number = int(str(header["number"]))
        return Frame(
            number=self._number,
            captured=float(arrays[f"time/{name}"]),
            colour=arrays[f"rgb/{name}"],
            depth=arrays[f"depth/{name}"] if self._settings.depth else None,
            intrinsics=arrays.get(f"intrinsics/{name}"),
        )

    def close(self) -> None:
        """Disconnects."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
