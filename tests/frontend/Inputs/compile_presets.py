# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles every file given under each of its presets, without a warning."""

import re
import subprocess
import sys


def run(*args: str) -> subprocess.CompletedProcess:
    command = ["ladle-translate", "--import-ladle", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main(paths: list[str]) -> int:
    failed = False
    for path in paths:
        listed = run("--list", path)
        presets = re.findall(r'^//   preset "(.*?)"', listed.stdout, re.M)
        failed |= not presets
        for preset in presets:
            result = run("--preset", preset, path)
            if result.returncode or result.stderr:
                failed = True
                print(f"{path}, preset {preset}:\n{result.stderr}")
        print(f"{path}: {len(presets)} presets {listed.stderr}")
    return 1 if failed or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
