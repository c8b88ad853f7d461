"""Cells that compare encodings, and kinds of policies, on tasks of ALOHA."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from evidence_recipe import (
    EARLY,
    EVALUATED,
    RUNS,
    Cell,
    Scale,
    arithmetic,
    demonstrations,
    measured,
)

TASKS = ("hand_over_banana", "bowl_on_rack", "mug_on_plate")
# In gym-aloha's own worlds; they need the extra `third-party`.
THIRD_PARTY_TASKS = ("gym_aloha_transfer_cube", "gym_aloha_insertion")
ENCODINGS = {
    "none": "encoder=none",
    "rope_mixed": "encoder=rope_mixed encoder.values=false",
    "rope_mixed_values": "encoder=rope_mixed encoder.values=true",
    "circulant": "encoder=circulant encoder.values=false",
    "circulant_values": "encoder=circulant encoder.values=true",
    "cayley": "encoder=cayley encoder.values=false",
    "cayley_values": "encoder=cayley encoder.values=true",
    "cayley_per_head_values": "encoder=cayley_per_head encoder.values=true",
}
# All kinds have the same observation encoder, and are trained and evaluated by the same recipe. ACT
# has its published chunk, divergence and layers, but the width of the others: with the published
# width it has 34 million parameters, too many for training on a CPU. The energy policy has four
# steps and two negatives instead of eight and four, with which training would take three times as
# long.
POLICIES = {
    "diffusion": "policy=diffusion",
    "flow": "policy=flow",
    "act": "policy=act policy/observation_encoder=places policy.dim=128 policy.feed_forward=512",
    "energy": "policy=energy policy.negatives=2 policy.sampling_steps=4",
}
COORDINATES = ("metric", "grid")
# The default when the first cells were trained; it is all cameras of the store now.
CAMERAS = "policy.observation_encoder.cameras=[overhead,wrist_left,wrist_right]"
OVERHEAD = "policy.observation_encoder.cameras=[overhead]"
POSES = [
    "action=gripper_poses",
    "gripper=open_close",
    "dataset.pad_last_action_s=1.0",
    "augmentation=standard",
]
# As long in proportion to the scene as the default ones of columns and rows.
METRES = ["coordinates=metric", "coordinates.wavelengths=[0.16,5.0]"]
LEARNED_PLACES = "policy.observation_encoder.learned_places=true"
GRIPPERS = [*POSES, *METRES, "frames=grippers"]
GRIPPERS_NOISY_LEARNED = [
    *GRIPPERS,
    "action_places=noisy_pose",
    LEARNED_PLACES,
]
# Demonstrations of other experts, by the end of a choice's name. Arms start at home, also in the
# evaluation. Plain experts act in one way, so only disturbances show the states around it.
HOME_START = {"start_spread": 0.0}
AT_HOME = ["noise_rad=0.03"]
EXPERTS = {"_plain": ["varied=false", *AT_HOME], "_home": AT_HOME}


def experts_of(choice: str) -> str:
    """Returns the end of a choice's name in `EXPERTS`, or an empty text."""
    return next((end for end in EXPERTS if choice.endswith(end)), "")


# Trained on the colours of the demonstrations alone: cameras and coordinates. Columns and rows read
# no depth anyway.
WITHOUT_DEPTH = {
    "rays": [
        CAMERAS,
        "coordinates=rays",
        "coordinates.places.depth_m={}",
        "coordinates.places.spread=0.2",
    ],
    "rays_moving": [CAMERAS, "coordinates=rays"],
    "rays_static": [
        "policy.observation_encoder.cameras=[overhead,table]",
        "coordinates=rays",
    ],
    # The camera of the peers, calibrated. The table of gym-aloha is about 3 cm above the base
    # frame, and the middle of the objects on it about 5 cm. A patch covers 15 cm, the cube 4.
    "rays_overhead": [
        OVERHEAD,
        LEARNED_PLACES,
        "coordinates=rays",
        "coordinates.places.plane_m=0.05",
    ],
}
# One fixed camera: as in ACT's simulation and in lerobot's policies, colours alone
# (`grid_overhead`); with depth, where a patch starts at what is highest in it (`metric_overhead`).
ONE_CAMERA = {
    "grid_overhead": [OVERHEAD, "coordinates=grid"],
    "metric_overhead": [
        OVERHEAD,
        LEARNED_PLACES,
        "coordinates=metric",
    ],
}
# Small cells of diffusion take eight steps, the default when the first ones were measured; it is
# ten now.
SCALES = {
    "small": Scale(100, 1550, 48),
    "medium": Scale(200, 1550, 48),
    "longer": Scale(100, 3000, 48),
    "large": Scale(400, 8000, 128),
}
COLLECTED = ["first_seed=10000", "noise_rad=0.03", "varied=false"]
# By task and scale: disturbances of 0.03 rad leave 40 % of the attempts at an insertion.
COLLECTED_OTHERWISE = {
    ("gym_aloha_insertion", "longer"): ["first_seed=10000", "noise_rad=0.005", "varied=false"],
}


@dataclass(frozen=True)
class EncodingCell(Cell):
    """One cell of the first family."""

    task: str
    encoding: str
    coordinates: str
    seed: int
    scale: str
    policy: str = "diffusion"

    @property
    def name(self) -> str:
        """The path of the cell, which never changes; cells of diffusion name no policy."""
        kind = "" if self.policy == "diffusion" else f"/{self.policy}"
        return f"{self.task}/{self.encoding}/{self.coordinates}/{self.seed}/{self.scale}{kind}"

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        return RUNS / self.name

    @property
    def recipe(self) -> dict[str, object]:
        """Settings of collection, training and evaluation, plain data."""
        trained = [*self.kind, *EARLY]
        return asdict(SCALES[self.scale]) | {
            "collect": [*self.collected, *self.dropped],
            "train": trained,
            "eval": EVALUATED,
        }

    @property
    def kind(self) -> list[str]:
        """Overrides of policy and precision."""
        pinned = (
            ["policy.sampling_steps=8"]
            if (self.policy, self.scale) == ("diffusion", "small")
            else []
        )
        computed = arithmetic(self.scale)
        if self.scale == "longer":
            computed = ["trainer.precision=bf16", "trainer.fused=true"]
        return [*POLICIES[self.policy].split(), *pinned, *computed]

    @property
    def collected(self) -> list[str]:
        """Options of the collection."""
        return COLLECTED_OTHERWISE.get((self.task, self.scale), COLLECTED)

    @property
    def dropped(self) -> list[str]:
        """Options of the training copy without depth."""
        return ["depth_method=none"] if self.coordinates in WITHOUT_DEPTH else []

    @property
    def places(self) -> list[str]:
        """Overrides of cameras and coordinates."""
        return {**WITHOUT_DEPTH, **ONE_CAMERA}.get(
            self.coordinates, [CAMERAS, f"coordinates={self.coordinates}"]
        )

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yields the commands of the cell with their arguments."""
        scale, store = SCALES[self.scale], demonstrations(self.task, self.scale)
        yield (
            "collect",
            [
                f"task={self.task}",
                f"output={store}",
                f"episodes={scale.episodes}",
                *self.collected,
            ],
        )
        if self.dropped:
            colours = store.with_name(f"{store.name}_colours")
            yield "data", ["cache", f"store={store}", f"output={colours}", *self.dropped]
            store = colours
        yield (
            "train",
            [
                f"dataset.path={store}",
                f"output={self.checkpoint.parent}",
                *self.kind,
                *ENCODINGS[self.encoding].split(),
                *self.places,
                f"trainer.steps={scale.steps}",
                f"trainer.batch_size={scale.batch}",
                f"trainer.seed={self.seed}",
                *EARLY,
            ],
        )
        yield "eval", measured(self.task, self.checkpoint, self.evaluation)

    def about(self) -> dict[str, object]:
        """Returns the fields of the cell, plain data."""
        return asdict(self)


COMPARED = (
    "cayley_values",
    "cayley",
    "rope_mixed",
    "none",
    "rope_mixed_values",
    "circulant",
    "circulant_values",
)


def first_cells() -> list[EncodingCell]:
    """Returns the first cells: encodings, policies, and values with twice the data."""
    encodings = [
        EncodingCell(TASKS[0], encoding, "metric", 0, "small") for encoding in COMPARED[:4]
    ]
    kinds = [
        EncodingCell(TASKS[0], COMPARED[0], "metric", 0, "small", policy)
        for policy in ("flow", "act", "energy")
    ]
    return (
        encodings
        + kinds
        + [EncodingCell(TASKS[0], encoding, "metric", 0, "medium") for encoding in COMPARED[:2]]
    )


def colour_cells() -> list[EncodingCell]:
    """Returns the cells of calibrated cameras without depth; without calibration: `grid`."""
    return [
        EncodingCell(TASKS[0], COMPARED[0], "rays", 0, "small"),
        EncodingCell(TASKS[0], "cayley_per_head_values", "rays_static", 0, "longer"),
        *(
            EncodingCell(TASKS[0], "cayley_per_head_values", "rays_moving", seed, "longer")
            for seed in range(3)
        ),
    ]


def cells(scale: str) -> list[EncodingCell]:
    """Returns the cells of encodings at a scale: all seeds, tasks and coordinates."""
    return [
        EncodingCell(task, encoding, coordinates, seed, scale)
        for seed, task, coordinates, encoding in itertools.product(
            (0, 1, 2), TASKS, COORDINATES, COMPARED
        )
        # Without an encoding, coordinates have no effect.
        if (encoding, coordinates) != ("none", "grid")
    ]


def third_party_cells(scale: str) -> list[EncodingCell]:
    """Returns the cells of third-party environments: kinds of policies, and one fixed camera."""
    chosen = [
        (COMPARED[0], "metric", "diffusion"),
        (COMPARED[0], "metric", "flow"),
        (COMPARED[0], "grid_overhead", "diffusion"),
        ("cayley_per_head_values", "rays_overhead", "diffusion"),
        ("cayley_per_head_values", "metric_overhead", "diffusion"),
    ]
    return [
        EncodingCell(task, encoding, coordinates, 0, scale, policy)
        for task in THIRD_PARTY_TASKS
        for encoding, coordinates, policy in chosen
    ]
