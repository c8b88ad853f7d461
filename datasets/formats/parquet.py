"""Reading parquet with error messages for users."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stringline.datasets.command.installation import optional_library
from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.contract.contract import Array
from stringline.datasets.files.limits import MOST_TABLE_BYTES, MOST_TABLE_ROWS
from stringline.datasets.formats.foreign import ForeignDataError


def opened(path: Path, columns: Sequence[str]) -> Any:
    """Opens a file by its footer, and checks the sizes of the columns to read that stand there."""
    parquet = optional_library("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise ForeignDataError(f"There is no file {path.name} in {path.parent}.") from error
    except (OSError, ValueError) as error:
        raise ForeignDataError(
            f"{path.name} cannot be read as parquet; it is truncated or was not finalised "
            f"({error})."
        ) from error
    offered = file.schema_arrow.names
    for column in columns:
        if column not in offered:
            raise ForeignDataError(f"{path.name}: {unknown_name('column', column, offered)}")
    if file.metadata.num_rows > MOST_TABLE_ROWS:
        raise ForeignDataError(
            f"{path.name} has {file.metadata.num_rows} rows; allowed: {MOST_TABLE_ROWS}."
        )
    return file


def _check_columns(file: Any, path: Path, columns: Sequence[str]) -> None:
    """Checks the decoded size of columns that are read as a whole, 8 bytes for each value."""
    groups = [file.metadata.row_group(place) for place in range(file.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(group.num_columns)]
    wanted = [chunk for chunk in chunks if _column_of(chunk.path_in_schema, columns)]
    size = sum(max(8 * chunk.num_values, chunk.total_uncompressed_size) for chunk in wanted)
    if size > MOST_TABLE_BYTES:
        raise ForeignDataError(
            f"{path.name}: {', '.join(columns)} have {size} bytes; allowed: {MOST_TABLE_BYTES}."
        )


def _column_of(path: str, columns: Sequence[str]) -> bool:
    """Returns whether a leaf such as `action.list.element` belongs to one of the columns."""
    return any(path == column or path.startswith(f"{column}.") for column in columns)


def columns(path: Path) -> list[str]:
    """Returns the names of the columns of a file."""
    return list(opened(path, []).schema_arrow.names)


def table(path: Path, columns: Sequence[str]) -> Any:
    """Reads columns of a file."""
    file = opened(path, columns)
    _check_columns(file, path, columns)
    try:
        return file.read(columns=list(columns))
    except (OSError, ValueError) as error:
        raise ForeignDataError(
            f"{path.name} is damaged in {', '.join(columns)}: {error}."
        ) from error


def dictionaries(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file as dictionaries, with few of them in memory."""
    for batch in table(path, columns).to_batches(max_chunksize=1024):
        yield from batch.to_pylist()


def numbers(key: str, column: Any) -> Array:
    """Returns a column of numbers or of lists of equal length as (T,) or (T, D).

    D numbers per row may be in nested lists.
    """
    array = column.combine_chunks()
    if array.null_count:
        frame = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise ForeignDataError(f"{key} at frame {frame} is empty.")
    if not _is_list(array):
        return np.asarray(array.to_numpy(zero_copy_only=False))
    rows = len(array)
    while _is_list(array):
        _check_lengths(key, array, rows)
        array = array.flatten()
    return np.asarray(array.to_numpy(zero_copy_only=False)).reshape(rows, -1)


def _is_list(array: Any) -> bool:
    return str(array.type).startswith(("list", "fixed_size_list", "large_list"))


def _check_lengths(key: str, array: Any, rows: int) -> None:
    """Checks that all lists of an array have one length; it has those of `rows` frames."""
    lengths = optional_library("pyarrow.compute").list_value_length(array)
    lengths = np.asarray(lengths.to_numpy(zero_copy_only=False))
    wrong = lengths != lengths[:1]  # None and NaN, too.
    if wrong.any():
        place = int(np.flatnonzero(wrong)[0])
        raise ForeignDataError(
            f"{key} at frame {place * rows // len(lengths)} has {lengths[place]} numbers, the "
            f"previous ones {lengths[0]}."
        )


def rows(path: Path, column: str, start: int, stop: int) -> Iterator[Any]:
    """Yields rows of a column as Python objects with few of them in memory."""
    file = opened(path, [column])
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
