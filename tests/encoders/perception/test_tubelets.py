"""Tubelets: tokens that span several frames of a clip."""

import numpy as np
import pytest
import torch
from tests.encoders.perception.conftest import SIDE, encoder, noise

from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.image_encoder import ImageEncoder
from stringline.encoders.perception.tubelets import TubeletFusion
from stringline.encoders.positions.rotary import NoEncoding
from stringline.encoders.vision.rgbd import Tokens


def of_clips(tubelet: int, frames: int = 4) -> ImageEncoder:
    """Returns an encoder of clips without position encodings."""
    torch.manual_seed(0)
    contract = ImageContract(height=SIDE, width=SIDE, frames=frames)
    return encoder(NoEncoding, tubelet=tubelet)(contract=contract)


def clips(frames: int = 4) -> torch.Tensor:
    return torch.from_numpy(noise(0, 2, frames, SIDE, SIDE, 3))


def test_only_tubelets_tell_a_clip_from_its_reverse_without_an_encoding() -> None:
    for tubelet, same in ((1, True), (2, False), (4, False)):
        encode = of_clips(tubelet).eval()
        seen, reversed_ = (
            encode({"rgb/image": rgb}).registers for rgb in (clips(), clips().flip(1))
        )
        assert torch.allclose(seen, reversed_, atol=1e-5) == same


def test_tokens_lie_at_the_middle_of_their_frames_and_the_place_of_their_patch() -> None:
    one, two = (of_clips(tubelet).tokens({"rgb/image": clips()}) for tubelet in (1, 2))
    frames = one.coordinates.reshape(2, 4, -1, 3)
    tubelets = two.coordinates.reshape(2, 2, -1, 3)
    assert torch.equal(tubelets[..., :2], frames[:, ::2, :, :2])
    assert torch.equal(tubelets[..., 2].unique(), torch.tensor([0.5, 2.5]))
    assert two.features.shape[1] * 2 == one.features.shape[1]


def test_places_are_means_of_the_frames_that_have_one() -> None:
    torch.manual_seed(0)
    places = torch.tensor([[[1.0]], [[3.0]], [[5.0]], [[7.0]], [[2.0]], [[4.0]]])
    known = torch.tensor([[True], [True], [False], [True], [False], [False]])
    fuse = TubeletFusion(2, frames=6, tubelet=2)
    joined = fuse(Tokens(torch.randn(6, 1, 2), places, known, present=known))
    assert joined.coordinates.flatten().tolist() == [2.0, 7.0, 0.0]
    assert joined.has_position.flatten().tolist() == [True, True, False]
    assert joined.present is not None
    assert joined.present.flatten().tolist() == [True, True, False]


def test_the_map_sees_the_frames_in_order() -> None:
    torch.manual_seed(0)
    fuse = TubeletFusion(3, frames=4, tubelet=2).double()
    features = torch.randn(4, 5, 3, dtype=torch.float64)
    places = torch.zeros(4, 5, 2)
    found = fuse(Tokens(features, places, torch.ones(4, 5, dtype=torch.bool))).features
    assert isinstance(fuse.fuse, torch.nn.Linear)
    pairs = torch.cat((features[::2], features[1::2]), dim=-1)
    expected = pairs @ fuse.fuse.weight.T + fuse.fuse.bias
    np.testing.assert_allclose(found.detach(), expected.detach(), atol=1e-12)


def test_tubelets_divide_the_frames() -> None:
    with pytest.raises(ValueError, match="tubelet is 3; allowed: divisors of 4, the frames"):
        of_clips(3)
    with pytest.raises(ValueError, match="tubelet"):
        of_clips(0)
