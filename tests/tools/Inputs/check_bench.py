# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fails unless the figures of `ladle bench` on a GPU are whole."""

import argparse
import json
import statistics

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--fills", type=int)
parser.add_argument("--samples", type=int)
arguments = parser.parse_args()
with open(arguments.file, encoding="utf-8") as stream:
    document = json.load(stream)

assert document["device"] == "simulated GPU", document["device"]
for run in document["runs"]:
    for field in ("date", "command", "driver", "cuda"):
        assert run[field], field
    for ceiling in ("read_ceiling", "update_ceiling"):
        assert run[ceiling]["gb_per_s"] > 0 and run[ceiling]["samples"]
assert len(document["results"]) == 4
for result in document["results"]:
    run = document["runs"][result["run"]]
    fills = 1 if result["route"] == "recurrent" else arguments.fills
    raw = result["samples_us_by_fill"]
    assert len(raw) == fills, result
    assert all(len(samples) == arguments.samples for samples in raw)
    medians = [statistics.median(samples) for samples in raw]
    assert medians == result["us_by_fill"]
    assert abs(statistics.mean(medians) - result["us_a_step"]) < 2e-3
    assert result["rotated_bytes"] > 2 * run["l2_bytes"]
    assert result["error"] <= result["error_bound"]
    assert result["host_launch_ns"] > 0
    if result["route"] != "recurrent":
        assert result["host_advance_ns"] > 0 and result["model_layers"] == 8
    assert result["limit_us"] > 0 and result["predicted_us"] > 0
