"""Policies on a server of openpi, as it serves them for ALOHA.

openpi (Black et al., pi0, 2024; Physical Intelligence's public code of 2025): after the connection
the server sends a map that describes it; then each question is a map {"state": (14,), "images":
{name: (3, H, W) uint8}, "prompt": text} and each answer one with "actions" (T, 14), all packed as
in `arrays.py`. Errors come as text.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.arguments import unknown_name
from stringline.datasets.contract.contract import Camera, Contract, Observation
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.grippers import gripper_convention
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.remote.connection import Connection
from stringline.policies.remote.protocol import RemoteError

CAMERAS = {
    "cam_high": "overhead",
    "cam_low": "table",
    "cam_left_wrist": "wrist_left",
    "cam_right_wrist": "wrist_right",
}
GRIPPERS = [ALOHA.grippers[arm] for arm in ALOHA.arms]


class OpenpiPolicy:
    """An ALOHA policy behind an openpi server.

    Args:
        address: Such as `ws://127.0.0.1:8000`.
        prompt: What to do, in words.
        state_gripper: How the server's policy counts grippers in its state, a name of
            `GRIPPER_CONVENTIONS`: nothing in the protocol says it. Models for gym-aloha count
            `opening`.
        action_gripper: The same for its actions.
        cameras: Ours by openpi's names; those left out are masked by the server.
        image_size: Rows and columns of the images that are sent; the server resizes them.
        control_hz: Actions per second.
        timeout_s: How long to wait for the connection, and for each answer.

    Attributes:
        contract: ALOHA's, with the images that are sent.

    Raises:
        ValueError: A convention or camera does not exist.
    """

    def __init__(
        self,
        address: str,
        *,
        prompt: str,
        state_gripper: str,
        action_gripper: str,
        cameras: Mapping[str, str] = CAMERAS,
        image_size: int = 224,
        control_hz: float = 50.0,
        timeout_s: float = 120.0,
    ) -> None:
        for name in cameras:
            if name not in CAMERAS:
                raise unknown_name("openpi camera", name, CAMERAS)
        self.address = address
        self.prompt = prompt
        self.timeout_s = timeout_s
        self.cameras = dict(cameras)
        self.state_gripper = gripper_convention(state_gripper, "state_gripper")
        self.action_gripper = gripper_convention(action_gripper, "action_gripper")
        seen = [Camera(name, image_size, image_size, None) for name in self.cameras.values()]
        self.contract: Contract = ALOHA.contract(seen, control_hz)

    def session(self, seed: int) -> "OpenpiSession":
        """Opens a connection for one episode; the protocol has no seed, so the server's own random numbers decide.

        Raises:
            RemoteError: No openpi server answers.
        """
        return OpenpiSession(self)

    def question(self, observation: Observation) -> dict[str, Any]:
        """Returns an observation as the server wants it."""
        state = np.array(observation["joints/position"], dtype=np.float32)
        state[GRIPPERS] = self.state_gripper.from_opening(state[GRIPPERS])
        images = {
            theirs: np.moveaxis(observation[f"rgb/{ours}"], -1, 0)
            for theirs, ours in self.cameras.items()
        }
        return {"state": state, "images": images, "prompt": self.prompt}

    def chunk(self, answer: Mapping[str, Any], now: float) -> ActionChunk:
        """Returns an answer as our chunk, of which the first action is due at the time of the observation.

        Raises:
            RemoteError: It has no actions for these arms.
        """
        found = answer.get("actions")
        if (
            not isinstance(found, np.ndarray)
            or found.ndim != 2
            or found.shape[1] != len(ALOHA.joints)
            or not len(found)
        ):
            shape = found.shape if isinstance(found, np.ndarray) else type(found).__name__
            raise RemoteError(
                f"{self.address} answered with actions {shape}; expected are (T, "
                f"{len(ALOHA.joints)})."
            )
        action: NDArray[np.float32] = found.astype(np.float32)
        action[:, GRIPPERS] = self.action_gripper.to_opening(action[:, GRIPPERS])
        return ActionChunk(now + np.arange(len(action)) / self.contract.control_hz, action)


class OpenpiSession:
    """One connection to an openpi server.

    Args:
        policy: What is asked.

    Raises:
        RemoteError: No openpi server answers.

    Attributes:
        about: What the server says about itself.
    """

    def __init__(self, policy: OpenpiPolicy) -> None:
        self._policy = policy
        self._connection = Connection(policy.address, policy.timeout_s)
        self.about = self._connection.receive()

    def plan(self, observation: Observation) -> ActionChunk:
        """Answers one observation.

        Raises:
            RemoteError: The server fails, does not answer, or answers with something else.
        """
        return self._policy.chunk(
            self._connection.ask(self._policy.question(observation)), float(observation["time"])
        )

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()
