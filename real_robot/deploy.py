"""`stringline-deploy`: runs a checkpoint on arms, real or emulated, behind the safety filter."""

from omegaconf import DictConfig, OmegaConf

from stringline.datasets.application import run

NOT_DONE = 3


def main() -> None:
    """The command `stringline-deploy`; its exit code is 3 when the task was not done, or a fault stopped the arms."""
    run("deploy", _deploy, stopped="Stopped. Arms with torque hold where they are.")


def _deploy(config: DictConfig) -> None:
    # Imported here: the device process, when it is spawned, imports this module, and torch has no place beside its loop.
    from stringline.real_robot.deployment import Deployment

    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    if not Deployment({str(key): value for key, value in settings.items()}).run():
        raise SystemExit(NOT_DONE)


if __name__ == "__main__":
    main()
