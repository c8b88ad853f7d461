"""Reading parquet with error messages for users."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.formats.foreign import ForeignDataError
from stringline.datasets.formats.libraries import optional_library


def opened(path: Path) -> Any:
    """Opens a file by its footer."""
    parquet = optional_library("pyarrow.parquet")
    try:
        return parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise ForeignDataError(f"There is no file {path.name} in {path.parent}.") from error
    except (OSError, ValueError) as error:
        raise ForeignDataError(
            f"{path.name} cannot be read as parquet; it is truncated or was not finalised "
            f"({error})."
        ) from error


def columns(path: Path) -> list[str]:
    """Returns the names of the columns of a file."""
    return list(opened(path).schema_arrow.names)


def table(path: Path, columns: Sequence[str]) -> Any:
    """Reads columns of a file."""
    file = opened(path)
    offered = file.schema_arrow.names
    for column in columns:
        if column not in offered:
            raise ForeignDataError(f"{path.name}: {unknown_name('column', column, offered)}")
    try:
        return file.read(columns=list(columns))
    except (OSError, ValueError) as error:
        raise ForeignDataError(
            f"{path.name} is damaged in {', '.join(columns)}: {error}."
        ) from error


def numbers(key: str, column: Any) -> Array:
    """Returns a column of numbers or of lists of equal length as (T,) or (T, D)."""
    array = column.combine_chunks()
    if array.null_count:
        frame = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise ForeignDataError(f"{key} at frame {frame} is empty.")
    if not hasattr(array, "flatten") or not str(array.type).startswith(
        ("list", "fixed_size_list", "large_list")
    ):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    lengths = (
        optional_library("pyarrow.compute").list_value_length(array).to_numpy(zero_copy_only=False)
    )
    if len(lengths) and (lengths != lengths[0]).any():
        frame = int(np.flatnonzero(lengths != lengths[0])[0])
        raise ForeignDataError(
            f"{key} at frame {frame} has {lengths[frame]} numbers, the previous ones {lengths[0]}."
        )
    flat = np.asarray(array.flatten().to_numpy(zero_copy_only=False))
    return flat.reshape(len(lengths), -1)


def rows(path: Path, column: str, start: int, stop: int) -> Iterator[Any]:
    """Yields rows of a column as Python objects with few of them in memory."""
    file = opened(path)
    first = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if first < stop and first + count > start:
            yield from _group_rows(file, path, column, group, (start - first, stop - first))
        first += count


def _group_rows(
    file: Any, path: Path, column: str, group: int, wanted: tuple[int, int]
) -> Iterator[Any]:
    place = 0
    try:
        for batch in file.iter_batches(batch_size=16, row_groups=[group], columns=[column]):
            low = max(wanted[0] - place, 0)
            high = min(wanted[1] - place, len(batch))
            if low < high:
                yield from batch.column(0).slice(low, high - low).to_pylist()
            place += len(batch)
    except (OSError, ValueError) as error:
        raise ForeignDataError(
            f"{path.name} is damaged in {column} after row {place}: {error}."
        ) from error
