"""Images of another size: a pixel still shows the point that its intrinsics say."""

from typing import Any

import numpy as np
import pytest

from stringline.datasets.cameras.resampling import ImageSize
from stringline.datasets.contract.contract import Camera

OLD = Camera("overhead", 48, 64)
K = np.array([[60.0, 0, 30], [0, 62, 25], [0, 0, 1]], np.float32)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (ImageSize(24, 16, "resize"), [[15, 0, 7.5], [0, 31, 12.5], [0, 0, 1]]),
        (ImageSize(32, 32, "pad"), [[30, 0, 15], [0, 31, 12.5 + 4], [0, 0, 1]]),
        (ImageSize(96, 80, "pad"), [[60, 0, 30 + 8], [0, 62, 25 + 24], [0, 0, 1]]),
        (ImageSize(24, 24, "crop"), [[30, 0, 15 - 4], [0, 31, 12.5], [0, 0, 1]]),
        (ImageSize(48, 64, "crop"), K),
    ],
)
def test_images_and_intrinsics_change_together(size: ImageSize, expected: Any) -> None:
    """A ramp of depth and colour along the rays has the same value on the same ray afterwards."""
    rows, columns = np.mgrid[:48, :64] + 0.5
    across = 100 + 1000 * (columns - K[0, 2]) / K[0, 0] / 10
    down = 1000 + 1000 * (rows - K[1, 2]) / K[1, 1]
    image = np.stack([across, across, 0 * across], axis=-1).astype(np.uint8)
    new = size.camera(OLD)
    intrinsics = size.intrinsics(K, OLD)
    colour, depth = size.colour(image), size.depth(np.rint(down).astype(np.uint16))
    np.testing.assert_allclose(intrinsics, expected, rtol=1e-6)
    assert colour.shape == (new.height, new.width, 3)
    assert depth.shape == (new.height, new.width)
    seen = depth > 0
    assert np.array_equal(seen, colour.any(axis=2))
    rows, columns = np.nonzero(seen)
    of_ray = 100 + 100 * (columns + 0.5 - intrinsics[0, 2]) / intrinsics[0, 0]
    np.testing.assert_allclose(colour[rows, columns, 0], of_ray, atol=1.5)
    of_ray = 1000 + 1000 * (rows + 0.5 - intrinsics[1, 2]) / intrinsics[1, 1]
    # The nearest pixel of an even number of them is half a pixel beside the centre.
    np.testing.assert_allclose(depth[rows, columns], of_ray, atol=0.5 * 1000 / K[1, 1] + 1)
    if size.fit != "pad":
        assert seen.all()


def test_options_that_do_not_fit_are_refused() -> None:
    assert ImageSize.of(None, None) is None
    assert ImageSize.of(96, "pad") == ImageSize(96, 96, "pad")
    assert ImageSize.of([96, 128], "resize") == ImageSize(96, 128, "resize")
    with pytest.raises(ValueError, match="There is no image_fit 'stretch'.* Allowed: crop, pad"):
        ImageSize.of(96, "stretch")
    with pytest.raises(ValueError, match="needs the way to it, image_fit; allowed: resize, pad"):
        ImageSize.of(96, None)
    with pytest.raises(ValueError, match="image_fit=pad needs image_size="):
        ImageSize.of(None, "pad")
    with pytest.raises(ValueError, match="image_size is 0x4; allowed: positive numbers"):
        ImageSize.of([0, 4], "pad")
    with pytest.raises(ValueError, match=r"image_size is \[1, 2, 3\]; allowed: a whole number, or"):
        ImageSize.of([1, 2, 3], "pad")
    with pytest.raises(ValueError, match="48x64; image_fit=crop does not enlarge them to 96x96"):
        ImageSize(96, 96, "crop").camera(OLD)
