"""What readers and writers of labelled images leave out."""

from collections import Counter

from stringline.datasets.contract.argument_checks import printable
from stringline.datasets.formats.foreign import ForeignDataError


class OmittedError(ForeignDataError):
    """An item that is left out, by the part at fault and the reason."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"{part}: {reason}")
        self.part = part
        self.reason = reason


class Omissions:
    """What a reader leaves out: numbers by part and reason, each with its first example."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], str] = {}

    def add(self, part: str, reason: str, example: object, count: int = 1) -> None:
        """Counts parts that are left out; `example` names the first of them."""
        self.counts[part, reason] += count
        self._examples.setdefault((part, reason), str(example))

    def table(self) -> str:
        """Returns a table; empty if nothing was left out."""
        if not self.counts:
            return ""
        width = max(len(printable(part)) for part, _ in self.counts)
        digits = len(str(max(self.counts.values())))
        lines = [
            f"  {printable(part):<{width}}  {count:>{digits}}: {printable(reason)} (the first: "
            f"{printable(self._examples[part, reason])})\n"
            for (part, reason), count in sorted(self.counts.items())
        ]
        return f"Left out of the data:\n{''.join(lines)}"
