"""Every package of this environment with its version and licence, one a line, sorted; written into the image as LICENSES.txt."""

from importlib.metadata import Distribution, distributions


def license_of(found: Distribution) -> str:
    """The licence expression, else the old field, else the classifiers."""
    told = found.metadata
    text = told.get("License-Expression") or told.get("License") or ""
    if not text or "\n" in text or len(text) > 80:
        classified = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier") or [] if line.startswith("License ::")]
        text = ", ".join(classified) or text.partition("\n")[0]
    return text.strip() or "not told"


if __name__ == "__main__":
    lines = {f"{found.metadata['Name']} {found.version}: {license_of(found)}" for found in distributions()}
    print("\n".join(sorted(lines, key=str.lower)))  # noqa: T201
