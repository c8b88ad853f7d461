"""Hydra reads the choices of this package through `choices.py`, in place of the files as they are.

Hydra finds plug-ins in the namespace package `hydra_plugins`, so this holds for whoever composes
the configuration: a command, `hydra.compose`, or another program with its own Hydra configuration.
"""

from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigLoadError, ConfigResult
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from stringline.datasets.command.choices import CONFIGS, choice_names, completed, read_choice
from stringline.datasets.command.class_choices import class_choice, class_names

SCHEME = "stringline"


class DeclaredOptions(FileConfigSource):
    """A folder of files, tables and classes as choices, completed by what classes declare."""

    @staticmethod
    def scheme() -> str:
        """Returns the beginning of paths that this source reads."""
        return SCHEME

    def load_config(self, config_path: str) -> ConfigResult:
        """Returns the content of a choice.

        Raises:
            ValueError: A chosen class cannot be imported.
        """
        folder = Path(self.path)
        path = config_path.removesuffix(".yaml")
        choice = read_choice(folder, path)
        if choice is not None:
            content = completed(folder, path)
            package = choice.package
        elif (made := class_choice(path)) is not None:
            content, package = made
        else:
            raise ConfigLoadError(f"Config not found : {folder / path}")
        return ConfigResult(
            self.provider, self.full_path(), OmegaConf.create(content), {"package": package}
        )

    def is_config(self, config_path: str) -> bool:
        """Returns whether there is a choice of this group and name."""
        path = config_path.removesuffix(".yaml")
        if read_choice(Path(self.path), path) is not None:
            return True
        group, _, name = path.rpartition("/")
        return name in class_names(group, [name])

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Returns the choices and the groups of a folder."""
        names = set(super().list(config_path, ObjectType.GROUP))
        if results_filter == ObjectType.GROUP:
            return sorted(names)
        choices = {*choice_names(Path(self.path), config_path), *class_names(config_path)}
        return sorted(choices if results_filter == ObjectType.CONFIG else choices | names)


class PackagedConfigs(SearchPathPlugin):
    """Reads the folder `configs` of this package by `DeclaredOptions` wherever it is searched."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Replaces the path of the folder."""
        for element in search_path.get_path():
            place = element.path.removeprefix("file://")
            if element.path == "pkg://stringline.configs" or (
                "://" not in place and Path(place).resolve() == CONFIGS.resolve()
            ):
                element.path = f"{SCHEME}://{CONFIGS}"
