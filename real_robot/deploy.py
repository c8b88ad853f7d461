"""`stringline-deploy`: moves arms, calibrates cameras, or checks the timing of this machine."""

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import report_next, run
from stringline.real_robot.ipc.child_process import end_as_by_ctrl_c

NOT_DONE = 3


def main() -> None:
    """Runs the command; its exit code is 3 after a fault, or if the task was not done."""
    stopped = "Stopped. Arms with torque hold where they are."
    run("deploy", _deploy, stopped=stopped, complete=_complete)


def _complete(arguments: Sequence[str]) -> list[str]:
    """Adds the settings of the checkpoint's training that the arguments lack."""
    if not any(argument.startswith("checkpoint=") for argument in arguments):
        return list(arguments)
    # Imported only if needed: calibration takes a second without torch.
    from stringline.sim.evaluation.trained_settings import with_trained_settings

    return with_trained_settings(arguments, contract=True)


def _deploy(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    end_as_by_ctrl_c()
    done = _run({str(key): value for key, value in plain.items()})
    records = plain["mode"] not in ("dry_run", "check") and plain["record"]
    if records and Path(plain["record"]).is_dir():
        report_next("stringline-view", {"store": plain["record"]})
    if not done:
        raise SystemExit(NOT_DONE)


def _run(plain: dict[str, object]) -> bool:
    # Imported here: a spawned device process imports this module, and must not import torch.
    from stringline.real_robot.deployment.deployment_settings import (
        DeploymentMode,
        DeploymentSettings,
    )

    settings = DeploymentSettings.of(plain)
    if settings.mode is DeploymentMode.CHECK:
        from stringline.real_robot.deployment.latency_check import LatencyCheck

        return LatencyCheck(settings).run()
    if settings.mode is DeploymentMode.CALIBRATE:
        from stringline.real_robot.calibration.calibration_session import CalibrationSession
        from stringline.real_robot.calibration.calibration_settings import CalibrationSettings

        return CalibrationSession(settings, CalibrationSettings.of_deployment(plain)).run()
    if plain.get("calibration") is not None:
        raise ValueError(f"calibration=... is for mode=calibrate; the mode is {settings.mode}.")
    if settings.mode is DeploymentMode.TELEOP:
        from stringline.real_robot.deployment.teleop_deployment import TeleopDeployment

        return TeleopDeployment(settings).run()
    from stringline.real_robot.deployment.policy_deployment import PolicyDeployment

    return PolicyDeployment(settings).run()


if __name__ == "__main__":
    main()
