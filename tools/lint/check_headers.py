#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sources begin with the licence; headers are guarded after their path."""

import re

import tree

LICENCE = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception"
# Compiled into a precompiled header, never included.
UNGUARDED = {"Precompiled.h", "PrecompiledCommand.h", "PrecompiledRuntime.h",
             "PrecompiledTest.h"}


def guard(path):
    """LADLE_DIALECT_LADLEOPS_H; the installed headers leave their folder out."""
    name = path.relative_to(tree.ROOT).as_posix()
    name = name.removeprefix("runtime/include/ladle/")
    return "LADLE_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def names_file(path, line):
    """`//===- Name.cpp - what it is ---*- C++ -*-===//`, at most 80 columns."""
    begins = line.startswith(f"//===- {path.name} - ")
    return begins and line.endswith("===//") and len(line) <= 80


problems = []
paths = tree.files("*.cpp", "*.h", "*.td", "*.py", "*.sh")
for path in paths:
    text = path.read_text()
    lines = text.splitlines() or [""]
    if LICENCE not in "\n".join(lines[:6]):
        problems.append((path, 1, "no licence in the first lines"))
    if path.suffix in (".cpp", ".h", ".td"):
        if not names_file(path, lines[0]):
            problems.append((path, 1, "the first line does not name the file"))
    if path.suffix == ".h" and path.name not in UNGUARDED:
        if f"#ifndef {guard(path)}\n#define {guard(path)}\n" not in text:
            problems.append((path, 1, f"no include guard {guard(path)}"))
tree.report(problems, len(paths))
