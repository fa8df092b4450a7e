#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files stay short enough to be read in one sitting."""

import tree

LIMIT, TEST_LIMIT, TD_LIMIT = 600, 900, 400


def limit(path):
    if path.suffix == ".td":
        return TD_LIMIT
    in_tests = path.relative_to(tree.ROOT).parts[0] == "tests"
    return TEST_LIMIT if in_tests else LIMIT


paths = tree.files("*.cpp", "*.h", "*.td", "*.py", "*.sh", "*.cmake", "*.mlir")
problems = []
for path in paths:
    lines = len(path.read_text().splitlines())
    if lines > limit(path):
        problems.append((path, None, f"{lines} lines, more than {limit(path)}"))
tree.report(problems, len(paths))
