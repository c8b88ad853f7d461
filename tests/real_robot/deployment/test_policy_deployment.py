"""The deployment of a policy: its checks and refusals, and episodes on emulated arms."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from stringline import ALOHA, Camera, EpisodeStore
from stringline.datasets.loading.statistics import Statistics, statistics_of
from stringline.policies.checkpoints.load import build_policy, save_policy
from stringline.real_robot.deployment.deployment_settings import DeploymentSettings
from stringline.real_robot.deployment.policy_deployment import PolicyDeployment

SMALL = (
    "policy.dim=32",
    "policy.depth=1",
    "policy.observation_encoder.dim=32",
    "policy.observation_encoder.depth=2",
    "policy.chunk=30",
    "policy.noise_samples=2",
    "policy.sampling_steps=2",
)
CAMERAS = ("overhead", "wrist_left", "wrist_right", "table")


def settings(*overrides: str) -> DeploymentSettings:
    chosen = ["record=null", "log.folder=null", *overrides]
    with initialize_config_module("stringline.configs", version_base="1.3"):
        composed = OmegaConf.to_container(compose("deploy", overrides=chosen), resolve=True)
    assert isinstance(composed, dict)
    return DeploymentSettings.of({str(key): value for key, value in composed.items()})


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy that stays near the home pose."""
    return saved(tmp_path_factory.mktemp("deployment") / "checkpoint")


def saved(folder: Path, *overrides: str, instructions: Sequence[str] = ()) -> Path:
    with initialize_config_module("stringline.configs", version_base="1.3"):
        chosen = ["+policy=diffusion", "+encoder=cayley", "+coordinates=metric", "+depth=colours"]
        composed = compose(overrides=[*chosen, *SMALL, *overrides])
    model = OmegaConf.to_container(composed.policy, resolve=True)
    assert isinstance(model, dict)
    plain = {str(key): value for key, value in model.items()}
    torch.manual_seed(0)
    contract = ALOHA.contract([Camera(name, 32, 32, "simulated") for name in CAMERAS], 50.0)
    rows = np.stack([ALOHA.home - 0.1, ALOHA.home + 0.1])
    measured = {key: statistics_of(lambda: iter([rows])) for key in ("action", "joints/position")}
    statistics = Statistics(measured, instructions=instructions)
    save_policy(folder, build_policy(plain, contract, statistics), plain, {})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lock_step", "execution"),
    [(True, "receding_horizon"), (False, "receding_horizon"), (False, "real_time_chunking")],
)
def test_an_episode_on_emulated_arms(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], *, lock_step: bool, execution: str
) -> None:
    how = (f"robot.lock_step={lock_step}", f"execution={execution}", "execute_steps=24")
    chosen = settings(f"checkpoint={checkpoint}", "task.time_limit_s=1.0", *how)
    assert not PolicyDeployment(chosen).run()
    printed = capsys.readouterr().out
    assert "ok      ports and servos: 18 servos answer and are configured correctly" in printed
    assert "The safety filter" in printed
    assert "furthest stage: start." in printed


@pytest.mark.slow
def test_a_policy_with_a_pretrained_encoder_on_emulated_arms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = "policy.observation_encoder.images"
    network = (
        "policy/observation_encoder=pretrained",
        f"{images}.name=vit_small_patch16_dinov3",
        f"{images}.size=48",
        f"+{images}.options={{depth: 1, embed_dim: 32, num_heads: 2}}",
    )
    checkpoint = saved(tmp_path / "checkpoint", *network)
    chosen = settings(f"checkpoint={checkpoint}", "task.time_limit_s=0.5", "execute_steps=24")
    assert not PolicyDeployment(chosen).run()
    assert "furthest stage: start." in capsys.readouterr().out


def test_without_hardware_the_missing_ports_are_named(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="Not started") as refused:
        PolicyDeployment(settings(f"checkpoint={checkpoint}", "robot=aloha")).run()
    message = str(refused.value)
    assert "/dev/ttyDXL_follower_left cannot be opened: No such file or directory." in message
    assert "/dev/ttyDXL_follower_right cannot be opened" in message
    assert "There is no camera 'overhead'. Allowed: none." in message
    assert "FAILED  ports and servos" in capsys.readouterr().out


@pytest.mark.slow
def test_a_policy_receives_its_instruction(tmp_path: Path) -> None:
    """The instruction of the task, or another one; an unknown one is refused before any motion."""
    known = ["hand over the banana and put it into the bowl", "wave"]
    checkpoint = saved(tmp_path / "told", "+instruction=task", instructions=known)
    chosen = (
        f"checkpoint={checkpoint}",
        "mode=dry_run",
        "task.time_limit_s=0.1",
        f"output={tmp_path}",
    )
    for more in ((), ("prompt=wave",)):
        assert not PolicyDeployment(settings(*chosen, *more)).run()
    with pytest.raises(ValueError, match="Not started") as refused:
        PolicyDeployment(settings(*chosen, "prompt=wive")).run()
    assert "There is no instruction 'wive'. Did you mean 'wave'" in str(refused.value)


@pytest.mark.slow
def test_the_record_of_the_training_has_the_instruction(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An instruction, an execution and a task that differ from the record lead to a warning."""
    checkpoint = saved(tmp_path / "told", "+instruction=task", instructions=["give it", "wave"])
    description = yaml.safe_load((checkpoint / "checkpoint.yaml").read_text())
    description["training"] = {
        "tasks": {"hand_over_banana": "give it"},
        "instructions": ["give it", "wave"],
        "execution": {"name": "receding_horizon", "delay_s": 0.0, "execute_steps": 24},
    }
    (checkpoint / "checkpoint.yaml").write_text(yaml.safe_dump(description))
    deployed = settings(f"checkpoint={checkpoint}", "mode=dry_run", "task.time_limit_s=0.1")
    assert not PolicyDeployment(replace(deployed, output=tmp_path)).run()
    assert not caplog.messages
    others = ("execute_steps=12", "task=mug_on_plate", "prompt=clap", "robot=aloha")
    with pytest.raises(ValueError, match="Not started"):
        PolicyDeployment(settings(f"checkpoint={checkpoint}", *others)).run()
    (printed,) = [message for message in caplog.messages if "recorded" in message]
    assert printed.endswith(
        "recorded task=hand_over_banana, prompt=give it or wave, execute_steps=24; this command "
        "has task=mug_on_plate, prompt=clap, execute_steps=12."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("task.control_hz=25", "control_hz: 50.0 is required, 25.0 is offered."),
        ("task.cameras=[overhead,wrist_left]", "There is no camera 'wrist_right'."),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    checkpoint: Path, override: str, message: str
) -> None:
    with pytest.raises(ValueError, match="Not started") as refused:
        PolicyDeployment(settings(f"checkpoint={checkpoint}", override)).run()
    assert message in str(refused.value)


def test_a_missing_checkpoint_is_named_before_anything_moves() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        PolicyDeployment(settings("checkpoint=/nowhere/at/all", "robot=aloha")).run()


def test_only_emulated_arms_run_in_lock_step() -> None:
    with pytest.raises(ValueError, match="Only an emulated robot can run in lock-step"):
        PolicyDeployment(settings("checkpoint=x", "robot=aloha", "robot.lock_step=true"))


def test_a_delay_is_measured_in_real_time_only() -> None:
    with pytest.raises(
        ValueError,
        match="In lock-step the world waits for the policy, so a delay cannot be measured",
    ):
        PolicyDeployment(
            settings("checkpoint=x", "execution=real_time_chunking", "execution.delay_s=measured")
        )
    with pytest.raises(
        ValueError, match="no execution 'real_time'. Did you mean 'real_time_chunking'"
    ):
        PolicyDeployment(settings("checkpoint=x", "execution.name=real_time"))


@pytest.mark.slow
def test_a_dry_run_computes_and_moves_nothing(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = settings(
        f"checkpoint={checkpoint}", "mode=dry_run", "task.time_limit_s=0.5", f"output={tmp_path}"
    )
    assert not PolicyDeployment(chosen).run()
    printed = capsys.readouterr().out
    assert "Deploying to aloha_emulated, mode dry_run" in printed
    assert "50 commands were computed and none was sent; 0 more were not seen." in printed
    assert len((tmp_path / "commands.csv").read_text().splitlines()) == 51


@pytest.mark.slow
def test_a_shadow_goes_beside_the_arms_and_all_is_recorded(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [f"record={tmp_path / 'store'}", f"log.folder={tmp_path / 'log'}"]
    chosen = settings(
        f"checkpoint={checkpoint}",
        "mode=shadow",
        "robot.lock_step=false",
        "task.time_limit_s=1.0",
        *kept,
    )
    assert not PolicyDeployment(chosen).run()
    printed = capsys.readouterr().out
    assert "Arms and twin, over " in printed
    assert "Operator keys need a terminal; Ctrl-C makes the arms hold." in printed
    assert "Recorded as hand_over_banana.0001000000." in printed, printed
    for line in ("cycle:       median ", "jitter:      median ", "command age: median "):
        assert line in printed
    store = EpisodeStore.open(tmp_path / "store")
    (name,) = store.names()
    assert store.verify(name) == []
    assert store.episode(name).attributes.source == "deployment"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("mode=dryrun",), "There is no mode of deployment 'dryrun'. Did you mean 'dry_run'"),
        (("mode=teleop",), "mode=teleop has no policy"),
        (("mode=calibrate",), "mode=calibrate has no policy"),
        *(
            (
                (chosen,),
                "mode=shadow, take_over and episodes run in real time: robot.lock_step=false",
            )
            for chosen in ("mode=shadow", "take_over=leaders", "take_over=page", "episodes=2")
        ),
        (("take_over=pag",), "There is no take_over 'pag'. Did you mean 'page'"),
        (("episodes=0",), "episodes must be an integer of at least 1"),
        (
            ("take_over=leaders", "robot=kuka_emulated", "robot.lock_step=false"),
            "kuka_emulated has no leaders: .*take_over=page",
        ),
        (("seed=-1",), r"seed must be an integer of at least 0 \(got -1\)"),
        (("seconds=0",), r"seconds must be a number above 0 \(got 0\)"),
        (("robot.device_hz=0",), r"robot.device_hz must be a number above 0 \(got 0.0\)"),
        (("robot.home_s=-1",), r"robot.home_s must be a number of at least 0 \(got -1\)"),
        (
            ("view=here",),
            "view is 'here'; allowed: null, spawn, FILE.rrd, or rerun.http://HOST:PORT/proxy",
        ),
        (
            ("take_over=page", "mode=dry_run", "robot.lock_step=false"),
            "A dry run moves no arms: take_over=null episodes=1",
        ),
    ],
)
def test_contradictory_modes_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolicyDeployment(settings("checkpoint=x", *overrides))


def test_real_arms_do_not_move_without_a_limits_file(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="limits file: real arms need one") as refused:
        PolicyDeployment(settings(f"checkpoint={checkpoint}", "robot=aloha")).run()
    assert "Not started" in str(refused.value)
    file = tmp_path / "limits.yaml"
    file.write_text("table_height: 0.01\n")
    with pytest.raises(ValueError, match="Not started") as refused:
        PolicyDeployment(
            settings(f"checkpoint={checkpoint}", "robot=aloha", f"robot.limits_file={file}")
        ).run()
    assert "limits file" not in str(refused.value)
