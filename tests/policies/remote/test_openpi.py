"""The openpi client against a server that follows openpi's public description."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import numpy as np
import pytest
from tests.policies.remote import served
from tests.policies.remote.served import Drift, Running
from websockets.datastructures import Headers
from websockets.sync.client import connect
from websockets.sync.server import Server, ServerConnection, serve

from stringline.datasets.contract.contract import Array
from stringline.policies.remote.access import bearer
from stringline.policies.remote.client import OpenpiPolicy
from stringline.policies.remote.protocol import RemoteError

Answer = Callable[[dict[str, Any]], dict[str, Any] | str]


def packed(value: object) -> bytes:
    def plain(array: object) -> object:
        assert isinstance(array, np.ndarray)
        return {
            b"__ndarray__": True,
            b"data": array.tobytes(),
            b"dtype": array.dtype.str,
            b"shape": array.shape,
        }

    result: bytes = msgpack.packb(value, default=plain)
    return result


def unpacked(data: bytes) -> Any:
    def made(found: dict[Any, Any]) -> Any:
        if b"__ndarray__" not in found:
            return found
        return np.ndarray(
            buffer=found[b"data"], dtype=np.dtype(found[b"dtype"]), shape=found[b"shape"]
        )

    return msgpack.unpackb(data, object_hook=made)


@pytest.fixture
def openpi() -> Iterator[Callable[[Answer], str]]:
    servers: list[tuple[Server, threading.Thread]] = []

    def start(answer: Answer) -> str:
        def converse(connection: ServerConnection) -> None:
            connection.send(packed({"policy": "test"}))
            for data in connection:
                assert isinstance(data, bytes)
                reply = answer(unpacked(data))
                connection.send(reply if isinstance(reply, str) else packed(reply))

        server = serve(converse, "127.0.0.1", 0, compression=None, max_size=None)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        return f"ws://127.0.0.1:{server.socket.getsockname()[1]}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join(10)


def policy(
    address: str, *, state_gripper: str = "opening", action_gripper: str = "opening"
) -> OpenpiPolicy:
    return OpenpiPolicy(
        address,
        prompt="hand over the banana",
        state_gripper=state_gripper,
        action_gripper=action_gripper,
        timeout_s=5,
    )


def observation(now: float = 2.0) -> dict[str, Array]:
    random = np.random.default_rng(0)
    seen: dict[str, Array] = {
        "time": np.asarray(now),
        "joints/position": random.uniform(size=14).astype(np.float32),
    }
    for camera in ("overhead", "table", "wrist_left", "wrist_right"):
        seen[f"rgb/{camera}"] = random.integers(0, 256, (6, 8, 3)).astype(np.uint8)
    return seen


def test_requests_and_answers_are_converted(
    openpi: Callable[[Answer], str],
) -> None:
    questions: list[dict[str, Any]] = []
    actions = np.random.default_rng(1).normal(size=(50, 14))

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        questions.append(question)
        return {"actions": actions, "server_timing": {"infer_ms": 1.0}}

    session = policy(openpi(answer)).session(0)
    assert session.about == {"policy": "test"}
    seen = observation()
    chunk = session.plan(seen)
    session.close()
    (question,) = questions
    assert question["prompt"] == "hand over the banana"
    np.testing.assert_array_equal(question["state"], seen["joints/position"])
    assert sorted(question["images"]) == [
        "cam_high",
        "cam_left_wrist",
        "cam_low",
        "cam_right_wrist",
    ]
    np.testing.assert_array_equal(
        question["images"]["cam_low"], seen["rgb/table"].transpose(2, 0, 1)
    )
    np.testing.assert_array_equal(chunk.action, actions.astype(np.float32))
    np.testing.assert_allclose(chunk.time, 2.0 + np.arange(50) / 50)


def test_grippers_are_converted_both_ways(openpi: Callable[[Answer], str]) -> None:
    def answer(question: dict[str, Any]) -> dict[str, Any]:
        return {"actions": np.stack([question["state"]] * 2)}

    session = policy(openpi(answer), state_gripper="closing", action_gripper="closing").session(0)
    seen = observation()
    np.testing.assert_allclose(session.plan(seen).action[0], seen["joints/position"], atol=1e-6)
    session.close()
    other = policy(openpi(answer), state_gripper="closing").session(0)
    found, q = other.plan(seen).action[0], seen["joints/position"]
    other.close()
    np.testing.assert_allclose(found[[6, 13]], 1 - q[[6, 13]], atol=1e-6)
    np.testing.assert_allclose(np.delete(found, [6, 13]), np.delete(q, [6, 13]))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("Traceback: out of memory", "failed: Traceback: out of memory"),
        ({"actions": np.zeros((50, 7))}, r"actions \(50, 7\); expected: \(T, 14\)"),
        ({"action": np.zeros((50, 14))}, "actions NoneType"),
    ],
)
def test_errors_of_the_server_are_reported(
    openpi: Callable[[Answer], str], reply: dict[str, Any] | str, words: str
) -> None:
    session = policy(openpi(lambda _: reply)).session(0)
    with pytest.raises(RemoteError, match=words):
        session.plan(observation())
    session.close()


def test_invalid_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="There is no state_gripper 'openning'"):
        policy("ws://127.0.0.1:9", state_gripper="openning")
    with pytest.raises(ValueError, match="Did you mean 'cam_high'"):
        OpenpiPolicy(
            "ws://127.0.0.1:9",
            prompt="",
            state_gripper="opening",
            action_gripper="opening",
            cameras={"cam_hihg": "table"},
        )
    with pytest.raises(RemoteError, match="no policy server at"):
        policy("ws://127.0.0.1:9").session(0)


def test_a_client_of_openpi_is_answered_by_this_server(running: Callable[..., Running]) -> None:
    """It sends observations alone; errors are text, and an earlier time begins an episode."""
    address = running(Drift()).address
    with connect(address, compression=None, max_size=None) as client:

        def infer(seen: dict[str, Any]) -> Any:
            client.send(packed(seen))
            answer = client.recv()
            return answer if isinstance(answer, str) else unpacked(answer)

        assert "contract" in unpacked(client.recv())  # type: ignore[arg-type]
        seen = [served.observation(step, 1.0 + step) for step in range(2)]
        session = Drift().session(0)
        expected = [session.plan(each) for each in seen]
        for _ in range(2):
            for chunk, each in zip(expected, seen, strict=True):
                found = infer(each)
                np.testing.assert_array_equal(found["actions"], chunk.action)
                np.testing.assert_array_equal(found["time"], chunk.time)
        wrong = infer({"time": np.float64(9.0)})
        assert isinstance(wrong, str), "openpi's client raises an error for text"
        assert "rgb/overhead" in wrong


def test_keys_of_openpi_are_sent_and_taken() -> None:
    chosen: dict[str, Any] = {
        "prompt": "",
        "state_gripper": "opening",
        "action_gripper": "opening",
    }
    with pytest.raises(ValueError, match=r"api_key would be sent unencrypted to ws://gpu:8000"):
        OpenpiPolicy("ws://gpu:8000", api_key="secret", **chosen)
    assert bearer(Headers({"Authorization": "Api-Key abc"})) == "abc"
    policy = OpenpiPolicy("ws://127.0.0.1:8000", api_key="secret", **chosen)
    assert policy.authorization == "Api-Key secret"
