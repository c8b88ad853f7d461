"""`stringline-data images` and `stringline-data annotations`."""

import sys
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from stringline.datasets.cameras.image_size import checked_image_size
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.images.coco_writer import write_coco
from stringline.datasets.images.conversion import convert_data_set
from stringline.datasets.images.image_store import ImageStore
from stringline.datasets.images.omissions import Omissions
from stringline.datasets.images.omni3d_writer import write_omni3d

_WRITERS = {"coco": write_coco, "omni3d": write_omni3d}


def convert_images(config: DictConfig) -> None:
    """Converts a data set of labelled images or clips to a store."""
    size = None if config.image_size is None else checked_image_size(config.image_size)
    reader = instantiate(config.image_format, _convert_="all")
    omissions = Omissions()
    store = convert_data_set(reader, Path(config.path), Path(config.store), omissions, size)
    sys.stdout.write(f"{store.path}: {len(store)} {store.kind}.\n{omissions.table()}")


def write_annotations(config: DictConfig) -> None:
    """Writes the images of a store with a JSON file."""
    if config.kind not in _WRITERS:
        raise unknown_name("kind", config.kind, _WRITERS)
    store = ImageStore(config.store)
    omissions = _WRITERS[config.kind](store, Path(config.path))
    sys.stdout.write(f"{config.path}: {len(store)} images.\n{omissions.table()}")
