#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of docs/slake.md, from what slake_lm, bench/slake_reference.py and
bench/slake_traces.py have left.

bench/slake_quality.py          writes the document's parts between its markers
bench/slake_quality.py --check  fails if they are not what the results say
"""

import argparse
import pathlib
import sys

import slake_lm
from edge_infinite import difference
from mac import head, read, row, title
from plot import ROOT, fill

NAME = "docs/slake.md"


def tables(documents):
    """(context, budgets, names, runs by name and budget)"""
    for document in documents.values():
        for context in document["contexts"]:
            runs = {(r["name"], r["budget"]): r for r in context["runs"]}
            names = [n for n in dict.fromkeys(n for n, _ in runs)
                     if n != "full attention"]
            budgets = sorted({b for n, b in runs if n in names})
            yield document, context, budgets, names, runs


def bits_text(documents):
    parts = []
    for document, context, budgets, names, runs in tables(documents):
        length = context["context"]
        exact = runs["full attention", length]
        lines = [f"**context {length}**, {document['model']}: full attention "
                 f"{exact['bits']:.4f} ± {exact['error']:.4f}\n",
                 head("", *budgets)]
        for name in names:
            lines.append(row(name, *(
                f"{runs[name, b]['bits']:.4f} ± {runs[name, b]['error']:.4f}"
                for b in budgets)))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "No model was run yet."


def differences_text(documents):
    parts = []
    for _, context, budgets, names, runs in tables(documents):
        lines = [f"**context {context['context']}**\n",
                 head("less evict-only", *budgets)]
        for name in names:
            if name not in ("evict-only", "full attention"):
                lines.append(row(name, *(
                    difference(runs[name, b], runs["evict-only", b])
                    for b in budgets)))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "There is nothing to compare yet."


def layers_text(documents):
    lines = []
    for _, context, budgets, _, runs in tables(documents):
        for budget in budgets:
            share = runs["+ PTAA + VABS", budget]["layer_budgets"]
            lines = lines or [head("context", "budget",
                                   *(f"layer {i}" for i in range(len(share))))]
            lines.append(row(context["context"], budget,
                             *(f"{s:.0f}" for s in share)))
    return "\n".join(lines) or "No budgets were chosen yet."


def needles_text(documents):
    parts = []
    for _, context, budgets, _, _ in tables(documents):
        needles = context["needles"]
        if not needles["runs"]:
            continue
        runs = {(r["name"], r["budget"]): r for r in needles["runs"]}
        exact = runs["full attention", context["context"]]
        lines = [f"**context {context['context']}**: full attention "
                 f"{exact['recall']:.3f}\n", head("", *budgets)]
        for name in dict.fromkeys(n for n, _ in runs if n != "full attention"):
            lines.append(row(name, *(f"{runs[name, b]['recall']:.3f}"
                                     for b in budgets)))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "No needle was looked for yet."


def errors_text(documents):
    parts = []
    for document in documents.values():
        for each in document["traces"]:
            runs = {(r["name"], r["budget"]): r for r in each["runs"]}
            budgets = sorted({b for _, b in runs})
            lines = [f"**{title(each['trace'])}**, {each['context']} tokens, "
                     f"of which {each['prompt']} are the prompt\n",
                     head("", *budgets)]
            for name in dict.fromkeys(n for n, _ in runs):
                lines.append(row(name, *(f"{runs[name, b]['mean']:.4f}"
                                         for b in budgets)))
            parts.append("\n".join(lines))
    return "\n\n".join(parts) or "No trace was decoded yet."


def reach_text(documents):
    lines = []
    for document in documents.values():
        for each in document["traces"]:
            for run in each["runs"]:
                if "reach" in run:
                    lines = lines or [head("trace", "tokens", "budget", *(
                        f"{100 * float(p):g} %" for p in run["reach"]))]
                    lines.append(row(
                        title(each["trace"]), each["context"], run["budget"],
                        *(f"{x:.1f}" for x in run["reach"].values())))
    return "\n".join(lines) or "No trace was decoded yet."


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=pathlib.Path,
                        default=ROOT / "bench/results/slake")
    parser.add_argument("--document", type=pathlib.Path, default=ROOT / NAME)
    arguments = parser.parse_args()
    found = read(arguments.results, "ladle-slake-reference-1")
    traces = read(arguments.results, "ladle-slake-traces-1")
    kernels = read(arguments.results, "ladle-slake-1")
    before = arguments.document.read_text(encoding="utf-8")
    after = fill(before, {
        "kernel bits": slake_lm.bits_text(kernels),
        "kernel needles": slake_lm.needles_text(kernels),
        "kernel times": slake_lm.times_text(kernels),
        "reference bits": bits_text(found),
        "reference differences": differences_text(found),
        "reference budgets": layers_text(found),
        "reference needles": needles_text(found),
        "reference errors": errors_text(traces),
        "reference reach": reach_text(traces),
    })
    if not arguments.check:
        arguments.document.write_text(after, encoding="utf-8")
    elif before != after:
        sys.exit(f"error: {NAME} is not what bench/results/slake says"
                 "\nnote: run bench/slake_quality.py")


if __name__ == "__main__":
    main()
