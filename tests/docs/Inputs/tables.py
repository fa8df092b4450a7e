# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints what bench/plot.py would write and draw of a folder of results."""

import importlib.util
import pathlib
import sys

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("plot", sys.argv[1])
plot = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plot)
figures = plot.load(pathlib.Path(sys.argv[2]))
print(plot.ceilings_text(figures))
print(plot.model_text(figures))
print(plot.results_text(figures))
print(plot.early_text(figures))
for name, data in (
    ("bell", plot.bell_data(figures)),
    ("share", plot.share_data(figures)),
):
    for lines in data.values():
        print(name, lines)
