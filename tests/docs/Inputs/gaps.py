# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""gaps.py FILE: how the positions of bench/mac-gaps.json are distributed."""

import json
import statistics
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    drawn = json.load(file)
uniform, groups = drawn["uniform"], drawn["groups"]
deviations, misses = drawn["deviations"], set(drawn["misses"])
gaps = uniform + groups
reach = "1 to 1023" if min(gaps) >= 1 and max(gaps) <= 1023 else "beyond"
print(f"{len(uniform)} heads, gaps {reach}")
# Of numbers from 1 to n: (n + 1) / 2, and sqrt((n^2 - 1) / 12).
for values in (uniform, groups):
    mean, spread = statistics.mean(values), statistics.pstdev(values)
    if abs(mean - 512) > 15 or abs(spread - 295.3) > 8:
        print(f"mean {mean:.1f}, spread {spread:.1f}")
print("a uniform mean and spread")
spread = statistics.pstdev(deviations)
within = statistics.mean(abs(each) <= 50 for each in deviations)
print("deviations of 50" if abs(spread - 50) < 2 and abs(within - 0.68) < 0.03
      else f"spread {spread:.1f}, {within:.3f} within it")
# A head of the cache streams everything if one of its group misses.
streaming = statistics.mean(
    bool(misses & set(range(first, first + 4)))
    for first in range(0, len(uniform), 4)
)
print(f"{100 * len(misses) / len(uniform):.1f} % miss, "
      f"of groups of 4 some of {100 * streaming:.0f} %")
