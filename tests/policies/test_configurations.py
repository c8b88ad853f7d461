"""Every choice of the configuration files builds a policy that can be trained and asked."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stringline.policies.chunk_policy import ChunkPolicy


@pytest.mark.parametrize("coordinates", ["metric", "grid", "patch_depth"])
@pytest.mark.parametrize("encoder", ["cayley", "circulant", "rope_mixed", "none"])
def test_every_encoder_with_every_kind_of_place(
    make_policy: Callable[..., ChunkPolicy], make_batch: Callable[[int], dict[str, Tensor]], encoder: str, coordinates: str
) -> None:
    blocks = ["encoder.encoding.block=4"] if encoder == "circulant" else []  # The small policy has heads of 8 channels.
    policy = make_policy(f"+encoder={encoder}", f"+coordinates={coordinates}", *blocks).train()
    batch = make_batch(2)
    loss = policy.loss(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    without = {name.rpartition(".")[2] for name, parameter in policy.named_parameters() if parameter.grad is None}
    # Nobody asks for places without an encoding, so the learned map from depth to a place stays as it is.
    assert without == ({"slope", "offset"} if (encoder, coordinates) == ("none", "patch_depth") else set())
    assert policy.predict(batch, torch.Generator().manual_seed(0)).isfinite().all()
