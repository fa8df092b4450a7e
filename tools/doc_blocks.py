#!/usr/bin/env python3
#===- doc_blocks.py - the output that the documents show ------------------===//
#
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""Runs every command that a document shows the output of, and compares.

In a document, the line `<!-- $ command -->` stands before a fenced block that
holds what the command prints. Without options the script fails, with a
difference, if a block is out of date; `--update` writes the output instead.

usage: doc_blocks.py [--update] DOCUMENT...
"""
import difflib
import re
import subprocess
import sys

BLOCK = re.compile(r"(<!-- \$ (.*?) -->\n```\w*\n)(.*?)(```)", re.DOTALL)


def output_of(command):
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command}: exit {done.returncode}\n{done.stderr}")
    return done.stdout.rstrip("\n") + "\n"


def main(arguments):
    update = "--update" in arguments
    checked = stale = 0
    for path in (a for a in arguments if not a.startswith("--")):
        text = open(path, encoding="utf-8").read()
        fresh = text
        for match in BLOCK.finditer(text):
            checked += 1
            now = output_of(match.group(2))
            if now == match.group(3):
                continue
            stale += 1
            fresh = fresh.replace(match.group(0), match.group(1) + now + "```")
            if not update:
                sys.stdout.writelines(
                    difflib.unified_diff(
                        match.group(3).splitlines(True),
                        now.splitlines(True),
                        path,
                        match.group(2),
                    )
                )
        if update and fresh != text:
            open(path, "w", encoding="utf-8").write(fresh)
    print(f"{checked} blocks checked, {stale} out of date")
    return 1 if not checked or (stale and not update) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
