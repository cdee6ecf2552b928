"""`make fuzz`, `python -m tests.fuzz [--seconds N] [--keep]`: coverage-guided fuzzing of the parsers with atheris, from the samples.

What it finds interesting it keeps in `.fuzz/` for the next time; with --keep the smallest set of it that runs every edge goes into
`tests/fuzz/corpus`, which CI replays without atheris. A crash is a file `crash-…`: put it into the corpus with its mend.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
SAMPLES: Final = HERE.parent / "samples"
FOUND: Final = ROOT / ".fuzz"
_LONGEST_BYTES: Final = 16 * 1024
_LONGEST_KEPT_BYTES: Final = 768
_IDS: Final = (
    (rb'"threadId":"[^"]*"', b'"threadId":"t-1"'),
    (rb'"runId":"run-[^"]*"', b'"runId":"c-1"'),
    (rb'"run_id":"[^"]*"', b'"run_id":"run-1"'),
)


def seeds(folder: Path) -> None:
    """The samples as inputs: with the ids that the target expects, each under ordinary and under small bounds."""
    folder.mkdir(parents=True, exist_ok=True)
    for sample in sorted(SAMPLES.glob("*/*.sse")):
        native = sample.parent.name.endswith("-api")
        raw = sample.read_bytes()
        for recorded, expected in _IDS:
            raw = re.sub(recorded, expected, raw)
        for parser in (2, 3) if native else (0, 1):
            (folder / f"{sample.parent.name}-{sample.stem}-{parser}").write_bytes(bytes([parser, 40]) + raw[:_LONGEST_BYTES])


def dictionary(path: Path) -> None:
    """Words that are worth trying."""
    from gateway.sse_parser.treatment import CUSTOM_NOTES, OUTCOMES, TREATMENTS

    fields = ["type", "messageId", "delta", "role", "toolCallId", "toolCallName", "parentMessageId", "content", "name", "value", "run_id"]
    fields += ["threadId", "runId", "t-1", "c-1", "outcome", "message", "subagentRunId"]
    framing = ["data: {", "data:", "event: ", "id: 1", "\\x0a\\x0a", "\\x0d\\x0a", "\\xef\\xbb\\xbf", "}\\x0a\\x0a"]
    words = [f'\\"{word}\\"' for word in (*TREATMENTS, *CUSTOM_NOTES, *OUTCOMES, *fields)]
    lines = [f'"{word}"' for word in (*words, *framing)]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def run_atheris(arguments: list[str]) -> None:
    """In this process: imports the target instrumented, and does not return."""
    import atheris  # in the extra `fuzz` only

    with atheris.instrument_imports(include=["gateway.sse_parser", "gateway.domain"]):
        from tests.fuzz.target import check

    # For -merge it calls itself again, by a shell.
    atheris.Setup([f"{sys.executable} -m tests.fuzz", *arguments], lambda fuzzed: check(fuzzed) and None)
    atheris.Fuzz()


def main() -> int:
    """Exit status of the fuzzer: not 0 for a crash."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--keep", action="store_true", help="afterwards, reduce what was found into tests/fuzz/corpus")
    chosen, passed_on = parser.parse_known_args()
    if passed_on:
        run_atheris(passed_on)
    seeds(FOUND / "seeds")
    dictionary(FOUND / "words")
    (FOUND / "found").mkdir(exist_ok=True)
    corpora = [str(FOUND / "found"), str(HERE / "corpus"), str(FOUND / "seeds")]
    common = [sys.executable, "-m", "tests.fuzz"]
    limits = [
        f"-max_len={_LONGEST_BYTES}",
        f"-max_total_time={chosen.seconds}",
        "-timeout=20",
        "-rss_limit_mb=2048",
        f"-dict={FOUND / 'words'}",
        "-print_final_stats=1",
    ]
    status = subprocess.run([*common, *limits, *corpora], cwd=ROOT, check=False).returncode
    if status == 0 and chosen.keep:
        merge = ["-merge=1", f"-max_len={_LONGEST_KEPT_BYTES}", "-verbosity=0", corpora[1], *corpora[::2]]
        status = subprocess.run([*common, *merge], cwd=ROOT, check=False).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
