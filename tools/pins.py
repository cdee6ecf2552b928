"""Exact versions: one resolve, written to constraints.txt (pip) and to `[tool.uv] constraint-dependencies` (uv). No registry's address.

python tools/pins.py            resolve anew and write both
python tools/pins.py --check    fail when the two lists differ, or a direct dependency has no pin
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PYPROJECT = ROOT / "pyproject.toml"
BEGIN, END = "# pins: begin (tools/pins.py)", "# pins: end"


def resolve() -> list[str]:
    """All packages of all extras for every platform, as `name==version [; marker]`."""
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--no-header", "--no-annotate", "--no-emit-index-url"]
    extras = [part for extra in ("dev", "agent", "embedded", "fuzz", "otel") for part in ("--extra", extra)]
    extras += ["--python-version", "3.11", "--upgrade"]
    done = subprocess.run([*command, *extras, str(PYPROJECT)], check=True, capture_output=True, text=True, cwd=ROOT)
    lines = [line.strip() for line in done.stdout.splitlines()]
    return sorted([line for line in lines if "==" in line] + [f"uv=={uv_version()}"], key=str.lower)


def uv_version() -> str:
    return subprocess.run(["uv", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]


def pinned_in_pyproject() -> list[str]:
    pins: list[str] = tomllib.loads(PYPROJECT.read_text(encoding="utf-8")).get("tool", {}).get("uv", {}).get("constraint-dependencies", [])
    return pins


def pinned_in_constraints() -> list[str]:
    return [line for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def write(pins: list[str]) -> None:
    CONSTRAINTS.write_text("# Exact versions, made by tools/pins.py.\n" + "".join(f"{pin}\n" for pin in pins), encoding="utf-8")
    text = PYPROJECT.read_text(encoding="utf-8")
    text = re.sub(re.escape(BEGIN) + ".*?" + re.escape(END) + "\n", "", text, flags=re.DOTALL).rstrip("\n") + "\n\n"
    quoted = "".join(f'    "{pin}",\n' for pin in (p.replace('"', "'") for p in pins))
    PYPROJECT.write_text(f"{text}{BEGIN}\n[tool.uv]\nconstraint-dependencies = [\n{quoted}]\n{END}\n", encoding="utf-8")


def check() -> int:
    left, right = pinned_in_constraints(), pinned_in_pyproject()
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {re.split(r"[=\s;]", pin)[0].lower() for pin in left}
    unpinned = [d for d in wanted if re.split(r"[\[<>=~;\s]", d)[0].lower() not in names]
    if left != right:
        print("constraints.txt and [tool.uv] constraint-dependencies differ: run `make pins`", file=sys.stderr)
    for name in unpinned:
        print(f"{name} has no pin: run `make pins`", file=sys.stderr)
    return 1 if left != right or unpinned else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    write(resolve())
