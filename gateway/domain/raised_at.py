"""Where an unexpected exception was raised, as a log may say it: file and line, never its text (texts carry values, URLs and tokens)."""

import traceback
from pathlib import PurePath


def raised_at(error: BaseException) -> str:
    """`name.py:line` of the innermost frame."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
