"""The built-in arms of MuJoCo Menagerie: kinematics equal those of the published models.

The models are read from the folder `MENAGERIE_ROOT`; without it, the files of the arms are compared
with models that have the same names.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.datasets.embodiments.kinematics import largest_error

from stringline import load_embodiment
from stringline.datasets.embodiments.embodiment_file import compile_embodiment
from stringline.datasets.embodiments.embodiment_source import _BUILT_IN, load_parts, menagerie_names

ROOT = os.environ.get("MENAGERIE_ROOT")


def test_the_arms_are_listed() -> None:
    assert menagerie_names() == [
        "fr3", "iiwa14_flange", "panda", "so101", "so_arm100", "ur10e", "ur5e", "vx300s",
        "wx250s", "xarm7",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no arm of menagerie 'ur5'. Did you mean 'ur5e'"):
        load_embodiment("menagerie:ur5")


@pytest.mark.parametrize("name", menagerie_names())
def test_the_files_fit_models_of_the_same_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plain = yaml.safe_load((_BUILT_IN / f"{name}.yaml").read_text())
    assert plain["name"] == name
    path = tmp_path / plain["model"].removeprefix("menagerie:")
    path.parent.mkdir()
    path.write_text(stand_in(plain))
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    model, file = load_parts(f"menagerie:{name}")
    arm = compile_embodiment(model, file)
    assert largest_error(model, file, arm) < 1e-9
    assert [joint.kind for joint in arm.joints].count("gripper") == 1
    assert all(joint.velocity > 1 for joint in arm.joints)


def stand_in(plain: dict[str, dict[str, dict[str, str | dict[str, str]]]]) -> str:
    """Returns a model with drawn lengths that has the frames and joints of an arm's file."""
    random = np.random.default_rng(0)
    arm = plain["arms"]["arm"]
    grip = arm["gripper"]
    assert isinstance(grip, dict)
    finger = (
        f'<body><joint name="{grip["joint"]}" type="slide"/><geom size="0.01"/></body>'
        if "joint" in grip
        else ""
    )
    inner = f'<site name="{arm["tcp"]}" pos="0 0 0.1"/>{finger}'
    for joint in reversed(list(plain["joints"])):
        place = random.uniform(-0.3, 0.3, 3)
        turn = random.uniform(-180, 180, 3)
        axis = random.normal(size=3)
        numbers = [" ".join(map(str, values)) for values in (place, turn, axis)]
        inner = (
            f'<body pos="{numbers[0]}" euler="{numbers[1]}"><geom size="0.03"/><joint '
            f'name="{joint}" axis="{numbers[2]}" range="-170 170"/>{inner}</body>'
        )
    foot = f'<body name="{arm["base"]}" pos="0.1 0.2 0.3">{inner}</body>'
    return f'<mujoco><compiler autolimits="true"/><worldbody>{foot}</worldbody></mujoco>'


@pytest.mark.skipif(ROOT is None, reason="no folder with MuJoCo Menagerie")
@pytest.mark.parametrize("name", menagerie_names())
def test_the_kinematics_are_those_of_the_published_model(name: str) -> None:
    model, file = load_parts(f"menagerie:{name}")
    arm = compile_embodiment(model, file)
    assert largest_error(model, file, arm) < 1e-9
    forward = arm.forward_kinematics(arm.home)["arm"]
    assert np.isfinite(forward).all()
    assert np.linalg.norm(forward[:3, 3]) < 1.5
