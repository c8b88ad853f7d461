"""Conversion of data sets to stores of labelled images."""

from pathlib import Path

from stringline.datasets.images.image_store import ImageStore, ImageWriter
from stringline.datasets.images.labelled_image import LabelledClip
from stringline.datasets.images.omissions import Omissions
from stringline.datasets.images.reading import ImageReader, read_items


def convert_data_set(
    reader: ImageReader,
    path: Path,
    store: Path,
    omissions: Omissions,
    image_size: tuple[int, int] | None = None,
) -> ImageStore:
    """Writes a store with the images or clips of a data set, one by one, with a progress bar.

    Args:
        reader: Reader of the layout of the data set.
        path: Path of the data set.
        store: Path of the store, which must not exist.
        omissions: What is left out is added here.
        image_size: Rows and columns of the stored images; None: as in the data.

    Raises:
        ValueError: There is no data set, nothing of it can be read, or the store exists.
    """
    with ImageWriter(store) as writer:
        for item in read_items(reader, path, omissions, image_size=image_size, quiet=False):
            if isinstance(item, LabelledClip):
                writer.add_clip(item)
            else:
                writer.add(item)
    return ImageStore(store)
