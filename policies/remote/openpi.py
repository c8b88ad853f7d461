"""Policies on a server of openpi for ALOHA.

openpi (Black et al., pi0, 2024; Physical Intelligence's public code of 2025): after the connection
the server sends a map of metadata; then each request is a map {"state": (14,), "images": {name: (3,
H, W) uint8}, "prompt": text} and each answer one with "actions" (T, 14), all packed as in
`protocol.py`. Errors are sent as text.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Camera, Contract, Observation
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.formats.conversions import gripper_convention
from stringline.policies.chunks.chunk import ActionChunk
from stringline.policies.remote.access import check_encrypted
from stringline.policies.remote.client import Connection
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
        prompt: The instruction.
        state_gripper: Convention of grippers in the state of the server's policy, a name of
            `GRIPPER_CONVENTIONS`; the protocol does not declare it. Models for gym-aloha use
            `opening`.
        action_gripper: The same for its actions.
        cameras: Our cameras by openpi's names; the server masks missing ones.
        image_size: Rows and columns of the sent images, which the server resizes.
        control_hz: Actions per second.
        timeout_s: Timeout of the connection and of each answer.
        api_key: Key of the server, sent as `Authorization: Api-Key KEY`; if None, not sent.

    Attributes:
        contract: The contract of ALOHA with the sent images.

    Raises:
        ValueError: A convention or camera does not exist, or the key would be sent unencrypted to
            another machine.
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
        api_key: str | None = None,
    ) -> None:
        if api_key is not None:
            check_encrypted(address, "The key api_key")
        self.authorization = None if api_key is None else f"Api-Key {api_key}"
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
        """Opens a connection for one episode; the seed is unused: the protocol lacks seeds."""
        return OpenpiSession(self)

    def request(self, observation: Observation) -> dict[str, Any]:
        """Returns an observation as a request of the server."""
        state = np.array(observation["joints/position"], dtype=np.float32)
        state[GRIPPERS] = self.state_gripper.from_opening(state[GRIPPERS])
        images = {
            theirs: np.moveaxis(observation[f"rgb/{ours}"], -1, 0)
            for theirs, ours in self.cameras.items()
        }
        return {"state": state, "images": images, "prompt": self.prompt}

    def chunk(self, answer: Mapping[str, Any], now: float) -> ActionChunk:
        """Returns an answer as a chunk that starts at the time of the observation."""
        found = answer.get("actions")
        if (
            not isinstance(found, np.ndarray)
            or found.ndim != 2
            or found.shape[1] != len(ALOHA.joints)
            or not len(found)
        ):
            shape = found.shape if isinstance(found, np.ndarray) else type(found).__name__
            raise RemoteError(
                f"{self.address} answered with actions {shape}; expected: (T, {len(ALOHA.joints)})."
            )
        action: NDArray[np.float32] = found.astype(np.float32)
        action[:, GRIPPERS] = self.action_gripper.to_opening(action[:, GRIPPERS])
        return ActionChunk(now + np.arange(len(action)) / self.contract.control_hz, action)


class OpenpiSession:
    """One connection to an openpi server.

    Attributes:
        about: Metadata of the server.
    """

    def __init__(self, policy: OpenpiPolicy) -> None:
        self._policy = policy
        self._connection = Connection(policy.address, policy.timeout_s, policy.authorization)
        self.about = self._connection.receive()

    def plan(self, observation: Observation) -> ActionChunk:
        """Plans.

        Raises:
            RemoteError: The server fails, does not answer, or returns an invalid answer.
        """
        return self._policy.chunk(
            self._connection.request(self._policy.request(observation)), float(observation["time"])
        )

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
