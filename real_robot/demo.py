"""`stringline-demo`: the whole chain with one command, from nothing to a policy on (emulated) arms and a report about it."""

from omegaconf import DictConfig

from stringline.datasets.command.application import run


def main() -> None:
    """The command `stringline-demo`."""
    run("demo", _demo)


def _demo(config: DictConfig) -> None:
    # Imported here: processes that are spawned to simulate import this module, and have no use for
    # torch.
    from stringline.real_robot.showcase.demo_chain import DemoChain

    DemoChain(config).run()
