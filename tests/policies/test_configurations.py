"""Every choice of the configuration files builds a policy that can be trained and asked."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stringline.policies.chunk_policy import ChunkPolicy

ROOT = Path(__file__).parents[2]


def _names(group: str) -> list[str]:
    return sorted(file.stem for file in (ROOT / "configs" / group).glob("*.yaml"))


@pytest.mark.parametrize(
    ("encoder", "coordinates"),
    [(name, "metric") for name in _names("encoder")] + [("none", "patch_depth"), ("circulant", "grid")],
)
def test_every_encoder_with_every_kind_of_place(
    make_policy: Callable[..., ChunkPolicy], make_batch: Callable[[int], dict[str, Tensor]], encoder: str, coordinates: str
) -> None:
    small = {"circulant": 4, "comrope_ap": 2, "comrope_ld": 2}  # The small policy has heads of 8 channels.
    blocks = [f"encoder.encoding.block={small[encoder]}"] if encoder in small else []
    policy = make_policy(f"+encoder={encoder}", f"+coordinates={coordinates}", *blocks).train()
    batch = make_batch(2)
    loss = policy.loss(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    without = {name.rpartition(".")[2] for name, parameter in policy.named_parameters() if parameter.grad is None}
    # Nobody asks for places without an encoding, so the learned map from depth to a place stays as it is.
    assert without == ({"slope", "offset"} if (encoder, coordinates) == ("none", "patch_depth") else set())
    assert policy.predict(batch, torch.Generator().manual_seed(0)).isfinite().all()


@pytest.mark.parametrize(
    ("depth", "coordinates"),
    [("normals", name) for name in _names("coordinates")] + [(name, "metric") for name in ("colours", "channel")],
)
def test_every_use_of_depth_with_every_kind_of_place(
    make_policy: Callable[..., ChunkPolicy], make_batch: Callable[[int], dict[str, Tensor]], depth: str, coordinates: str
) -> None:
    stem = "+policy.memory.embedding={_target_: stringline.encoders.patches.PatchProjection, _partial_: true, patch: 8}"
    policy = make_policy(f"+coordinates={coordinates}", f"+depth={depth}", stem).train()
    batch = make_batch(2)
    policy.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in policy.parameters())
    assert policy.memory(batch).tokens.shape == (2, 3 * 16 + 2, 32)
