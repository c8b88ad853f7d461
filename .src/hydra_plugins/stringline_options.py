"""Hydra's plug-ins of Stringline, in the package where Hydra looks for them."""

from stringline.datasets.command.choices import DeclaredOptions, PackagedConfigs

__all__ = ["DeclaredOptions", "PackagedConfigs"]
