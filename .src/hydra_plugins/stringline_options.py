"""Hydra's plug-ins of Stringline, in the package where Hydra looks for them."""

from stringline.datasets.command.config_source import DeclaredOptions, PackagedConfigs

__all__ = ["DeclaredOptions", "PackagedConfigs"]
