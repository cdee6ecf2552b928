"""What commands say: text for people, JSON for programs, failures with a next step. Standard library only: every command loads it."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final
from uuid import UUID

FAILED: Final = 1
WRONG_USAGE: Final = 2


class CommandFailed(Exception):
    """A command did not do its work. `message` says what, `next_step` what to do about it; `details` are further lines or JSON members."""

    def __init__(
        self, message: str, next_step: str, *, exit_status: int = FAILED, code: str = "failed", details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.exit_status = exit_status
        self.code = code
        self.details = dict(details or {})


class WrongUsage(CommandFailed):
    """Arguments that do not go together."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(message, next_step, exit_status=WRONG_USAGE, code="wrong_usage")


class Output:
    """The two streams of one command. `environ` is here because it is a command's other input."""

    def __init__(self, *, as_json: bool, environ: Mapping[str, str]) -> None:
        self.as_json = as_json
        self.environ = environ

    def result(self, record: Mapping[str, object], text: str) -> None:
        """A command's one answer: the record, or its text."""
        print(json.dumps(_jsonable(record), ensure_ascii=False) if self.as_json else printable(text))

    def line(self, text: str) -> None:
        """A part of an answer that takes time, for people; programs get the whole as one `result`."""
        if not self.as_json:
            print(printable(text), flush=True)

    def table(self, name: str, records: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
        """Rows under the JSON member `name`, or as columns of text."""
        if self.as_json:
            print(json.dumps({name: _jsonable(records)}, ensure_ascii=False))
            return
        rows = [
            [column.replace("_", " ") for column in columns],
            *([_cell(flat.get(column)) for column in columns] for flat in map(_flat, records)),
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def record(self, record: Mapping[str, object]) -> None:
        """One thing with all its fields."""
        flat = _flat(record)
        width = max(map(len, flat), default=0)
        self.result(record, "\n".join(f"{key.replace('_', ' ').ljust(width)}  {_cell(value)}" for key, value in flat.items()))

    def progress(self, text: str) -> None:
        """What is being done or waited for: never part of the answer."""
        print(printable(text), file=sys.stderr, flush=True)

    def failure(self, failed: CommandFailed) -> int:
        """Say on stderr why nothing came of it; returns the exit status."""
        if self.as_json:
            error = {"code": failed.code, "message": failed.message, "next_step": failed.next_step, **failed.details}
            print(json.dumps({"error": _jsonable(error)}, ensure_ascii=False), file=sys.stderr)
            return failed.exit_status
        lines = [f"gateway: {failed.message}", *(f"  {line}" for line in _detail_lines(failed.details)), f"Next: {failed.next_step}"]
        print(printable("\n".join(lines)), file=sys.stderr)
        return failed.exit_status


def _flat(record: Mapping[str, object]) -> dict[str, object]:
    """For text: what lies deeper, as if it lay here. No two of our fields have one name."""
    flat: dict[str, object] = {}
    for name, value in record.items():
        flat |= _flat(value) if isinstance(value, Mapping) else {name: value}
    return flat


def printable(text: str) -> str:
    """Text without what a terminal would obey: control characters other than line ends and tabs are shown as a mark."""
    return "".join(character if character in "\n\t" or not _obeyed(character) else "\ufffd" for character in text)


def _obeyed(character: str) -> bool:
    return ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 or 0xD800 <= ord(character) < 0xE000


def _detail_lines(details: Mapping[str, object]) -> Iterable[str]:
    for name, value in details.items():
        if isinstance(value, Sequence) and not isinstance(value, str):
            yield f"{name}:"
            yield from (f"  {_line(entry)}" for entry in value)
        else:
            yield f"{name}: {_cell(value)}"


def _line(entry: object) -> str:
    return "  ".join(_cell(value) for value in entry.values()) if isinstance(entry, Mapping) else _cell(entry)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case list() | tuple():
            return ", ".join(_cell(part) for part in value) or "-"
    return str(_jsonable(value))


def _jsonable(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case Mapping():
            return {str(key): _jsonable(part) for key, part in value.items()}
        case list() | tuple() | frozenset():
            return [_jsonable(part) for part in value]
    return value
