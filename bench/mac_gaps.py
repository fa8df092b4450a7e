#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where heads match in `ladle bench` of an attention: bench/mac-gaps.json.

bench/mac_gaps.py          draws the positions, and writes them
bench/mac_gaps.py --check  fails if the file is not what is drawn

Drawn once, so that every run, and every other program that reads the file,
times the same matches. Head i of all rows takes number i of each list:

uniform     how many tokens back it matches, 1 to 1023, each as likely
groups      the same for heads that share keys, of which group i takes number i
deviations  what a head of a group adds to that, normal, sigma = 50; the sum
            is kept within 1 and 1023
misses      the heads that match nothing where 95 % do

A group of any size may share keys, therefore these are lists of their own.
"""

import argparse
import json
import math
import pathlib
import random
import sys

PATH = pathlib.Path(__file__).resolve().parent / "mac-gaps.json"
ROWS, HEADS, MOST, SIGMA, MISSES = 64, 32, 1023, 50, 0.05
# The first with 5.0 % of misses in all, of which the first row has one: it is
# all that a batch of one sees.
SEED = 7


def draw():
    # random() alone says the same in every version of Python.
    share = random.Random(SEED).random
    count = ROWS * HEADS

    def gap():
        return 1 + int(share() * MOST)

    def deviation():
        length = math.sqrt(-2 * math.log(1 - share()))
        return round(SIGMA * length * math.cos(2 * math.pi * share()))

    return {
        "schema": "ladle-mac-gaps-1",
        "most": MOST,
        "sigma": SIGMA,
        "seed": SEED,
        "uniform": [gap() for _ in range(count)],
        "groups": [gap() for _ in range(count)],
        "deviations": [deviation() for _ in range(count)],
        "misses": [i for i in range(count) if share() < MISSES],
    }


def text_of(document):
    """JSON with a line a row of heads."""
    parts = []
    for name, value in document.items():
        if isinstance(value, list):
            rows = [
                ", ".join(map(str, value[at : at + HEADS]))
                for at in range(0, len(value), HEADS)
            ]
            value = "[\n  " + ",\n  ".join(rows) + "\n ]"
        else:
            value = json.dumps(value)
        parts.append(f' "{name}": {value}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--file", type=pathlib.Path, default=PATH)
    arguments = parser.parse_args()
    text = text_of(draw())
    if not arguments.check:
        arguments.file.write_text(text, encoding="utf-8")
        return 0
    if arguments.file.read_text(encoding="utf-8") == text:
        return 0
    print(f"error: {arguments.file} is not what is drawn", file=sys.stderr)
    print("note: run bench/mac_gaps.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
