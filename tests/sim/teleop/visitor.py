"""A visitor of a page of viser without a browser: it speaks the messages of one."""

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import viser
import zstandard
from viser import _messages
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

REPEAT_S = 1 / 30  # A browser repeats a key that is held down.
PATIENCE_S = 20.0


class Visitor:
    """A visitor; a context manager.

    Attributes:
        elements: Identifiers of commands and elements by their label.
        texts: Newest text of each status element.
    """

    def __init__(self, port: int) -> None:
        self._socket = connect(
            f"ws://127.0.0.1:{port}",
            proxy=None,
            subprotocols=[Subprotocol(f"viser-v{viser.__version__}")],
            max_size=None,
        )
        self.elements: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        # A visitor counts once it has told where its camera is.
        self.send(
            _messages.ViewerCameraMessage(
                wxyz=(1.0, 0.0, 0.0, 0.0),
                position=(0.0, 0.0, 0.0),
                fov=1.0,
                near=0.1,
                far=10.0,
                image_height=10,
                image_width=10,
                look_at=(0.0, 0.0, 1.0),
                up_direction=(0.0, 0.0, 1.0),
            )
        )

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the page, as a browser that is closed."""
        self._socket.close()
        self._reader.join(PATIENCE_S)

    def _read(self) -> None:
        try:
            while True:
                data = self._socket.recv()
                assert isinstance(data, bytes)
                size = int.from_bytes(data[8:16], "little")
                plain = zstandard.ZstdDecompressor().decompress(data[16 : 16 + size])
                for message in msgspec.msgpack.decode(plain)["messages"]:
                    self._note(message)
        except ConnectionClosed:
            return

    def _note(self, message: dict[str, Any]) -> None:
        props = message.get("props") or message.get("updates") or {}
        if label := props.get("label"):
            self.elements[str(label)] = str(message.get("uuid"))
        for name in ("content", "_markdown"):
            if name in props:
                self.texts[str(message["uuid"])] = str(props[name])

    def send(self, message: _messages.Message) -> None:
        """Sends a message of the page."""
        self._socket.send(msgspec.msgpack.encode(message.as_serializable_dict()))

    def key(self, label: str) -> None:
        """Presses the key of a command once."""
        self.send(_messages.CommandTriggerMessage(self.element(label)))

    def hold_key(self, label: str, while_true: Callable[[], bool]) -> None:
        """Holds the key of a command down."""
        deadline = time.monotonic() + PATIENCE_S
        while while_true():
            assert time.monotonic() < deadline
            self.key(label)
            time.sleep(REPEAT_S)

    def click(self, label: str) -> None:
        """Clicks a button."""
        self.send(_messages.GuiUpdateMessage(self.element(label), {"value": True}))

    def drag(self, name: str, position: tuple[float, ...], wxyz: tuple[float, ...]) -> None:
        """Drags a handle to a pose."""
        self.send(
            _messages.TransformControlsUpdateMessage(
                name,
                wxyz,  # type: ignore[arg-type]
                position,  # type: ignore[arg-type]
            )
        )

    def element(self, label: str) -> str:
        """Returns the identifier of a command or element, once the page has sent it."""
        deadline = time.monotonic() + PATIENCE_S
        while label not in self.elements:
            assert time.monotonic() < deadline, f"{label!r} is not among {list(self.elements)}"
            time.sleep(0.01)
        return self.elements[label]
