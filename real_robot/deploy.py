"""`stringline-deploy`: runs a checkpoint, or a person with leaders, on arms behind the safety filter; or calibrates cameras."""

from omegaconf import DictConfig, OmegaConf

from stringline.datasets.command.application import run
from stringline.real_robot.deployment.modes import DeploymentMode
from stringline.real_robot.ipc.group_signals import end_as_by_ctrl_c

NOT_DONE = 3


def main() -> None:
    """The command `stringline-deploy`; its exit code is 3 when what was to be done was not, or a fault stopped the arms."""
    run("deploy", _deploy, stopped="Stopped. Arms with torque hold where they are.")


def _deploy(config: DictConfig) -> None:
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    settings = {str(key): value for key, value in plain.items()}
    end_as_by_ctrl_c()
    # Imported here: the device process, when it is spawned, imports this module, and torch has no
    # place beside its loop.
    mode = DeploymentMode.named(str(settings["mode"]))
    if settings.get("calibration") is not None and mode is not DeploymentMode.CALIBRATE:
        raise ValueError(f"calibration=... is for mode=calibrate; the mode is {mode}.")
    if mode is DeploymentMode.TELEOP:
        from stringline.real_robot.deployment.teleop_deployment import LedDeployment

        done = LedDeployment(settings).run()
    elif mode is DeploymentMode.CALIBRATE:
        from stringline.real_robot.calibration.calibration_session import CalibrationDeployment

        done = CalibrationDeployment(settings).run()
    else:
        from stringline.real_robot.deployment.policy_deployment import Deployment

        done = Deployment(settings).run()
    if not done:
        raise SystemExit(NOT_DONE)


if __name__ == "__main__":
    main()
