"""Cells of places and of the actions that fit them, on tasks of ALOHA.

`joints` is the default: absolute joints, metric positions in the base frame. The other choices have
gripper poses relative to the measured ones, grippers that open and close, a last action that
remains the target for a second, and augmented images, as the looks of `kuka_pick-v2`. They
differ in places: columns and rows, metres in the base frame, metres in the frames of the measured
grippers (together in each plane, or one for each half of the heads), in those and the base frame,
and in those with action tokens at the noisy pose and learned places in patches. All have relative
values. Choices that end with `_plain` or `_home` have demonstrations of plain or varied experts
from the home pose, with disturbances, and their evaluation starts there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evidence_cells import (
    CAMERAS,
    EXPERTS,
    GRIPPERS,
    GRIPPERS_NOISY_LEARNED,
    HOME_START,
    METRES,
    POSES,
    experts_of,
)
from evidence_choices import ChoiceCell
from evidence_recipe import COMPILED, EARLY, RUNS, Scale
from evidence_tasks import CAMPAIGN, STORED

TASKS = ("bowl_on_rack", "mug_on_plate", "hand_over_banana")
CHOICES = {
    "grippers": GRIPPERS,
    "joints": ["coordinates=metric"],
    "base": [*POSES, *METRES],
    "grid": [*POSES, "coordinates=grid"],
    "grippers_heads": [*GRIPPERS, "policy.observation_encoder.frames.by=heads"],
    "base_and_grippers": [*POSES, *METRES, "frames=base_and_grippers"],
    "grippers_noisy_learned": GRIPPERS_NOISY_LEARNED,
}
CHOICES |= {
    name: CHOICES[name.removesuffix(experts_of(name))]
    for name in ("joints_plain", "joints_home", "grippers_noisy_learned_plain")
}
WORLDS: dict[str, dict[str, object]] = {
    "": {},
    "raised_table": {"table_height": 0.05},
    "lowered_table": {"table_height": -0.05},
    "distractors": {"distractors": 1.0},
    "camera_pose": {"camera_pose": 1.0},
}
SCALES = {"small": Scale(100, 3000, 48), "large": Scale(150, 8000, 128)}


@dataclass(frozen=True)
class PlacesCell(ChoiceCell):
    """One of `CHOICES` in one of `WORLDS`."""

    family: ClassVar[str] = "places"
    scales: ClassVar[Mapping[str, Scale]] = SCALES
    worlds: ClassVar[Mapping[str, Mapping[str, object]]] = WORLDS

    @property
    def store(self) -> Path:
        """The demonstrations, which the policy of twelve tasks shares."""
        return RUNS / CAMPAIGN / f"{self.task}{experts_of(self.choice)}_{self.scale}"

    @property
    def start(self) -> Mapping[str, object]:
        """Options of the task that set the start of the arms."""
        return HOME_START if experts_of(self.choice) else {}

    @property
    def collected(self) -> list[str]:
        """Options of the collection."""
        experts = EXPERTS.get(experts_of(self.choice), [])
        return ["first_seed=10000", "lost_grasps=0.2", *STORED, *experts]

    @property
    def trained(self) -> list[str]:
        """Options of the training."""
        return [
            "policy=diffusion",
            CAMERAS,
            "encoder=cayley_per_head",
            *CHOICES[self.choice],
            *COMPILED,
            *EARLY,
        ]


def places_cells() -> list[PlacesCell]:
    """Returns the cells of all tasks, the most informative first."""
    worlds = [""], list(WORLDS)[1:]
    return [
        PlacesCell(task, choice, seed, scale, world)
        for scale in SCALES
        for chosen in worlds
        for seed in range(3)
        for task in TASKS
        for choice in CHOICES
        for world in chosen
    ]
