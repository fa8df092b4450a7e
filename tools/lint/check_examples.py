#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each example is named in a test and says where it comes from."""

import re

import tree

tests = "\n".join(
    path.read_text()
    for path in tree.files("tests")
    if path.suffix in (".cpp", ".h", ".mlir", ".ladle", ".test", ".txt")
)
problems = []
paths = tree.files(":(glob)examples/*.ladle", ":(glob)examples/*.cpp")
for path in paths:
    if not re.search(rf"\b{path.stem}\b", tests):
        problems.append((path, None, "named in no test"))
    if path.suffix == ".ladle" and not path.read_text().startswith("#"):
        problems.append((path, 1, "does not begin with a comment on its source"))
tree.report(problems, len(paths))
