"""Where an unexpected exception was raised, as a log may say it: file and line, never its text (texts carry values, URLs and tokens)."""

import traceback


def raised_at(error: BaseException) -> str:
    """`name.py:line` of the innermost frame."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "unknown"
    file_name = frames[-1].filename.rpartition("/")[2]
    return f"{file_name}:{frames[-1].lineno}"
