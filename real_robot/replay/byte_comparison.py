"""Comparison of received bytes with recorded ones."""

from stringline.real_robot.incidents.incident_format import Entry


def compared(name: str, entry: Entry, got: bytes) -> tuple[int, str]:
    """Returns the number of equal bytes before the first difference, and a sentence about that."""
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
