# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""check_gaps.py RESULT GAPS: bytes of `ladle bench` of examples/mac.ladle,
preset small, computed from the positions of bench/mac-gaps.json."""

import json
import sys

HEADS, GROUP, SIZE, WINDOW, BAND = 4, 2, 64, 64, 8
HALF, FLOAT = 2, 4

result, drawn = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
context = result["context"]
reach = min(WINDOW - 1, context)


def scaled(gap):
    return 1 + (gap - 1) * reach // drawn["most"]


def grouped(head):
    gap = drawn["groups"][head // GROUP] + drawn["deviations"][head]
    return scaled(min(max(gap, 1), drawn["most"]))


SETS = {
    "all hit": ("uniform", lambda head: scaled(drawn["uniform"][head])),
    "grouped": ("grouped", grouped),
    "gap 64": ("64", lambda head: min(64, reach)),
    "95 % hit": (
        "64",
        lambda head: 0 if head in drawn["misses"] else min(64, reach),
    ),
    "no hit": ("none", lambda head: 0),
}

failures = 0
for figure in result["figures"]:
    name, gap_of = SETS[figure["matches"]]
    gaps = [gap_of(head) for head in range(HEADS * figure["batch"])]
    reads = [min(context + 1, gap + BAND) if gap else context + 1 for gap in gaps]
    tokens = sum(max(reads[i : i + GROUP]) for i in range(0, len(reads), GROUP))
    summary = SIZE * FLOAT + FLOAT
    wanted = (
        tokens * 2 * SIZE * HALF
        + len(gaps) * min(WINDOW - 1, context) * SIZE * HALF
        + sum(gap > 0 for gap in gaps) * summary
        + len(gaps) * (summary + SIZE * HALF)
    )
    if figure["gaps"] != name or figure["bytes"] != wanted:
        print(f"{figure['matches']}, batch {figure['batch']}: {figure['gaps']}, "
              f"{figure['bytes']} bytes, wanted {name}, {wanted}")
        failures += 1
print(f"{len(result['figures'])} figures, {failures} wrong")
print("seed", result["gaps_seed"] == drawn["seed"], result["gaps_file"])
