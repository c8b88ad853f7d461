"""The tutorials are followed step by step, at small sizes, in an empty folder.

Most are followed by `-m stress` only. `tests/sim/test_my_robot_page.py` follows docs/my-robot.md in
every run of the tests.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Reader

DOCS = ROOT / "docs"
PLACED = re.compile(r"(\d+) % of the image tokens have a position")
WORLD = ("task.image_size=32", "task.frame_hz=5")
NETWORK = (
    "policy.dim=32",
    "policy.depth=1",
    "policy.observation_encoder.dim=32",
    "policy.observation_encoder.depth=1",
)
COLLECTION = ("episodes=1", "workers=1", *WORLD)
TRAINING = (
    "trainer.steps=2",
    "trainer.batch_size=4",
    "trainer.compile=false",
    "validation_windows=0",
    *NETWORK,
)
KEYPOSES = (
    *TRAINING[: -len(NETWORK)],
    "policy.observation_encoder.dim=48",
    "policy.observation_encoder.depth=1",
    "policy.observation_encoder.voxels.tokens=24",
)
EVALUATION = ("seeds=1", "workers=1", "task.time_limit_s=0.6", "task.frame_hz=5")
SMALLER: Mapping[str, Sequence[str]] = {
    "stringline-collect": COLLECTION,
    "stringline-train": TRAINING,
    "stringline-eval": EVALUATION,
    "stringline-deploy": ("task.time_limit_s=1.0",),
}


@dataclass(frozen=True)
class Page:
    """A page that is followed.

    Attributes:
        results: Files that exist afterwards.
        smaller: Overrides by console script.
        replaced: Text of the page's files and snippets that is replaced.
        stress: Whether only long runs of the tests follow the page.
        placed: Least share of image tokens with a position, in %, for each of the trainings of the
            page in metric coordinates; empty: the page has none.
    """

    results: Sequence[str]
    smaller: Mapping[str, Sequence[str]] = field(default_factory=lambda: SMALLER)
    replaced: Mapping[str, str] = field(default_factory=dict)
    stress: bool = True
    placed: Sequence[int] = ()


FOLLOWED = {
    "tutorials/own-task.md": Page(
        ("runs/block/evaluation/report.html",), replaced={"SEEDS = 20": "SEEDS = 1"}
    ),
    "tour.md": Page(("runs/tour/demonstrations.html", "runs/tour/every_12/report.html")),
    "tutorials/mug.md": Page(
        ("runs/mug/demonstrations.html", "runs/mug/evaluation/report.html"),
        smaller={**SMALLER, "stringline-train": KEYPOSES},
    ),
    "tutorials/own-data.md": Page(
        ("runs/own.html", "runs/own.rrd", "runs/own_evaluation/report.html")
    ),
    "tutorials/any-arm.md": Page(("runs/arm.rrd", "runs/arm_evaluation/report.html")),
    "tutorials/rgbd-data.md": Page(
        ("runs/rgbd_evaluation/report.html",),
        # The clouds of smaller images have too few points to be compared.
        smaller={**SMALLER, "stringline-collect": (*COLLECTION, "task.image_size=128")},
        placed=(91,),
    ),
    "tutorials/cluster.md": Page(
        tuple(
            f"runs/many/evaluation_{task}/results.jsonl"
            for task in ("hand_over_banana", "mug_on_plate")
        )
    ),
    "tutorials/corrections.md": Page(
        ("runs/corrected/training/checkpoint", "runs/corrected/after/report.html"),
        smaller={
            "stringline-collect": ("episodes=1", "workers=1"),
            "stringline-train": TRAINING[:4],
            "stringline-eval": EVALUATION,
        },
    ),
    "tutorials/own-policy.md": Page(
        ("runs/eval/report.html", "runs/few/checkpoint"),
        smaller={**SMALLER, "stringline-train": TRAINING[:4]},
    ),
    "tutorials/own-network.md": Page(()),
    "tutorials/to-the-robot.md": Page(
        ("runs/dry_run/commands.csv", "runs/deployments/zarr.json"),
        {"stringline-deploy": ("task.time_limit_s=1.0", "seconds=2")},
    ),
}


FOLLOWED_ELSEWHERE = {"tutorials/compare-encodings.md"}  # By tests/sim/test_experiment.py.


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.stress] if page.stress else [])
        for name, page in FOLLOWED.items()
    ],
)
def test_pages_lead_to_their_results(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = FOLLOWED[name]
    Reader(tmp_path, monkeypatch, page.smaller, page.replaced).run(DOCS / name)
    assert [result for result in page.results if not (tmp_path / result).exists()] == []
    if page.placed:
        shares = [int(share) for share in PLACED.findall(capsys.readouterr().err)]
        assert len(shares) == len(page.placed)
        assert all(share >= least for share, least in zip(shares, page.placed, strict=True)), shares


def test_every_tutorial_is_followed() -> None:
    pages = {path.relative_to(DOCS).as_posix() for path in (DOCS / "tutorials").glob("*.md")}
    assert pages <= FOLLOWED.keys() | FOLLOWED_ELSEWHERE
