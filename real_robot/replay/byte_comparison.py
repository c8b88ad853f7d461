"""Bytes that came beside those that were recorded."""

from stringline.real_robot.incidents.incident_format import Entry


def compared(name: str, entry: Entry, got: bytes) -> tuple[int, str]:
    """Returns how many bytes are the same up to the first that differs, and how they differ, in words; empty if they do not.

    Args:
        name: Of the bus.
        entry: What was recorded.
        got: What came.
    """
    wanted = entry.payload
    pairs = enumerate(zip(got, wanted, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(got), len(wanted)))
    if got == wanted:
        return same, ""
    return same, (
        f"{name}, record {entry.number}, byte {same} of {len(wanted)}: "
        f"got {got[same : same + 8].hex(' ') or 'nothing'}, recorded was "
        f"{wanted[same : same + 8].hex(' ') or 'nothing more'}."
    )
