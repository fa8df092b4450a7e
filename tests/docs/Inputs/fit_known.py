# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets a machine of known constants give the times of all figures, disturbs
them by up to a percent, and fails unless bench/fit.py finds the constants."""

import importlib.util
import json
import pathlib
import random
import sys

import numpy as np

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("fit", sys.argv[1])
fit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fit)

figures = []
for path in sorted(pathlib.Path(sys.argv[2]).glob("h200-*.json")):
    document = json.loads(path.read_text(encoding="utf-8"))
    figures += [f for f in document["results"] if not f["schedule"]
                and "layout" not in f]
costs = [fit.explain("ladle", figure) for figure in figures]

known = np.array([4e-6, 1e-6, 1 / 2.0e12, 1 / 1.5e12, 1 / 0.9e12, 1 / 12e12])
noise = random.Random(1)
for figure, cost in zip(figures, costs):
    figure["us_by_fill"] = [
        1e6 * max(memory @ known, flops @ known) * noise.uniform(0.99, 1.01)
        for memory, flops in fit.steps_of(figure, cost)
    ]
    figure["us_a_step"] = np.mean(figure["us_by_fill"])
found = fit.fit([sample for figure, cost in zip(figures, costs)
                 for sample in fit.samples_of_tokens(figure, cost)])
for name, ratio in zip(fit.NAMES, found / known):
    # The latency is small beside large batches, and noisy.
    assert abs(ratio - 1) < (0.1 if name == "entryLatency" else 0.02), (name, ratio)
print("found")
