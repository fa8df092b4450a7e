#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No marks of unfinished work."""

import re

import tree

WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK|stubs?|(not |un)implemented)\b", re.I)

problems = []
paths = [path for path in tree.files() if path.parent.name != "lint"]
for path in paths:
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        continue
    for number, line in enumerate(lines, 1):
        if found := WORDS.search(line):
            problems.append((path, number, f"'{found[0]}'"))
tree.report(problems, len(paths))
