#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of docs/slake.md, from what slake_lm, bench/slake_reference.py,
bench/slake_traces.py and bench/slake_evicted.py have left.

bench/slake_quality.py          writes the document's parts between its markers
bench/slake_quality.py --check  fails if they are not what the results say
"""

import argparse
import pathlib
import re
import statistics
import sys

import slake_lm
from edge_infinite import difference
from mac import head, read, row, title
from plot import ROOT, fill

NAME = "docs/slake.md"
OF_MODEL = re.compile(r"stream(\d+)-layer(\d+)")


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


def of_files(documents):
    """Traces that are files; others are of the layers of a model."""
    for document in documents.values():
        for each in document["traces"]:
            if not OF_MODEL.fullmatch(each["trace"]):
                yield each


def errors_text(documents):
    parts = []
    for each in of_files(documents):
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


def layer_errors_text(documents):
    """Of all layers of a model, means over streams."""
    found = {}
    for document in documents.values():
        for each in document["traces"]:
            match = OF_MODEL.fullmatch(each["trace"])
            for run in each["runs"] if match else ():
                found.setdefault(
                    (each["context"], int(match[2]), run["name"], run["budget"]),
                    []).append(run["mean"])
    parts = []
    for context in sorted({c for c, *_ in found}):
        here = {k[1:]: v for k, v in found.items() if k[0] == context}
        budgets = sorted({b for *_, b in here})
        names = list(dict.fromkeys(n for _, n, _ in here))
        layers = sorted({layer for layer, *_ in here})
        streams = len(next(iter(here.values())))
        lines = [f"**context {context}**, "
                 f"{streams} stream{'s' if streams > 1 else ''}\n",
                 head("layer", "", *budgets)]
        for layer in layers + ["all"]:
            for name in names:
                cells = []
                for budget in budgets:
                    cells.append(statistics.mean(
                        x for (at, n, b), values in here.items()
                        if (n, b) == (name, budget) and layer in (at, "all")
                        for x in values))
                lines.append(row(layer, name, *(f"{x:.4f}" for x in cells)))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "No model was decoded yet."


def evicted_text(documents):
    """What summaries of the evicted give, in bits per byte less evict-only."""
    parts = []
    for document in documents.values():
        budgets = sorted(document["budgets"], key=lambda b: b["budget"])
        runs = {(r["name"], b["budget"]): r for b in budgets for r in b["runs"]}
        sizes = [b["budget"] for b in budgets]
        change = lambda r: f"{r['change']:+.4f} ± {r['change_error']:.4f}"
        lines = [f"**context {document['context']}**, {document['streams']} "
                 f"streams, {document['model']}; full attention "
                 f"{document['full']:.4f}\n", head("less evict-only", *sizes)]
        for name in dict.fromkeys(n for n, _ in runs):
            if name != "evict-only":
                lines.append(row(name, *(change(runs[name, b]) for b in sizes)))
        lines.append(row("all of it, exact: full attention", *(
            f"{-runs['evict-only', b]['excess']:+.4f} ± "
            f"{runs['evict-only', b]['error']:.4f}" for b in sizes)))
        for at, each in enumerate(document["layers"]):
            if at == 0:
                lines.append("\n" + head("exact in one layer alone", *(
                    r["name"].removeprefix("exact in ")
                    for r in each["runs"][1:])))
            lines.append(row(f"budget {each['budget']}",
                             *(change(r) for r in each["runs"][1:])))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "Nothing was decoded yet."


def evicted_layers_text(documents):
    """Why: errors of answers of each layer, and what was evicted."""
    lines = []
    for document in documents.values():
        for each in sorted(document["budgets"], key=lambda b: b["budget"]):
            lines = lines or [head(
                "budget", "layer", "evicted weight", "of it, 8 tokens",
                "deviation of scores", "n e^μ is too little by", "evict-only",
                "+ PTAA", "first order, exact weight")]
            for layer, figures in enumerate(each["layers"]):
                mean = lambda name, f=figures: f[name]["mean"]
                share = lambda name, f=figures: f[name]["by_share"]
                lines.append(row(
                    each["budget"], layer,
                    f"{mean('share of the evicted'):.3f}",
                    f"{share('largest 8'):.2f}",
                    f"{share('deviation of scores'):.1f}",
                    f"e^{share('weight left out'):.1f}",
                    *(f"{mean('error, ' + n):.3f}" for n in (
                        "evict-only", "+ PTAA", "first order, exact weight"))))
    return "\n".join(lines) or "Nothing was decoded yet."


def worst_text(documents):
    """How few bytes the excess is of."""
    lines = []
    for document in documents.values():
        for each in sorted(document["budgets"], key=lambda b: b["budget"]):
            for run in each["runs"][:2]:
                parts = run["excess_of_worst"]
                lines = lines or [head("budget", "", *(
                    "all bytes" if p == "1" else f"the worst {100 * float(p):g} %"
                    for p in parts))]
                lines.append(row(each["budget"], run["name"],
                                 *(f"{x:.3f}" for x in parts.values())))
    return "\n".join(lines) or "Nothing was decoded yet."


def reach_text(documents):
    lines = []
    for each in of_files(documents):
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
    evicted = read(arguments.results, "ladle-slake-evicted-1")
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
        "reference layer errors": layer_errors_text(traces),
        "reference reach": reach_text(traces),
        "evicted bits": evicted_text(evicted),
        "evicted layers": evicted_layers_text(evicted),
        "evicted worst": worst_text(evicted),
    })
    if not arguments.check:
        arguments.document.write_text(after, encoding="utf-8")
    elif before != after:
        sys.exit(f"error: {NAME} is not what bench/results/slake says"
                 "\nnote: run bench/slake_quality.py")


if __name__ == "__main__":
    main()
