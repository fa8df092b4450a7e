#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what memory moves in a step with what the cost model counts.

bench/dram_bytes.py FILE --preset NAME --routes inner --batch 256 --m 16

Runs one case of `ladle bench --profile` under ncu, which reads the counters of
the memory, and prints a line a fill. Layers take turns, so that the L2 cache
holds nothing that a step reads; what a step writes may leave the cache in the
next one, so that writes are the mean over the layers. Options are those of
`ladle bench`; give one route, batch, m and type each.
"""

import argparse
import csv
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


def find_ncu(named):
    for path in [named] if named else ["ncu", "/usr/local/cuda/bin/ncu"]:
        if found := shutil.which(path):
            return found
    sys.exit("error: no counters: ncu (NVIDIA Nsight Compute) was not found\n"
             "note: it comes with CUDA; --ncu names a file elsewhere")


def profile(ncu, command):
    """The fills, and the rows of ncu's table, in the order of the launches."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "ncu.csv"
        ran = subprocess.run(
            [ncu, "--csv", "--page", "raw", "--print-units", "base",
             "--cache-control", "none", "--clock-control", "none",
             "--metrics", f"{READ},{WRITTEN}", "--log-file", str(log), *command],
            capture_output=True, text=True)
        table = log.read_text(encoding="utf-8") if log.exists() else ""
    if "ERR_NVGPUCTRPERM" in table + ran.stdout + ran.stderr:
        sys.exit("error: the counters cannot be read: the driver keeps them from "
                 "users (ERR_NVGPUCTRPERM)\nnote: root may read them, and who loads "
                 "the driver with NVreg_RestrictProfilingToAdminUsers=0")
    if ran.returncode:
        sys.exit(f"error: ncu failed with code {ran.returncode}\n"
                 f"{ran.stdout}{ran.stderr}{table}")
    fills = [json.loads(line) for line in ran.stdout.splitlines()
             if line.startswith("{")]
    # What ncu says of itself begins with ==.
    lines = [line for line in table.splitlines() if line.startswith('"')]
    rows = [row for row in csv.DictReader(lines) if row.get("ID")]
    if not fills or not rows:
        sys.exit(f"error: the counters cannot be read: ncu gave no table\n{table}"
                 f"{ran.stdout}{ran.stderr}")
    return fills, rows


def number(text):
    return float(text.replace(",", ""))


def compare(fills, rows):
    """Bytes of each fill: read, written and expected, of one launch."""
    kernel = fills[0]["kernel"]
    mine = [row for row in rows if row["Kernel Name"].split("(")[0] == kernel]
    if len(mine) != sum(fill["launches"] for fill in fills):
        sys.exit(f"error: ncu saw {len(mine)} launches of {kernel}, wanted "
                 f"{sum(fill['launches'] for fill in fills)}")
    found = []
    for fill in fills:
        some, mine = mine[:fill["launches"]], mine[fill["launches"]:]
        read, written = (sum(number(row[name]) for row in some) / len(some)
                         for name in (READ, WRITTEN))
        found.append((fill, read, written))
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ladle", default=str(ROOT / "build/dev/bin/ladle"))
    parser.add_argument("--ncu", help="default: the one in the path")
    known, case = parser.parse_known_args()
    ncu = find_ncu(known.ncu)
    fills, rows = profile(
        ncu, [known.ladle, "bench", *case, "--device", "gpu", "--profile"])
    print(f"{'fill':>4} {'read MB':>10} {'written MB':>10} {'model MB':>10} "
          f"{'ratio':>6}")
    for fill, read, written in compare(fills, rows):
        model = fill["bytes_a_launch"]
        print(f"{fill['fill']:>4} {read / 1e6:>10.3f} {written / 1e6:>10.3f} "
              f"{model / 1e6:>10.3f} {(read + written) / model:>6.3f}")


if __name__ == "__main__":
    main()
