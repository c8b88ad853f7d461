"""Pockets of boards, symmetries of pegs, and gaps between rectangles."""

from collections.abc import Callable

import mujoco
import numpy as np
import pytest
from dm_control import mjcf

from stringline.datasets.embodiments.transforms import Matrix, pose, rotation_about
from stringline.sim.props.insertion_parts import Peg, Pocket, RecessedBoard
from stringline.sim.tasks.placement import box_gap, draw_apart
from stringline.sim.tasks.recess_tasks import Fmb1, Fmb2

Z = (0.0, 0.0, 1.0)


def heights(board: RecessedBoard, points: Matrix) -> Matrix:
    """Returns the heights of the board at points (n, 2), by rays from above."""
    physics = mjcf.Physics.from_mjcf_model(board.mjcf_model)
    model, data, hit = physics.model.ptr, physics.data.ptr, np.zeros(1, np.int32)
    down, groups = np.array([0.0, 0.0, -1.0]), np.ones(6, np.uint8)
    return np.array(
        [
            1.0 - mujoco.mj_ray(model, data, np.array([*p, 1.0]), down, groups, 1, -1, hit)
            for p in points
        ]
    )


def fmb_1_height(x: float, y: float) -> float:
    """Returns the height of FMB's first board at a point, metres, by its published sizes."""
    if (abs(abs(x) - 0.068) < 0.017 and abs(y) < 0.052) or (
        abs(x) < 0.017 and abs(abs(y) - 0.0505) < 0.032
    ):
        return 0.005
    return 0.040 if abs(x) < 0.102 and abs(y) < 0.0205 else 0.050


def fmb_2_height(x: float, y: float) -> float:
    return 0.020 if max(abs(x), abs(y)) < 0.0205 else 0.050


@pytest.mark.parametrize(
    ("task", "height"), [(Fmb1(), fmb_1_height), (Fmb2(), fmb_2_height)], ids=["fmb_1", "fmb_2"]
)
def test_the_board_has_the_heights_of_its_pockets(
    task: Fmb1 | Fmb2, height: Callable[[float, float], float]
) -> None:
    size = np.array(task.board.size[:2])
    points = np.random.default_rng(0).uniform(-size / 2, size / 2, (3000, 2))
    edges = np.array([0.017, 0.0185, 0.0205, 0.051, 0.052, 0.0825, 0.085, 0.102])
    near = edges[:, None] + np.array(
        [-5e-5, 5e-5]
    )  # To either side of every edge: exact to a tenth of a millimetre.
    grid = np.stack(np.meshgrid(near.ravel(), near.ravel()), axis=-1).reshape(-1, 2)
    points = np.concatenate([points, grid[(np.abs(grid) < size / 2).all(axis=1)]])
    wanted = np.array([height(*point) for point in points])
    np.testing.assert_allclose(heights(task.board, points), wanted, atol=1e-9)


def test_a_board_is_heavy_and_of_few_shapes() -> None:
    board = Fmb1().board
    physics = mjcf.Physics.from_mjcf_model(board.mjcf_model)
    assert physics.model.body_mass.sum() == pytest.approx(12.0)
    assert len(board.shapes) <= 25


@pytest.mark.parametrize(
    "pockets",
    [[], [Pocket((0.1, 0.1), 0.05)], [Pocket((0.1, 0.1), 0.01), Pocket((0.1, 0.1), 0.06)]],
)
def test_boards_without_a_pocket_or_with_a_hole_are_refused(pockets: list[Pocket]) -> None:
    with pytest.raises(ValueError, match=r"The deepest pocket has 0\.\d+ m"):
        RecessedBoard(size=(0.2, 0.2, 0.05), pockets=pockets)


@pytest.mark.parametrize(
    ("size", "count"), [((0.2, 0.04, 0.04), 8), ((0.2, 0.1, 0.04), 4), ((0.1, 0.1, 0.1), 24)]
)
def test_symmetries_are_a_group_that_leaves_the_box(
    size: tuple[float, float, float], count: int
) -> None:
    peg = Peg(size=size)
    turns = peg.symmetries()
    assert len(turns) == count
    np.testing.assert_array_equal(turns[0], np.eye(3))
    known = {tuple(np.rint(turn).astype(int).ravel()) for turn in turns}
    for a in turns:
        assert np.linalg.det(a) == pytest.approx(1.0)
        assert {tuple(np.rint(a @ b).astype(int).ravel()) for b in turns} == known
        corners = peg.corners @ a.T
        assert {tuple(c) for c in np.round(corners, 6) + 0.0} == {
            tuple(c) for c in np.round(peg.corners, 6) + 0.0
        }


def test_the_gap_is_that_of_the_sides() -> None:
    half = (0.1, 0.02)
    beside = pose((0.0, 0.1, 0.0))
    assert box_gap(pose(), half, beside, half) == pytest.approx(0.06)
    across = pose((0.2, 0.0, 0.0), rotation_about(Z, np.pi / 2))
    assert box_gap(pose(), half, across, half) == pytest.approx(0.08)
    assert box_gap(pose(), half, pose((0.05, 0.0, 0.0)), half) == pytest.approx(-0.04)


def test_the_gap_is_symmetric_invariant_and_never_above_the_distance() -> None:
    rng = np.random.default_rng(1)
    edge = np.linspace(-1, 1, 41)
    outline = np.concatenate([np.stack([edge, np.full(41, s)], 1) for s in (-1, 1)])
    outline = np.concatenate([outline, outline[:, ::-1]])
    for _ in range(40):
        a, b, moved = (
            pose((*rng.uniform(-0.2, 0.2, 2), 0.0), rotation_about(Z, rng.uniform(-3, 3)))
            for _ in range(3)
        )
        sizes = rng.uniform(0.02, 0.1, (2, 2))
        found = box_gap(a, sizes[0], b, sizes[1])
        assert box_gap(b, sizes[1], a, sizes[0]) == pytest.approx(found)
        assert box_gap(moved @ a, sizes[0], moved @ b, sizes[1]) == pytest.approx(found)
        ends = [
            outline * size @ T[:2, :2].T + T[:2, 3] for T, size in ((a, sizes[0]), (b, sizes[1]))
        ]
        assert found <= np.linalg.norm(ends[0][:, None] - ends[1], axis=-1).min() + 1e-9


def test_draws_repeat_until_the_gap_suffices_or_the_widest_gap_is_kept() -> None:
    def space(a: Matrix, b: Matrix) -> float:
        return float(b[0, 3] - a[0, 3])

    sizes = iter([0.01, 0.05, 0.03, *[0.02] * 100])
    assert space(*draw_apart(lambda: (pose(), pose((next(sizes), 0.0, 0.0))), space, 0.02)) == 0.05
    sizes = iter([0.01, 0.05, 0.06, *[0.02] * 100])
    assert space(*draw_apart(lambda: (pose(), pose((next(sizes), 0.0, 0.0))), space, 0.1)) == 0.06
