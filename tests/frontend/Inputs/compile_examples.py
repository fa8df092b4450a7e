# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles every ```ladle block of a page; fails on errors and on warnings."""

import re
import subprocess
import sys
import tempfile


def compile_text(text: str, where: str) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".ladle") as file:
        file.write(text)
        file.flush()
        result = subprocess.run(
            ["ladle-translate", "--import-ladle", file.name],
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode == 0 and not result.stderr:
        return True
    print(f"{where}:\n{result.stderr}")
    return False


def main(path: str) -> int:
    with open(path, encoding="utf-8") as file:
        page = file.read()
    blocks = list(re.finditer(r"^```ladle\n(.*?)^```", page, re.M | re.S))
    if not blocks:
        print(f"{path}: no examples found")
        return 1
    valid = [
        compile_text(block[1], f"{path}:{page.count(chr(10), 0, block.start()) + 1}")
        for block in blocks
    ]
    return 0 if all(valid) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
