#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each pass shows IR in its description, and has its tests.

For `ladle-select-route` of passes/: tests/passes/select-route.mlir, and, if
its source emits errors, tests/passes/select-route-errors.mlir.
"""

import re

import tree

PASS = re.compile(r'^def (\w+)\s*:\s*Pass<\s*"([^"]+)"', re.M)


def declarations(td):
    """Yields (line, definition, flag, text) for each pass of a file."""
    text = td.read_text()
    found = list(PASS.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    for match, end in zip(found, ends):
        line = text.count("\n", 0, match.start()) + 1
        yield line, *match.groups(), text[match.start() : end]


def lacks(td, definition, flag, text):
    """What one pass lacks, as messages."""
    if "```mlir" not in text:
        yield "no IR before and after in its description"
    folder = f"tests/{td.relative_to(tree.ROOT).parts[0]}"
    test = f"{folder}/{flag.removeprefix('ladle-')}"
    if not (tree.ROOT / f"{test}.mlir").exists():
        yield f"no test {test}.mlir"
    source = td.with_name(f"{definition.removeprefix('Ladle')}.cpp")
    if not source.exists():
        yield f"no source {source.name} beside it"
    elif re.search(r"emit(Op)?Error\(", source.read_text()):
        if not (tree.ROOT / f"{test}-errors.mlir").exists():
            yield f"no test {test}-errors.mlir"


passes = 0
problems = []
for td in tree.files("*Passes.td"):
    for line, definition, flag, text in declarations(td):
        passes += 1
        for message in lacks(td, definition, flag, text):
            problems.append((td, line, f"{flag}: {message}"))
tree.report(problems, passes)
