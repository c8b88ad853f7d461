"""`stringline-deploy`: runs a checkpoint on arms, real or emulated, behind the safety filter."""

from omegaconf import DictConfig, OmegaConf

from stringline.datasets.application import run


def main() -> None:
    """The command `stringline-deploy`."""
    run("deploy", _deploy)


def _deploy(config: DictConfig) -> None:
    # Imported here: the device process, when it is spawned, imports this module, and torch has no place beside its loop.
    from stringline.real_robot.deployment import Deployment

    settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(settings, dict)
    Deployment({str(key): value for key, value in settings.items()}).run()


if __name__ == "__main__":
    main()
