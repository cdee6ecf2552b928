"""`python -m bench.tables`: what the documentation says of speed and capacity, made of the files in bench/results. Measures nothing."""

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.report import Figure

RESULTS: Final = Path(__file__).parent / "results"
_BUSY_RUNS: Final = 50


def handbook_table(results: Mapping[str, Any]) -> str:
    """What the handbook says of a file of results: the machine, then a line for each figure."""
    machine = results["machine"]
    [found] = [finding for finding in results["findings"] if finding["goal"] == "capacity"]
    figures = {figure["name"]: Figure(**figure) for figure in found["figures"]}
    gigabytes = {name: figures[name].value * _BUSY_RUNS * 86_400 / 1024**2 for name in ("kb_loaded", "wal_kb")}
    return "\n".join(
        [
            f"Measured on {machine['cores']} cores ({machine['cpu']}), {machine['system']}, Python {machine['python']}, PostgreSQL "
            f"{machine['postgres']}; load average {machine['load']}. The gateway has one core, everything else the other.",
            "",
            "| | |",
            "| --- | --- |",
            *[f"| {figure.what} | {figure.shown} |" for figure in figures.values()],
            "",
            f"At {_BUSY_RUNS} runs a second all day, {_BUSY_RUNS * 86_400 / 1e6:.1f} million a day, that is "
            f"{gigabytes['kb_loaded']:.0f} GB of tables and indexes and {gigabytes['wal_kb']:.0f} GB of write-ahead log a day.",
        ]
    )


def measured_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The rows of every comparison, by the names of the files. `load`: what the machine had to do before it began."""
    lines = ["| figure | ratio (rounds) | ours | peer | load |", "| --- | --- | --- | --- | --- |"]
    for goal, found in sorted(results.items(), key=lambda item: (item[0][:1] != "G", len(item[0]), item[0])):
        for row in found["findings"]:
            if "ratio" not in row:
                continue
            rounds = sorted(ours / peer for ours, peer in zip(row["ours"], row["peer"], strict=True))
            spread = f" ({rounds[0]:.3f} to {rounds[-1]:.3f})" if len(rounds) > 1 else ""
            ours, peer = (f"{statistics.median(row[side]):,.3g}" for side in ("ours", "peer"))
            what = f"{goal}: {row['what'].removeprefix(f'{goal}: ')}, {row['unit']}"
            lines.append(f"| {what} | **{row['ratio']:.3f}**{spread} | {ours} | {peer} | {found['machine']['load'].split()[0]} |")
    return "\n".join(lines)


def read_results() -> dict[str, dict[str, Any]]:
    """The files, by their names."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}


if __name__ == "__main__":
    found = read_results()
    print(f"docs/performance.md:\n\n{measured_table(found)}\n\ndocs/handbook.md:\n\n{handbook_table(found['capacity'])}")
