"""The size of the training copy that an import proposes; the proposed commands run in tests/sim."""

import pytest

from stringline.datasets.contract.contract import Camera
from stringline.datasets.verbs.transfer_commands import MOST_PATCHES, PATCH, training_size


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([(480, 640)], (192, 256)),
        ([(480, 640)] * 2, (144, 192)),
        ([(720, 1280)] * 3, (80, 144)),
        ([(128, 128)] * 4, (128, 128)),
        ([(36, 40)], (32, 32)),
        ([(84, 84)] * 2, (80, 80)),
        ([(480, 640), (20, 20)], (16, 16)),
        ([(480, 640)] * 300, (16, 16)),
    ],
)
def test_a_copy_has_whole_patches_few_enough_and_hardly_another_ratio(
    shapes: list[tuple[int, int]], expected: tuple[int, int]
) -> None:
    cameras = [
        Camera(str(place), *shape, has_geometry=False, depth=None)
        for place, shape in enumerate(shapes)
    ]
    rows, columns = training_size(cameras)
    assert (rows, columns) == expected
    assert all(rows <= camera.height and columns <= camera.width for camera in cameras)
    assert (rows // PATCH) * (columns // PATCH) * len(cameras) <= max(MOST_PATCHES, len(cameras))
