# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What slake_lm has measured of Ladle's kernels, as tables of docs/slake.md;
bench/slake_quality.py writes them there."""

import statistics

from mac import head, row

NAMES = {"evict": "evict only", "ptaa": "+ PTAA", "vabs": "+ PTAA + VABS"}
FULL = "full"


def figures_of(documents, kind):
    """By context, scheme, budget and stream; of "full" the budget is 0."""
    found = {}
    for document in documents.values():
        for each in document["jobs"]:
            job = each["job"]
            if job["kind"] == kind:
                found[job["context"], job["scheme"], job["budget"],
                      job["stream"]] = each["figures"]
    return found


def lengths_of(found):
    return sorted({context for context, *_ in found})


def column(found, context, scheme, budget, name):
    """Of each stream."""
    return {key[3]: figures[name] for key, figures in found.items()
            if key[:3] == (context, scheme, budget)}


def difference(one, other):
    """Mean over the streams that both have, and its standard error."""
    each = [one[s] - other[s] for s in one if s in other]
    error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0
    return statistics.mean(each), error


def budgets_of(found, context):
    return sorted({b for c, s, b, _ in found if c == context and s in NAMES})


def bits_text(documents):
    found, parts = figures_of(documents, "bits"), []
    for context in lengths_of(found):
        full = column(found, context, FULL, 0, "bits")
        any_of = next(f for k, f in found.items() if k[0] == context)
        lines = [f"**context {context}**, of which {context // 2} bytes are a "
                 f"prompt, and {any_of['positions']} after it are scored: full "
                 f"attention {statistics.mean(full.values()):.4f}\n",
                 head("budget", *NAMES.values())]
        for budget in budgets_of(found, context):
            cells, evicted = [], None
            for scheme in NAMES:
                bits = column(found, context, scheme, budget, "bits")
                mean, error = difference(bits, full)
                cells.append(f"{mean:.3f} ± {error:.3f}")
                if evicted:
                    mean, error = difference(bits, evicted)
                    cells[-1] += f" ({mean:+.3f} ± {error:.3f})"
                evicted = evicted or bits
            lines.append(row(budget, *cells))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "No model was run yet."


def needles_text(documents):
    found, parts = figures_of(documents, "needle"), []
    for context in lengths_of(found):
        full = column(found, context, FULL, 0, "right")
        lines = [f"**context {context}**: full attention "
                 f"{statistics.mean(full.values()):.3f}\n",
                 head("budget", *NAMES.values())]
        for budget in budgets_of(found, context):
            lines.append(row(budget, *(
                f"{statistics.mean(right.values()):.3f}" for right in (
                    column(found, context, scheme, budget, "right")
                    for scheme in NAMES))))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "No needle was looked for yet."


def times_text(documents):
    found = figures_of(documents, "time")
    lines = []
    for context in lengths_of(found):
        for (length, scheme, budget, _), figures in found.items():
            if length != context:
                continue
            lines = lines or [
                figures["machine"] + "\n",
                head("length", "", "caches", "peak", "prompt", "a step")]
            name = "full attention" if scheme == FULL else \
                f"{NAMES[scheme]}, {budget}"
            prompt = figures.get("prompt_busy_seconds",
                                 figures["prompt_seconds"])
            lines.append(row(
                context, name, f"{figures['cache_bytes'] / 1e6:.1f} MB",
                f"{figures['peak_bytes'] / 1e6:.0f} MB", f"{prompt:.2f} s",
                f"{figures['step_seconds'] * 1e3:.2f} ms"))
    return "\n".join(lines) or "Nothing was timed yet."
