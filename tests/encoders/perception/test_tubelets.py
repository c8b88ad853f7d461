"""Tubelets: tokens that span several frames of a clip."""

from functools import partial

import numpy as np
import pytest
import torch
from tests.encoders.perception.conftest import SIDE, encoder, noise, settings
from torch.nn import functional

from stringline import ImageEncoder, NoEncoding, PatchProjection, RgbdTokens
from stringline.encoders.perception.image_contract import ImageContract
from stringline.encoders.perception.image_encoder import Tubelets


def of_clips(tubelet: int, frames: int = 4) -> ImageEncoder:
    """Returns an encoder of clips without position encodings."""
    torch.manual_seed(0)
    contract = ImageContract(height=SIDE, width=SIDE, frames=frames)
    return encoder(NoEncoding, tubelet=tubelet)(contract=contract)


def clips(frames: int = 4) -> torch.Tensor:
    return torch.from_numpy(noise(0, 2, frames, SIDE, SIDE, 3))


def test_only_tubelets_tell_a_clip_from_its_reverse_without_an_encoding() -> None:
    for tubelet, same in ((1, True), (2, False), (4, False)):
        encode = of_clips(tubelet)
        forwards, backwards = (
            encode({"rgb/image": rgb}).registers for rgb in (clips(), clips().flip(1))
        )
        assert torch.allclose(forwards, backwards, atol=1e-5) == same


def test_tokens_lie_at_the_middle_of_their_frames_and_the_place_of_their_patch() -> None:
    one, two = (of_clips(tubelet).tokens({"rgb/image": clips()}) for tubelet in (1, 2))
    frames = one.coordinates.reshape(2, 4, -1, 3)
    tubelets = two.coordinates.reshape(2, 2, -1, 3)
    assert torch.equal(tubelets[..., :2], frames[:, ::2, :, :2])
    assert torch.equal(tubelets[..., 2].unique(), torch.tensor([0.5, 2.5]))
    assert two.features.shape[1] * 2 == one.features.shape[1]


def test_linear_patches_give_the_tubelet_embedding_of_vivit() -> None:
    encode = of_clips(2).double()
    tokens = encode.tokenise
    assert isinstance(tokens, RgbdTokens)
    assert isinstance(tokens.embedding, PatchProjection)
    assert isinstance(encode.tubelets.changes, PatchProjection)
    still, change = (each.projection for each in (tokens.embedding, encode.tubelets.changes))
    assert change.bias is not None
    # W_0 - W_1 for the first frame, W_1 for the second.
    weight = torch.cat((still.weight - change.weight, change.weight), dim=1)
    colours = clips().double() / 64 - 2
    pairs = colours.unflatten(1, (2, 2)).flatten(0, 1).movedim(-1, 2).flatten(1, 2)
    # An offset of all colours by -2 is in the first frame only.
    expected = functional.conv2d(pairs, weight, still.bias, stride=4) + change.bias[:, None, None]
    found = encode.tokens({"rgb/image": clips()}).features - tokens.camera_mark
    np.testing.assert_allclose(
        found.reshape(4, 16, -1).detach(), expected.flatten(2).mT.detach(), atol=1e-9
    )


def test_still_clips_have_no_change() -> None:
    encode = of_clips(4)
    rgb = clips()[:, :1].expand(-1, 4, -1, -1, -1)
    found = encode.tubelets.embed(rgb)
    assert torch.equal(found, found[:1, :1].expand_as(found))


def test_tubelets_divide_the_frames() -> None:
    with pytest.raises(ValueError, match="tubelet is 3; allowed: divisors of 4, the frames"):
        of_clips(3)
    with pytest.raises(ValueError, match="divisors of 1, the frames"):
        Tubelets(partial(PatchProjection, patch=4), 16, frames=1, tubelet=2)
    with pytest.raises(ValueError, match="tubelet"):
        of_clips(0)


def test_tokens_of_another_network_have_no_tubelets() -> None:
    with pytest.raises(ValueError, match="tubelet is 2 with tokens of another network"):
        settings(images=RgbdTokens, tubelet=2)
