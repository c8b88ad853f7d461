"""Cells that compare inputs of depth, after figures 5 and 6 of STRING (arXiv 2502.02562).

KUKA's arm picks up one of 24 objects, observed by a depth sensor with faults; chunks are poses
relative to the measured gripper. The first cells are of version 1 of the study, in which all
episodes start from one pose; those of version 2 are asked now, with a fifth of the demonstrations
losing a grasp. A policy is trained once per look, in distribution, and evaluated
there and under each shift of the suite `kuka_shifts`: each world is a cell of its own, on the same
seeds.

Differences from the paper: its 2D baseline is a pre-trained vision transformer with absolute
positions of columns and rows; ours has cosines and sines of them (`2d`), and nothing is
pre-trained. `channel` and `normals` are that with a fourth channel or with normals.
`string_lifting` is the paper's lifting: Circulant-STRING over column, row and a learned affine
function of the patch's depth, which affects attention only. `lifting` is ours: metres in the base
frame, Cayley-STRING and relative values; `normals_lifting` is that with normals. `2d_values` is
`lifting` with columns and rows instead of metres: the difference is the effect of depth alone.
`2d_attention` is `2d_values` without values: the difference is the effect of relative values alone.

The looks of version 2 separate what places add, all with relative values, frequencies per head,
grippers that open and close, a last action that remains the target for a second, and augmented
images. `lifting` and `2d_values` are as above, `grippers` has places in the frame of the measured
gripper; further looks are that with action tokens at the noisy pose (`noisy`), with learned places
in patches (`learned`), and with both. Their metric wavelengths, 0.16 to 5 m, are as long in
proportion to the scene as those of columns and rows.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from evidence_recipe import (
    COMPILED,
    EARLY,
    EVALUATED,
    ROOT,
    RUNS,
    Cell,
    Scale,
    arithmetic,
    demonstrations,
    measured,
    task_options,
)

TASK = "kuka_pick"
SUITE = ROOT / "configs" / "suite" / "kuka_shifts.yaml"
ABSOLUTE = "encoder=sinusoidal coordinates=grid"
RELATIVE = "encoder=cayley encoder.values=true"
METRES = "encoder=cayley_per_head coordinates=metric coordinates.wavelengths=[0.16,5.0]"
GRIPPERS = f"{METRES} frames=grippers"
NOISY = "action_places=noisy_pose"
LEARNED = "policy.observation_encoder.learned_places=true"
DEPTH_INPUTS = {
    "lifting": f"{RELATIVE} coordinates=metric depth=colours",
    "2d": f"{ABSOLUTE} depth=colours",
    "normals_lifting": f"{RELATIVE} coordinates=metric depth=normals",
    "normals": f"{ABSOLUTE} depth=normals",
    "channel": f"{ABSOLUTE} depth=channel",
    "string_lifting": (
        "encoder=circulant encoder.values=false coordinates=patch_depth depth=colours"
    ),
    "2d_values": f"{RELATIVE} coordinates=grid depth=colours",
    "2d_attention": "encoder=cayley encoder.values=false coordinates=grid depth=colours",
}
PLACES = {
    "grippers_noisy_learned": f"{GRIPPERS} {NOISY} {LEARNED}",
    "2d_values": "encoder=cayley_per_head coordinates=grid",
    "lifting": METRES,
    "grippers_noisy": f"{GRIPPERS} {NOISY}",
    "grippers_learned": f"{GRIPPERS} {LEARNED}",
    "grippers": GRIPPERS,
}
# By the version of the study, in the order of the cells; `PLACES` has its own `lifting`.
LOOKS = {
    1: DEPTH_INPUTS,
    2: PLACES | {look: DEPTH_INPUTS[look] for look in DEPTH_INPUTS if look not in PLACES},
}
# By the version of the study. 2300 steps of version 2 take about 45 minutes on two idle cores, and
# 4400 steps 33 minutes where the processor has matrix units for bfloat16. In the demonstrations of
# `medium_missed`, arms miss some grasps as well.
SCALES = {
    1: {"small": Scale(200, 1550, 48), "large": Scale(400, 8000, 128)},
    2: {
        "small": Scale(200, 2300, 48),
        "medium": Scale(200, 4400, 48),
        "medium_missed": Scale(200, 4400, 48),
        "large": Scale(400, 8000, 128),
    },
}
# Without noise, since success requires that the held object is at rest.
COLLECTED = {
    1: ["first_seed=10000", "+task.options.start_spread=0.0"],
    2: ["first_seed=10000", "+task.options.start_spread=1.0", "lost_grasps=0.2"],
}
MISSED = "missed_grasps=0.4"
TRAINED = [
    "policy.observation_encoder.cameras=[overhead,wrist]",
    "action=gripper_poses",
    *EARLY,
]
# Eight steps, the default when the first cell was trained; it is ten now.
POLICY = {
    1: ["policy=diffusion", "policy.sampling_steps=8"],
    2: [
        "policy=diffusion",
        "gripper=open_close",
        "dataset.pad_last_action_s=1.0",
        "augmentation=standard",
    ],
}
FIRST_WORLDS = ("", "raised_table", "lowered_table")


@dataclass(frozen=True)
class LookCell(Cell):
    """A look in one world.

    Attributes:
        look: One of `LOOKS` of the version.
        seed: Seed of the training.
        scale: One of `SCALES` of the version.
        shift: One of `shifts`; empty in distribution.
        version: Version of the study: 1 with starts at home, 2 with varied starts.
    """

    look: str
    seed: int
    scale: str
    shift: str = ""
    version: int = 2

    @property
    def name(self) -> str:
        """Path of the cell, which never changes; cells of version 1 name no version."""
        shift = f"/{self.shift}" if self.shift else ""
        return f"{self._task}/{self.look}/{self.seed}/{self.scale}{shift}"

    @property
    def folder(self) -> Path:
        """Folder of the files of its look."""
        return RUNS / self._task / self.look / str(self.seed) / self.scale

    @property
    def evaluation(self) -> Path:
        """Folder of the evaluation."""
        return self.folder / "evaluation" / (self.shift or "in_distribution")

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of collection, training and evaluation, plain data."""
        return asdict(SCALES[self.version][self.scale]) | {
            "collect": self._collected,
            "train": self._trained,
            "eval": [*EVALUATED, *self._world()],
        }

    @property
    def _task(self) -> str:
        return TASK if self.version == 1 else f"{TASK}-v{self.version}"

    @property
    def _trained(self) -> list[str]:
        return [
            *POLICY[self.version],
            *TRAINED,
            *LOOKS[self.version][self.look].split(),
            *(COMPILED if self.scale.startswith("medium") else arithmetic(self.scale)),
        ]

    @property
    def _collected(self) -> list[str]:
        missed = [MISSED] if self.scale == "medium_missed" else []
        return [*COLLECTED[self.version], *missed]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell; under a shift only the evaluation."""
        scale = SCALES[self.version][self.scale]
        store = demonstrations(self._task, self.scale)
        if not self.shift or not self.checkpoint.exists():
            yield (
                "collect",
                [
                    f"task={TASK}",
                    f"output={store}",
                    f"episodes={scale.episodes}",
                    *self._collected,
                ],
            )
            yield (
                "train",
                [
                    f"dataset.path={store}",
                    f"output={self.checkpoint.parent}",
                    *self._trained,
                    f"trainer.steps={scale.steps}",
                    f"trainer.batch_size={scale.batch}",
                    f"trainer.seed={self.seed}",
                ],
            )
        yield "eval", [*measured(TASK, self.checkpoint, self.evaluation), *self._world()]

    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""
        return {"task": TASK, **asdict(self)}

    def _world(self) -> list[str]:
        videos = ["videos=false"] if self.shift else []
        options = {**shifts()[self.shift], "start_spread": float(self.version - 1)}
        return [*task_options(options), *videos]


def shifts() -> dict[str, dict[str, float]]:
    """Returns the options of each world of the suite by name; "" is the training world."""
    entries = yaml.safe_load(SUITE.read_text(encoding="utf-8"))["entries"]
    return {
        entry.get("variation", ""): dict(entry.get("options", {}))
        for entry in entries
        if entry["task"] == TASK
    }


def look_cells(scale: str, seed: int = 0, version: int = 2) -> list[LookCell]:
    """Returns the cells of a scale and a version of the study, the most informative first.

    In distribution and at both tables, the two looks of figure 6, then the others one by one; after
    that all other shifts.
    """
    looks = list(LOOKS[version])
    two, others = looks[:2], looks[2:]
    plain, tables = FIRST_WORLDS[:1], FIRST_WORLDS[1:]
    first = [
        LookCell(look, seed, scale, world, version)
        for worlds in (plain, tables)
        for look in two
        for world in worlds
    ]
    second = [
        LookCell(look, seed, scale, world, version) for look in others for world in FIRST_WORLDS
    ]
    third = [LookCell(look, seed, scale, world, version) for world in shifts() for look in looks]
    return list(dict.fromkeys([*first, *second, *third]))
