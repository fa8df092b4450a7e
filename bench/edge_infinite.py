#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of docs/edge_infinite.md, from bench/results/edge_infinite.

bench/edge_infinite.py          writes the document's parts between its markers
bench/edge_infinite.py --check  fails if they are not what the results say
"""

import argparse
import pathlib
import statistics
import sys

from mac import head, read, row
from plot import ROOT, fill

NAME = "docs/edge_infinite.md"
# (what, against what): differences that the document speaks of.
PAIRS = [
    ("EdgeInfinite", "EdgeInfinite, gate shut"),
    ("EdgeInfinite", "EdgeInfinite, a gate trained to read zeros"),
    ("EdgeInfinite, re-run", "EdgeInfinite"),
    ("EdgeInfinite", "StreamingLLM, bytes at its peak"),
    ("EdgeInfinite", "StreamingLLM, bytes on average"),
]


def sizes_of(sizes):
    return "{sinks} / {window} / {segment}".format(**sizes)


def gates_text(documents):
    parts = []
    for document in documents.values():
        contexts = list(document["gates"][0]["valid_shut"])
        lines = [head("sinks / window / segment", "gate", "weights", "steps", *(
            f"{which}, {c}" for c in contexts for which in ("shut", "trained")))]
        for gate in document["gates"]:
            lines.append(row(
                sizes_of(gate["sizes"]), gate["gate"],
                f"{gate['gate_weights']} ({100 * gate['share']:.2f} %)",
                gate["steps"], *(
                    f"{gate[key][c]:.4f}" for c in contexts
                    for key in ("valid_shut", "valid_trained"))))
        parts.append(f"{document['device']}, driver {document['driver']}, "
                     f"{document['date']}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) or "No gate was trained yet."


def runs_of(document):
    """Names in their order, and (name, context) to a run."""
    found = {(run["name"], context["context"]): run
             for context in document["contexts"] for run in context["runs"]}
    return list(dict.fromkeys(name for name, _ in found)), found


def largest_first(documents):
    return sorted(documents.values(), key=lambda d: -d["sizes"]["segment"])


def bits_text(documents):
    parts = []
    for document in largest_first(documents):
        names, runs = runs_of(document)
        contexts = [c["context"] for c in document["contexts"]]
        lines = [f"**sinks / window / segment {sizes_of(document['sizes'])}**, "
                 f"{document['model']}, {document['date']}\n",
                 head("", "tokens", *contexts)]
        for name in names:
            kept = runs[name, contexts[0]]["tokens"]
            lines.append(row(
                name, "all" if name == "full attention" else kept,
                *(f"{runs[name, c]['bits']:.4f} ± {runs[name, c]['error']:.4f}"
                  for c in contexts)))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "No model was run yet."


def difference(one, other):
    """Of the streams' bits: mean ± its standard error."""
    each = [a - b for a, b in zip(one["streams"], other["streams"])]
    error = statistics.stdev(each) / len(each) ** 0.5
    return f"{statistics.mean(each):+.4f} ± {error:.4f}"


def differences_text(documents):
    lines = []
    for document in largest_first(documents):
        names, runs = runs_of(document)
        contexts = [c["context"] for c in document["contexts"]]
        lines = lines or [head("sinks / window / segment", "", *contexts)]
        for one, other in PAIRS:
            if one in names and other in names:
                lines.append(row(
                    sizes_of(document["sizes"]), f"{one} − {other}",
                    *(difference(runs[one, c], runs[other, c])
                      for c in contexts)))
    return "\n".join(lines) or "There is nothing to compare yet."


def kernels_text(documents):
    lines = []
    for document in documents.values():
        for run in document["runs"]:
            lines = lines or [
                f"context {document['context']}, {document['model']}, "
                f"{document['date']}\n",
                head("", "bits per byte", "largest difference of a logit",
                     "mean")]
            lines.append(row(
                run["name"], f"{run['bits']:.5f}",
                f"{run['largest_difference']:.1e}" if "change" in run else "",
                f"{run['mean_difference']:.1e}" if "change" in run else ""))
    return "\n".join(lines) or "No kernel was compared yet."


def prompts_text(documents):
    parts = []
    for document in documents.values():
        runs = {(r["name"], r["tokens"]): r for r in document["runs"]}
        names = list(dict.fromkeys(n for n, _ in runs))
        lines = [f"{document['machine']}, {document['date']}\n",
                 head("tokens", *(f"{name}, {what}" for name in names
                                  for what in ("to the first token", "peak")))]
        for tokens in sorted({t for _, t in runs}):
            cells = []
            for name in names:
                run = runs.get((name, tokens))
                cells += ["", ""] if run is None else [
                    f"{run['busy_seconds']:.2f} s", f"{run['peak_bytes'] / 1e6:.0f} MB"]
            lines.append(row(tokens, *cells))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "No prompt was timed yet."


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=pathlib.Path,
                        default=ROOT / "bench/results/edge_infinite")
    parser.add_argument("--document", type=pathlib.Path, default=ROOT / NAME)
    arguments = parser.parse_args()
    bits = read(arguments.results, "ladle-edge-infinite-bits-1")
    before = arguments.document.read_text(encoding="utf-8")
    after = fill(before, {
        "gates": gates_text(read(arguments.results,
                                 "ladle-edge-infinite-gates-1")),
        "bits": bits_text(bits),
        "differences": differences_text(bits),
        "kernels": kernels_text(read(arguments.results,
                                     "ladle-edge-infinite-kernels-1")),
        "prompts": prompts_text(read(arguments.results,
                                     "ladle-edge-infinite-prompts-1")),
    })
    if not arguments.check:
        arguments.document.write_text(after, encoding="utf-8")
    elif before != after:
        sys.exit(f"error: {NAME} is not what bench/results/edge_infinite says"
                 "\nnote: run bench/edge_infinite.py")


if __name__ == "__main__":
    main()
