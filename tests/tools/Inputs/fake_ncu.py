#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stands in for ncu: runs the command and says that memory moved what was
expected, and a tenth more of it reading. LADLE_FAKE_NCU=denied lacks the right.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys

arguments = sys.argv[1:]
log = pathlib.Path(arguments[arguments.index("--log-file") + 1])
command = arguments[arguments.index("--log-file") + 2 :]
if os.environ.get("LADLE_FAKE_NCU") == "denied":
    log.write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
    sys.exit(1)
ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
sys.stdout.write(ran.stdout)
with log.open("w", encoding="utf-8") as stream:
    stream.write("==PROF== Connected to process 1\n")
    table = csv.writer(stream, quoting=csv.QUOTE_ALL)
    table.writerow(["ID", "Kernel Name", "dram__bytes_read.sum",
                    "dram__bytes_write.sum"])
    table.writerow(["", "", "byte", "byte"])
    table.writerow(["0", "fill_f32(float *)", "1", "1"])
    count = 1
    for line in ran.stdout.splitlines():
        if not line.startswith("{"):
            continue
        fill = json.loads(line)
        for _ in range(fill["launches"]):
            table.writerow([str(count), fill["kernel"] + "(const int *)",
                            f"{0.6 * fill['bytes_a_launch']:,.0f}",
                            f"{0.5 * fill['bytes_a_launch']:,.0f}"])
            count += 1
