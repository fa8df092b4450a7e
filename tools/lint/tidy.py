#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs clang-tidy over the files of a build until the time is up.

A file that includes MLIR takes half a minute, so the order decides: first the
files without MLIR, then those changed last. What was not reached is counted.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import time

import tree


def sources(build):
    """Our files in the compilation database, the ones to check first first."""
    log = ["git", "log", "--format=", "--name-only", "-n", "200"]
    changed = subprocess.run(
        log, cwd=tree.ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    age = {tree.ROOT / name: -i for i, name in enumerate(reversed(changed))}
    commands = json.loads((build / "compile_commands.json").read_text())
    ours = {}
    for entry in commands:
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(tree.ROOT) and not path.is_relative_to(build):
            ours[path] = "-fno-rtti" in entry["command"]  # As LLVM is.
    return sorted(ours, key=lambda path: (ours[path], age.get(path, -len(age))))


def check(build, path, seconds):
    """Returns the findings, or None when the time did not suffice."""
    command = ["clang-tidy-22", "-p", build, "--quiet", "--warnings-as-errors=*"]
    try:
        done = subprocess.run(
            [*command, path], capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout + done.stderr if done.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="a build folder")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    end = time.monotonic() + arguments.seconds
    paths = [path.resolve() for path in arguments.files] or sources(build)

    def work(path):
        left = end - time.monotonic()
        return path, check(build, path, left) if left > 0 else None

    checked = faulty = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, findings in pool.map(work, paths):
            if findings is None:
                continue
            checked += 1
            if findings:
                faulty += 1
                print(findings)
    print(f"clang-tidy: {checked} of {len(paths)} files checked within")
    print(f"{arguments.seconds:g} s, {faulty} of them with findings")
    sys.exit(1 if faulty else 0)


main()
