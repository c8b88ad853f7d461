"""The map of attention contains the weights of the network at the places of the patches."""

from collections.abc import Callable

import numpy as np
import pytest
from torch import Tensor

from stringline import ChunkPolicy, ObservationEncoder

MakePolicy = Callable[..., ChunkPolicy]
MakeBatch = Callable[[int], dict[str, Tensor]]


@pytest.mark.parametrize(
    "overrides", [(), ("+coordinates=grid",), ("+depth=normals",), ("+encoder=none",)]
)
def test_the_map_contains_patches_with_places_and_shares_of_attention(
    make_policy: MakePolicy, make_batch: MakeBatch, overrides: tuple[str, ...]
) -> None:
    policy = make_policy(*overrides).eval()
    batch = make_batch(1)
    seen = {
        key: value[0].numpy() for key, value in batch.items() if not key.startswith("action")
    } | {"time": np.asarray(0.0)}
    before = policy.observation_encoder(batch).tokens
    found = policy.attention_map(seen)
    assert found is not None
    np.testing.assert_array_equal(
        policy.observation_encoder(batch).tokens.detach(), before.detach()
    )
    assert found.arms == ("left", "right")
    assert found.points.shape == found.colours.shape == (found.weights.shape[1], 3)
    assert (
        0 < len(found.points) < 16 * len(policy.observation_encoder.cameras)
    )  # Some patches have no depth.
    assert (found.weights >= 0).all()
    assert ((found.weights.sum(axis=1) > 0.1) & (found.weights.sum(axis=1) < 1)).all()
    assert list(found.images) == [camera.name for camera in policy.observation_encoder.cameras]
    assert {image.shape for image in found.images.values()} == {(2, 2, 2)}
    together = np.concatenate([image.reshape(2, -1) for image in found.images.values()], axis=1)
    # Those with a position are the weights, in the same order.
    kept = iter(together[0])
    assert all(any(np.isclose(one, other) for other in kept) for one in found.weights[0])


def test_zero_queries_attend_uniformly(make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    """Queries and keys are zero."""
    policy = make_policy("+encoder=none").eval()
    assert isinstance(policy.observation_encoder, ObservationEncoder)
    for name, parameter in policy.observation_encoder.blocks.named_parameters():
        if ".qkv." in name:
            parameter.data.zero_()
    batch = make_batch(1)
    seen = {key: value[0].numpy() for key, value in batch.items() if not key.startswith("action")}
    found = policy.attention_map(seen)
    assert found is not None
    np.testing.assert_allclose(found.weights, found.weights.mean(), rtol=1e-5)
