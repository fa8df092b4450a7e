#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables and plots of docs/mac.md, from bench/results/mac.

bench/mac.py          writes the parts of the document between its markers, and
                      the plots beside it (needs matplotlib)
bench/mac.py --pool FILE  prints results/mac/layers.json, from a profile of
                      all layers of several streams
bench/mac.py --check  fails if those parts are not what the results say
bench/mac.py --draw FOLDER --profile FILE [--profile FILE ...]
                      the same plots of what mac-profile --json said of other
                      traces (needs matplotlib)
"""

import argparse
import json
import pathlib
import re
import sys

from plot import ROOT, fill, save

NAME = "docs/mac.md"


def read(folder, schema):
    """Documents of a schema, by the names of their files."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("schema") == schema:
            found[path.stem] = document
    return found


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*cells):
    return row(*cells) + "\n" + "|---" * len(cells) + "|"


def title(trace):
    """"traces-softmax-doc0-layer1.safetensors" as "doc0-layer1"."""
    return re.sub(r"^traces-softmax-|\.safetensors$", "", trace)


def layer_of(trace):
    found = re.search(r"layer(\d+)", trace)
    return int(found[1]) if found else None


def limits(document):
    """What was asked for besides tau, K and r."""
    chain = document["max_chain"]
    texts = [f"at most {chain} summaries in a chain"] if chain else []
    names = ("sinks", "max_gap", "skip", "wide_band", "wide_gap")
    texts += [f"{name} = {document[name]}" for name in names
              if document.get(name)]
    if "drift" in document:
        texts.append(f"drift = {document['drift']}")
    return ", ".join(texts)


def series(profiles):
    """(limits, trace, figures) of all traces."""
    for document in profiles.values():
        for trace in document["traces"]:
            yield limits(document), trace["trace"], trace["figures"]


# ---------------------------------------------------------------------------
# Tables
# ---------------------------------------------------------------------------


def profile_text(profiles):
    parts = []
    for limit, trace, figures in series(profiles):
        comma = ", " if limit else ""
        lines = [f"**{title(trace)}**{comma}{limit}\n", head(
            "K", "tau", "r", "hits", "skipped", "cache read", "bytes",
            "one step", "closed loop")]
        for f in figures:
            knee = " ← knee" if f["knee"] else ""
            lines.append(row(
                f["window"], f["tau"], f["band"], f"{f['hits']:.3f}",
                f"{f['skipped']:.3f}", f"{f['cache']:.3f}",
                f"{f['bytes']:.3f}", f"{f['single']:.4f}",
                f"{f['closed']:.4f}{knee}"))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "Nothing was profiled yet."


def pool(document):
    """Of profiles of all layers of several streams: means over the streams."""
    sums = {}
    for trace in document["traces"]:
        for f in trace["figures"]:
            key = layer_of(trace["trace"]), f["tau"], f["window"], f["band"]
            sums.setdefault(key, []).append(f)
    figures = []
    for (layer, tau, window, band), found in sorted(sums.items()):
        hits = [f["single_hits"] for f in found]
        errors = [f["single"] / f["single_hits"] for f in found
                  if f["single_hits"] > 0]
        figures.append({"layer": layer, "tau": tau, "window": window,
                        "band": band, "streams": len(found),
                        "hits": round(sum(hits) / len(hits), 5),
                        "error": round(sum(errors) / len(errors), 6)})
    first = document["traces"][0]
    lines = ",\n".join(" " + json.dumps(f) for f in figures)
    return (f'{{"schema": "ladle-mac-layers-1", "tokens": {first["tokens"]}, '
            f'"decoded": {first["decoded"]}, "figures": [\n{lines}\n]}}\n')


def reference_text(pooled, references):
    """Single steps beside those of another program, on the same streams."""
    wanted = {(r["layer"], r["tau"], int(band)): (r["hits"], error)
              for reference in references.values()
              for r in reference["figures"]
              for band, error in r["error"].items()}
    pairs = {}
    for document in pooled.values():
        for f in document["figures"]:
            found = wanted.get((f["layer"], f["tau"], f["band"]))
            if found:
                pairs.setdefault((f["tau"], f["band"]), []).append(
                    (f["hits"], f["error"], *found))
    if not pairs:
        return "There is nothing to compare with yet."
    ratios = [mine / other for each in pairs.values()
              for _, mine, _, other in each]
    lines = [head("tau", "r", "hits", "reference", "error of a hit",
                  "reference", "ratio")]
    for (tau, band), each in sorted(pairs.items()):
        hits, mine, other_hits, other = (
            sum(column) / len(each) for column in zip(*each))
        lines.append(row(tau, band, f"{hits:.3f}", f"{other_hits:.3f}",
                         f"{mine:.4f}", f"{other:.4f}", f"{mine / other:.3f}"))
    return (f"Means over {len(each)} layers; of single layers the ratios are "
            f"{min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} figures."
            "\n\n" + "\n".join(lines))


def ranges_text(profiles, key, cells):
    """Ranges at the smallest tau and the largest K, a column a band."""
    parts = []
    for limit, trace, figures in series(profiles):
        if limit:
            continue
        tau = min(f["tau"] for f in figures)
        window = max(f["window"] for f in figures)
        chosen = [f for f in figures if (f["tau"], f["window"]) == (tau, window)]
        rows = {}
        for i, f in enumerate(chosen):
            for each in f[key]:
                line = rows.setdefault(each["from"], [""] * (len(chosen) + 1))
                line[0] = (str(each["from"]) if each["from"] == each["to"]
                           else f"{each['from']} to {each['to']}")
                line[i + 1] = cells(each)
        lines = [f"**{title(trace)}**, tau = {tau}, K = {window}\n",
                 head("", *(f"r = {f['band']}" for f in chosen))]
        lines += [row(*rows[start]) for start in sorted(rows)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "Nothing was profiled yet."


def settings_text(tables):
    parts = []
    for name, document in tables.items():
        lines = [f"`{name}.json`: an error of {document['max_error']} at "
                 "most\n", head("layer", "tau", "K", "r", "max_chain", "hits",
                                "bytes", "error")]
        for each in document["layers"]:
            exact = each["tau"] >= 1
            lines.append(row(
                each["layer"], *(["exact", "–", "–", "–"] if exact else
                                 [each["tau"], each["window"], each["band"],
                                  each["max_chain"] or "–"]),
                f"{each['hits']:.3f}", f"{each['bytes']:.3f}",
                f"{each['error']:.4f}"))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "Nothing was tuned yet."


def bits_text(bits):
    parts = []
    for document in bits.values():
        for context in document["contexts"]:
            parts.append((context["context"], document["model"], context))
    parts.sort(key=lambda part: part[:2])
    for i, (length, model, context) in enumerate(parts):
        lines = [
            f"**{model}, context {length}**: "
            f"{context['streams']} streams, {context['positions']} bytes "
            f"of each after a prompt of {length // 2}\n",
            head("", "bits per byte", "more than exact", "hits",
                 "cache skipped")]
        exact = context["exact"]
        lines.append(row("exact", f"{exact['bits']:.4f} ± "
                         f"{exact['error']:.4f}", "–", "–", "–"))
        for run in context["runs"]:
            lines.append(row(
                run["name"], f"{run['bits']:.4f} ± {run['error']:.4f}",
                f"{run['change']:+.4f} ± {run['change_error']:.4f}",
                f"{run['hits']:.3f}", f"{run['skipped']:.3f}"))
        parts[i] = "\n".join(lines)
    return "\n\n".join(parts) or "No model was run yet."


# ---------------------------------------------------------------------------
# Plots
# ---------------------------------------------------------------------------


def draw_quality(pyplot, traces, path):
    """Closed-loop error over the part of the cache that is read, over tau."""
    shape = {"figsize": (4.4 * len(traces), 3.6), "squeeze": False}
    figure, axes = pyplot.subplots(1, len(traces), **shape)
    for axis, (_, trace, figures) in zip(axes[0], traces):
        window = max(f["window"] for f in figures)
        for band in sorted({f["band"] for f in figures}):
            line = sorted((f["cache"], f["closed"], f["tau"], f["knee"])
                          for f in figures
                          if (f["window"], f["band"]) == (window, band))
            drawn = axis.plot([p[0] for p in line], [p[1] for p in line],
                              marker="o", markersize=3, label=f"r = {band}")
            for x, y, tau, knee in line:
                if knee:
                    axis.plot(x, y, "s", markersize=9, fillstyle="none",
                              color=drawn[0].get_color())
                    axis.annotate(f"tau = {tau}", (x, y), (5, 5), fontsize=7,
                                  textcoords="offset points")
        axis.set_title(f"{title(trace)}, K = {window}", fontsize=9)
        axis.set_xlabel("part of the cache that is read")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("mean error, closed loop")
    save(pyplot, figure, path)


def draw_ranges(pyplot, traces, path, key, labels, xlabel):
    shape = {"figsize": (4.4 * len(traces), 3.6), "squeeze": False}
    figure, axes = pyplot.subplots(1, len(traces), **shape)
    styles = {"closed": "-", "single": ":"}
    for axis, (_, trace, figures) in zip(axes[0], traces):
        tau = min(f["tau"] for f in figures)
        window = max(f["window"] for f in figures)
        chosen = [f for f in figures if (f["tau"], f["window"]) == (tau, window)]
        for i, f in enumerate(chosen):
            for which in labels:
                points = [(e["to"], e[which]) for e in f[key] if e[which] > 0]
                if points:
                    axis.plot(*zip(*points), styles[which], color=f"C{i}",
                              marker="o", markersize=3,
                              label=f"r = {f['band']}"
                              if which == "closed" else None)
        axis.set(xscale="log", yscale="log", xlabel=xlabel)
        axis.set_title(f"{title(trace)}, tau = {tau}, K = {window}", fontsize=9)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("mean error of a hit")
    save(pyplot, figure, path)


def draw_hits(pyplot, traces, path):
    """What matches and what is skipped, over tau, at the largest r."""
    shape = {"figsize": (4.4 * len(traces), 3.6), "squeeze": False}
    figure, axes = pyplot.subplots(1, len(traces), **shape)
    for axis, (_, trace, figures) in zip(axes[0], traces):
        band = max(f["band"] for f in figures)
        for i, window in enumerate(sorted({f["window"] for f in figures})):
            chosen = sorted(
                (f["tau"], f["hits"], f["skipped"]) for f in figures
                if (f["window"], f["band"]) == (window, band))
            for at, style in ((1, "-"), (2, ":")):
                axis.plot([f[0] for f in chosen], [f[at] for f in chosen],
                          style, color=f"C{i}", marker="o", markersize=3,
                          label=f"K = {window}" if at == 1 else None)
        axis.set(xlabel="tau", ylim=(0, 1.05))
        axis.set_title(f"{title(trace)}, r = {band}", fontsize=9)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("of tokens and heads, of the cache")
    save(pyplot, figure, path)


def plots(traces):
    """Title and function of each plot of (limits, trace, figures)."""
    if not traces:
        return {}
    return {
        "mac-hits": (
            "Tokens and heads that match, over tau; dotted: the cache that is "
            "skipped",
            lambda p, path: draw_hits(p, traces, path)),
        "mac-quality": (
            "The error of the closed loop over the cache that is read; squares "
            "are knees",
            lambda p, path: draw_quality(p, traces, path)),
        "mac-gaps": (
            "The error of a hit over its gap; dotted: from exact summaries",
            lambda p, path: draw_ranges(p, traces, path, "gaps",
                                        ("closed", "single"),
                                        "tokens back, at most")),
        "mac-chains": (
            "The error of a hit over the depth of its chain",
            lambda p, path: draw_ranges(p, traces, path, "chains",
                                        ("closed",), "depth, at most")),
    }


def draw_all(drawn, folder):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "ladle"
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, draw) in drawn.items():
        draw(pyplot, folder / f"{name}.svg")


def profile_at(path):
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        sys.exit(f"error: {path}: {error}")
    if document.get("schema") != "ladle-mac-profile-1":
        sys.exit(f"error: {path} has schema {document.get('schema')!r}, wanted "
                 "'ladle-mac-profile-1'\n"
                 f"note: ladle mac-profile TRACE --json > {path}")
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=pathlib.Path,
                        default=ROOT / "bench/results/mac")
    parser.add_argument("--document", type=pathlib.Path, default=ROOT / NAME)
    parser.add_argument("--pool", type=pathlib.Path, metavar="FILE",
                        help="print the layers' means of what mac-profile "
                        "--json said of all layers of several streams")
    parser.add_argument("--draw", type=pathlib.Path, metavar="FOLDER",
                        help="write the plots of --profile there")
    parser.add_argument("--profile", type=pathlib.Path, action="append",
                        default=[], metavar="FILE",
                        help="of mac-profile --json")
    arguments = parser.parse_args()
    if bool(arguments.draw) != bool(arguments.profile):
        parser.error("--draw and --profile belong together")
    if arguments.draw:
        chosen = {path: profile_at(path) for path in arguments.profile}
        draw_all(plots(list(series(chosen))), arguments.draw)
        return
    if arguments.pool:
        sys.stdout.write(pool(json.loads(arguments.pool.read_text())))
        return
    profiles = read(arguments.results, "ladle-mac-profile-1")
    references = read(arguments.results, "ladle-mac-reference-1")
    drawn = plots([s for s in series(profiles) if not s[0]])
    parts = {
        "profile": profile_text(profiles),
        "reference": reference_text(
            read(arguments.results, "ladle-mac-layers-1"), references),
        "gaps": ranges_text(
            profiles, "gaps",
            lambda e: f"{e['single']:.4f} / {e['closed']:.4f}"),
        "chains": ranges_text(profiles, "chains",
                              lambda e: f"{e['closed']:.4f}"),
        "settings": settings_text(read(arguments.results,
                                       "ladle-mac-settings-1")),
        "bits": bits_text(read(arguments.results, "ladle-mac-bits-1")),
    }
    for name in ("mac-hits", "mac-quality", "mac-gaps", "mac-chains"):
        parts[f"plot of {name}"] = (
            f"![{drawn[name][0]}](plots/{name}.svg)" if name in drawn else "")
    before = arguments.document.read_text(encoding="utf-8")
    after = fill(before, parts)
    folder = arguments.document.parent / "plots"
    if arguments.check:
        missing = [n for n in drawn if not (folder / f"{n}.svg").exists()]
        if before != after or missing:
            sys.exit(f"error: {NAME} is not what bench/results/mac says"
                     "\nnote: run bench/mac.py")
        return
    arguments.document.write_text(after, encoding="utf-8")
    if drawn:
        draw_all(drawn, folder)


if __name__ == "__main__":
    main()
