# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the checks share: the files of the repository, and how to report."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def files(*patterns):
    """The files of the repository (tracked, or new and not ignored)."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(
        [*command, "--", *patterns], cwd=ROOT, check=True, capture_output=True
    )
    paths = (ROOT / name for name in listing.stdout.decode().splitlines())
    return sorted(path for path in set(paths) if path.is_file())


def report(problems, checked):
    """Prints the problems, (path, line or None, message), and exits."""
    for path, line, message in problems:
        place = path.relative_to(ROOT)
        print(f"{place}:{line}: {message}" if line else f"{place}: {message}")
    print(f"{checked} checked, {len(problems)} problems")
    sys.exit(1 if problems else 0)
