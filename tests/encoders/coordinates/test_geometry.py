"""Places of patches against a pixel-by-pixel computation, known surfaces and holes."""

from statistics import mean, median_low
from typing import get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.encoders.coordinates.geometry import (
    DepthPooling,
    View,
    patch_centres,
    patch_depth,
    patch_places,
    pooled_depth,
)

HEIGHT, WIDTH, PATCH = 24, 32, 8


def _camera(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns intrinsics with skew and a random pose."""
    random = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(random.normal(size=(3, 3)))
    pose = np.eye(4)
    pose[:3, :3] = rotation * np.sign(np.linalg.det(rotation))
    pose[:3, 3] = random.normal(size=3)
    return np.array([[40.0, 0.7, 15.2], [0.0, 43.0, 11.1], [0.0, 0.0, 1.0]]), pose


def _depth(seed: int) -> NDArray[np.uint16]:
    """Returns millimetres with a third of the pixels missing and one patch missing entirely."""
    random = np.random.default_rng(seed)
    depth = random.integers(200, 1500, (HEIGHT, WIDTH)).astype(np.uint16)
    depth[random.random(depth.shape) < 0.33] = 0
    depth[8:16, 16:24] = 0
    return depth


def _pixel_by_pixel(
    depth: NDArray[np.uint16],
    K: NDArray[np.float64],
    pose: NDArray[np.float64],
    pooling: DepthPooling,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    points, known = [], []
    for top in range(0, HEIGHT, PATCH):
        for left in range(0, WIDTH, PATCH):
            returned = [
                float(depth[top + row, left + column]) / 1000
                for row in range(PATCH)
                for column in range(PATCH)
                if depth[top + row, left + column] > 0
            ]
            known.append(bool(returned))
            pool = mean if pooling == "mean" else median_low
            z = pool(returned) if returned else 0.0
            ray = np.linalg.solve(K, np.array([left + PATCH / 2, top + PATCH / 2, 1.0]))
            points.append((pose @ np.append(ray * z, 1.0))[:3])
    return np.array(points), np.array(known)


@pytest.mark.parametrize("pooling", get_args(DepthPooling))
def test_places_agree_with_a_computation_pixel_by_pixel(pooling: DepthPooling) -> None:
    cameras, depths = [_camera(seed) for seed in range(3)], [_depth(seed) for seed in range(3)]
    expected = [
        _pixel_by_pixel(depth, *camera, pooling)
        for depth, camera in zip(depths, cameras, strict=True)
    ]
    points, known = patch_places(
        torch.from_numpy(np.stack(depths).astype(np.float64)),
        0.001,
        torch.from_numpy(np.stack([K for K, _ in cameras])),
        torch.from_numpy(np.stack([pose for _, pose in cameras])),
        PATCH,
        pooling=pooling,
    )
    np.testing.assert_array_equal(known.numpy(), np.stack([each for _, each in expected]))
    assert known.sum() == 3 * (known.shape[1] - 1)
    np.testing.assert_allclose(
        points[known].numpy(), np.stack([each for each, _ in expected])[known.numpy()], atol=1e-12
    )


def test_stored_types_give_the_same_places() -> None:
    K, pose = (torch.from_numpy(each).unsqueeze(0) for each in _camera(0))
    depth = torch.from_numpy(_depth(0)).unsqueeze(0)
    exact, known = patch_places(depth.double(), 0.001, K, pose, PATCH)
    stored, known_stored = patch_places(depth, 0.001, K.float(), pose.float(), PATCH)
    assert stored.dtype == torch.float32
    torch.testing.assert_close(known_stored, known)
    torch.testing.assert_close(stored.double(), exact, rtol=0, atol=2e-6)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(
            patch_places(depth, 0.001, K.float(), pose.float(), PATCH)[0], stored, rtol=0, atol=0
        )


def _looking_down(height_m: float, tilt: float) -> Tensor:
    """Returns the pose of a camera above the origin, its axis `tilt` radians off the vertical."""
    cos, sin = np.cos(tilt), np.sin(tilt)
    pose = torch.eye(4, dtype=torch.float64)
    pose[:3, :3] = torch.tensor([[1, 0, 0], [0, -cos, -sin], [0, sin, -cos]])
    pose[2, 3] = height_m
    return pose.unsqueeze(0)


@pytest.mark.parametrize(("tilt", "tolerance_m"), [(0.0, 1e-12), (0.3, 1e-3), (0.6, 3e-3)])
def test_patches_of_a_table_lie_on_it(tilt: float, tolerance_m: float) -> None:
    """Depth is not linear over a slanted patch: its median has a small second-order error."""
    K = torch.tensor([[[150.0, 0, 64], [0, 150, 64], [0, 0, 1]]], dtype=torch.float64)
    pose = _looking_down(0.8, tilt)
    pixel = patch_centres(128, 128, 1).double()
    rays = torch.cat((pixel, torch.ones(len(pixel), 1)), dim=-1) @ torch.linalg.inv(K[0]).mT
    depth = -pose[0, 2, 3] / (rays @ pose[0, 2, :3])
    points, known = patch_places(depth.reshape(1, 128, 128), 1.0, K, pose, 16)
    assert known.all()
    assert points[..., 2].abs().max() < tolerance_m
    assert points[0, 0, 0] < 0 < points[0, 7, 0]  # The image's left is the base frame's left,
    assert points[0, 0, 1] > points[0, 63, 1]  # and its upper edge is away from the operator.


def test_holes_never_enter_the_depth() -> None:
    depth = torch.full((1, 8, 16), 700.0)
    depth[0, :5] = 0
    depth[0, 6, 2] = torch.nan
    depth[0, 7, 3] = torch.inf
    depth[0, 5, 4] = -1
    depth[0, :, 8:] = 0
    for pooling in get_args(DepthPooling):
        pooled, known = pooled_depth(depth, 0.001, 8, pooling)
        torch.testing.assert_close(pooled, torch.tensor([[0.7, 0.0]]))
        torch.testing.assert_close(known, torch.tensor([[True, False]]))


def test_a_patch_at_an_edge_is_on_one_of_its_surfaces() -> None:
    """The mean of an object at 0.5 m before a wall at 1.5 m is in the air, the median is not."""
    K, pose = (torch.from_numpy(each).unsqueeze(0) for each in _camera(0))
    for covered in range(1, PATCH):
        depth = torch.full((1, PATCH, PATCH), 1500.0)
        depth[..., :covered] = 500.0
        z = {
            pooling: float((torch.linalg.inv(pose[0]) @ torch.cat((place[0, 0], torch.ones(1))))[2])
            for pooling in get_args(DepthPooling)
            for place, _ in [patch_places(depth, 0.001, K, pose, PATCH, pooling=pooling)]
        }
        place = patch_places(depth, 0.001, K, pose, PATCH)[0]
        assert z["median"] == pytest.approx(0.5 if covered >= PATCH / 2 else 1.5)
        assert 0.6 < z["mean"] < 1.4
        torch.testing.assert_close(
            place, patch_places(depth, 0.001, K, pose, PATCH, pooling="median")[0]
        )


def test_centres_run_row_by_row_with_pixel_centres_at_a_half() -> None:
    assert patch_centres(2, 2, 1).tolist() == [[0.5, 0.5], [1.5, 0.5], [0.5, 1.5], [1.5, 1.5]]
    assert patch_centres(16, 32, 16).tolist() == [[8, 8], [24, 8]]


def test_gradients_reach_the_pose() -> None:
    K, pose = (torch.from_numpy(each).unsqueeze(0) for each in _camera(1))
    depth = torch.from_numpy(_depth(1)).unsqueeze(0).double()
    assert torch.autograd.gradcheck(
        lambda K, pose: patch_places(depth, 0.001, K, pose, PATCH)[0],
        (K.requires_grad_(), pose.requires_grad_()),
    )


@pytest.mark.parametrize("shape", [(1, 20, 32), (1, 24, 30), (24, 32)])
def test_images_that_patches_do_not_tile_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="multiples of 8"):
        patch_depth(torch.ones(shape), 0.001, PATCH)


def test_places_are_on_the_rays_of_the_given_centres() -> None:
    K, pose = (torch.from_numpy(each).unsqueeze(0).expand(2, -1, -1) for each in _camera(2))
    depth = torch.from_numpy(_depth(2)).unsqueeze(0).expand(2, -1, -1).double()
    centres = patch_centres(HEIGHT, WIDTH, PATCH).double() + torch.rand(
        2, 12, 2, dtype=torch.float64
    )
    places, known = patch_places(depth, 0.001, K, pose, PATCH, centres=centres)
    in_camera = (torch.linalg.inv(pose) @ torch.nn.functional.pad(places, (0, 1), value=1.0).mT)[
        :, :3
    ]
    pixels = K @ in_camera
    seen = (pixels[:, :2] / pixels[:, 2:]).mT
    torch.testing.assert_close(seen[known], centres[known], rtol=0, atol=1e-9)
    torch.testing.assert_close(
        in_camera[:, 2][known], pooled_depth(depth, 0.001, PATCH)[0][known], rtol=0, atol=1e-12
    )


def _view(**changes: Tensor) -> View:
    K, pose = (torch.from_numpy(each).unsqueeze(0).expand(2, -1, -1) for each in _camera(0))
    given = {
        "depth": torch.ones(2, HEIGHT, WIDTH),
        "intrinsics": K,
        "T_base_camera": pose,
    } | changes
    return View(height=HEIGHT, width=WIDTH, **given)  # type: ignore[arg-type]


def test_a_view_accepts_valid_values() -> None:
    assert (
        _view(depth=torch.tensor([0.0, torch.nan]).repeat(2, HEIGHT, WIDTH // 2)).depth is not None
    )
    assert _view(depth=torch.zeros(2, HEIGHT, WIDTH, dtype=torch.uint16)).depth is not None
    assert View(height=HEIGHT, width=WIDTH).depth is None


def _with(matrix: NDArray[np.float64], row: int, column: int, value: float) -> Tensor:
    changed = torch.from_numpy(matrix).repeat(2, 1, 1)
    changed[1, row, column] = value
    return changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth": torch.ones(2, HEIGHT, 16)}, r"depth has shape \(2, 24, 16\)"),
        ({"depth": torch.ones(HEIGHT, WIDTH)}, r"depth has shape \(24, 32\)"),
        ({"depth": torch.ones(3, HEIGHT, WIDTH)}, r"the same B for all \(got \[2, 3\]\)"),
        (
            {"intrinsics": torch.eye(4).expand(2, 4, 4)},
            r"intrinsics has shape \(2, 4, 4\).*\(B, 3, 3\)",
        ),
        ({"T_base_camera": torch.eye(4)}, r"T_base_camera has shape \(4, 4\).*\(B, 4, 4\)"),
        (
            {"depth": torch.full((2, HEIGHT, WIDTH), -0.5)},
            "depth holds -0.5; allowed: 0 or NaN for no return",
        ),
        ({"depth": torch.full((2, HEIGHT, WIDTH), -3)}, "depth holds -3; allowed"),
        ({"depth": torch.full((2, HEIGHT, WIDTH), torch.inf)}, "depth holds inf; allowed"),
        (
            {"intrinsics": _with(_camera(0)[0], 0, 0, 0.0)},
            r"intrinsics holds \[\[0.0, 0.7.*with fx and fy other than 0",
        ),
        ({"intrinsics": _with(_camera(0)[0], 1, 1, torch.nan)}, "intrinsics holds .*nan"),
        (
            {"intrinsics": _with(_camera(0)[0], 2, 2, 0.0)},
            r"intrinsics holds .*\[0.0, 0.0, 0.0\]\]; allowed",
        ),
        ({"T_base_camera": _with(_camera(0)[1], 1, 3, torch.nan)}, "T_base_camera holds nan"),
    ],
)
def test_a_view_rejects_invalid_values(changes: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _view(**changes)


def test_a_depth_unit_that_is_not_positive_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"depth_unit_m must be a number above 0 \(got 0\)"):
        View(height=HEIGHT, width=WIDTH, depth_unit_m=0)


def test_a_view_compiles_as_one_graph() -> None:
    """Values are not checked during compilation; the result is the same."""
    K, pose = (torch.from_numpy(each).unsqueeze(0).float() for each in _camera(0))
    depth = torch.from_numpy(_depth(0)).unsqueeze(0).float()

    def places(depth: Tensor, K: Tensor, pose: Tensor) -> Tensor:
        view = View(height=HEIGHT, width=WIDTH, depth=depth, intrinsics=K, T_base_camera=pose)
        assert view.depth is not None
        return patch_places(view.depth, 0.001, K, pose, PATCH)[0]

    compiled = torch.compile(places, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(depth, K, pose), places(depth, K, pose))
