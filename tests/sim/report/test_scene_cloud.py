"""Clouds are in the base frame, and are stored as text."""

import base64
import json

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.sim.clouds import cloud

from stringline import Contract, load_policy
from stringline.sim.environment.environment import make_environment
from stringline.sim.report.scene_cloud import SceneCloud, scene_cloud


@pytest.fixture(scope="module")
def seen() -> SceneCloud:
    """The cloud of the shipped policy at the start of an episode."""
    policy = load_policy("hand_over_banana")
    world = make_environment(
        "hand_over_banana", cameras=[camera.name for camera in policy.contract.cameras]
    )
    try:
        world.begin(1_000_000)
        found = scene_cloud(policy, world.observe())
    finally:
        world.close()
    assert found is not None
    return found


def test_the_cloud_is_on_the_table(seen: SceneCloud) -> None:
    """The table is at 0; patches lie within the span of pixels; patches of the bowl are blue."""
    assert seen.points.shape == seen.colours.shape == (3000, 3)
    assert np.quantile(seen.points[:, 2], 0.01) > -0.01
    assert np.mean(np.abs(seen.points[:, 2]) < 0.005) > 0.3
    low, high = seen.points.min(axis=0) - 0.05, seen.points.max(axis=0) + 0.05
    assert ((seen.attention.points > low) & (seen.attention.points < high)).all()

    def blue(points: NDArray[np.float32], colours: NDArray[np.uint8]) -> NDArray[np.float32]:
        chosen = colours[:, 2].astype(int) > 100 + colours[:, 0]
        return np.asarray(points[chosen].mean(axis=0))

    np.testing.assert_allclose(
        blue(seen.points, seen.colours),
        blue(seen.attention.points, seen.attention.colours),
        atol=0.03,
    )


def test_text_round_trip(seen: SceneCloud) -> None:
    """Points to 0.5 mm, exact colours and weights to 1/255 of the largest, in at most 60 kB."""
    text = seen.to_json()
    assert len(text) < 60_000
    found = json.loads(text)
    points = np.frombuffer(base64.b64decode(found["points"]), "<i2").reshape(-1, 3) / 1000
    np.testing.assert_allclose(points, seen.points, atol=0.00051)
    np.testing.assert_array_equal(
        np.frombuffer(base64.b64decode(found["colours"]), np.uint8).reshape(-1, 3), seen.colours
    )
    for arm, name, weights in zip(
        found["arms"], seen.attention.arms, seen.attention.weights, strict=True
    ):
        assert arm["name"] == name
        got = np.frombuffer(base64.b64decode(arm["weights"]), np.uint8) / 255 * arm["most"]
        np.testing.assert_allclose(got, weights, atol=arm["most"] / 500)


def test_hostile_names() -> None:
    assert not set("<>&") & set(cloud("</script>&<b>").to_json())


def test_other_policies_have_none() -> None:
    """Such as one on a server."""

    class Elsewhere:
        contract: Contract

        def session(self, seed: int) -> None:
            raise AssertionError(seed)

    assert scene_cloud(Elsewhere(), {}) is None  # type: ignore[arg-type]
