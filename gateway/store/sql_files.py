"""Where the SQL files are: inside the installed package, else in the checkout.

An editable install does not show force-included files through importlib.resources, so both places are looked at (style.md M16).
What the files hold is read by `statements` and `migrate`.
"""

from pathlib import Path

import gateway


def sql_folder() -> Path:
    """The folder with `migrations/` and `statements/`. Raises FileNotFoundError for a package built without its SQL."""
    package = Path(gateway.__file__).parent
    for folder in (package / "_sql", package.parent / "sql"):
        if (folder / "migrations").is_dir():
            return folder
    raise FileNotFoundError("The SQL files are missing from this installation.")
