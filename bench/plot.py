#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables and plots of docs/performance.md, from bench/results.

bench/plot.py          writes the parts of the document between its markers, and
                       the plots beside it (needs matplotlib)
bench/plot.py --check  fails if those parts are not what the results say
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROUTES = ["recurrent", "inner", "outer", "adjoint", "kv_only"]


class Figure:
    """One result, with the run that it is of."""

    def __init__(self, device, run, result):
        self.__dict__.update(result)
        self.device, self.run = device, run
        self.limit_us = result.get("limit_us")
        self.predicted_us = result.get("predicted_us")
        self.name = pathlib.Path(self.file).stem
        if self.preset:
            self.name += f", {self.preset}"

    @property
    def share(self):
        return self.limit_us / self.us_a_step if self.limit_us else None

    @property
    def series(self):
        """What a line of a plot or a table is for."""
        return (self.device, self.name, self.state)


def load(folder):
    figures = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("schema") != "ladle-bench-1":
            continue
        for result in document["results"]:
            if "layout" in result:  # of states: not what the tables are for
                continue
            run = document["runs"][result["run"]]
            figures.append(Figure(document["device"], run, result))
    return figures


def group(figures, key):
    groups = {}
    for figure in figures:
        groups.setdefault(key(figure), []).append(figure)
    return dict(sorted(groups.items(), key=lambda item: str(item[0])))


def fastest(figures):
    return min(figures, key=lambda figure: figure.us_a_step)


# ---------------------------------------------------------------------------
# Tables
# ---------------------------------------------------------------------------


def format_time(microseconds):
    return f"{microseconds:.3g}" if microseconds < 100 else f"{microseconds:.0f}"


def cell(figures):
    """The fastest m of a route: time, m, and share of the limit."""
    if not figures:
        return "–"
    best = fastest(figures)
    text = format_time(best.us_a_step)
    if best.m > 1:
        text += f", m = {best.m}"
    if best.share:
        text += f" ({100 * best.share:.0f} %)"
    return text


def table(figures):
    routes = [r for r in ROUTES if any(f.route == r for f in figures)]
    lines = ["| batch | " + " | ".join(f"`{r}`" for r in routes) + " |"]
    lines.append("|---" * (len(routes) + 1) + "|")
    for batch, rows in group(figures, lambda f: f.batch).items():
        cells = [cell([f for f in rows if f.route == r]) for r in routes]
        lines.append(f"| {batch} | " + " | ".join(cells) + " |")
    # Numbers, not texts, decide the order.
    lines[2:] = sorted(lines[2:], key=lambda line: int(line.split("|")[1]))
    return "\n".join(lines)


def results_text(figures):
    parts = []
    for (device, name, state), members in group(
        figures, lambda f: f.series
    ).items():
        dates = sorted({f.run["date"] for f in members})
        entries = sorted({f.entry for f in members if f.entry})
        parts.append(
            f"**{name}**, {state} states, {' and '.join(entries) or 'no'} entries, "
            f"{device}, {' and '.join(dates)}\n\n{table(members)}"
        )
    return "\n\n".join(parts)


def early_cell(figures):
    """In order, early, at the m that is fastest early, and the share of the
    limit of the latter where a step is not mostly latencies."""
    timed = [f for f in figures if getattr(f, "early", None)]
    if not timed:
        return ""
    best = min(timed, key=lambda f: f.early["us_a_step"])
    text = f"{format_time(best.us_a_step)}, {format_time(best.early['us_a_step'])}"
    if best.batch >= 32:
        text += f" ({100 * best.early['of_limit']:.0f} %)"
    return text


def early_text(figures):
    """A row for each recurrence and type of states, a column for each batch."""
    batches = sorted({f.batch for f in figures})
    if not batches:
        return "No run in `bench/results/early` has timed steps that start early."
    lines = ["| | " + " | ".join(str(b) for b in batches) + " |"]
    lines.append("|---" * (len(batches) + 1) + "|")
    for (_, name, state), rows in group(figures, lambda f: f.series).items():
        cells = [early_cell([f for f in rows if f.batch == b]) for b in batches]
        recurrence = name.split(",")[0]
        lines.append(f"| {recurrence}, {state} | " + " | ".join(cells) + " |")
    runs = {f.run["date"] for f in figures}
    devices = {f.device for f in figures}
    return (
        "\n".join(lines)
        + f"\n\n{' and '.join(sorted(devices))}, {' and '.join(sorted(runs))}."
    )


def ceilings_text(figures):
    lines = []
    runs = {id(f.run): f for f in figures if "read_ceiling" in f.run}
    for figure in runs.values():
        run = figure.run
        lines.append(
            f"| {figure.device} | {run['date']} "
            f"| {run['read_ceiling']['gb_per_s']:.0f} GB/s "
            f"| {run['update_ceiling']['gb_per_s']:.0f} GB/s "
            f"| {run['launch_us']:.2f} µs |"
        )
    if not lines:
        return "No run in `bench/results` has measured ceilings yet."
    head = "| device | date | reading | updating in place | a launch |\n"
    return head + "|---|---|---|---|---|\n" + "\n".join(sorted(set(lines)))


def model_text(figures):
    known = [f for f in figures if f.predicted_us and f.batch >= 32]
    if not known:
        return "No run in `bench/results` has a prediction yet."
    within = [
        f for f in known if abs(f.us_a_step / f.predicted_us - 1) <= 0.15
    ]
    worst = max(known, key=lambda f: abs(f.us_a_step / f.predicted_us - 1))
    return (
        f"From batch 32 up, {len(within)} of {len(known)} figures are within "
        f"15 % of the prediction; the worst, {worst.name}, `{worst.route}`, "
        f"{worst.state} states, m = {worst.m}, batch {worst.batch}, takes "
        f"{format_time(worst.us_a_step)} µs where "
        f"{format_time(worst.predicted_us)} µs are predicted."
    )


# ---------------------------------------------------------------------------
# Plots
# ---------------------------------------------------------------------------


def bell_data(figures):
    """Time over m, relative to the best m, of the route with most m."""
    lines = {}
    for (*series, route, batch), members in group(
        [f for f in figures if f.m > 1 and f.route == "inner"],
        lambda f: (*f.series, f.route, f.batch),
    ).items():
        points = {m: fastest(each) for m, each in group(members, lambda f: f.m).items()}
        if len(points) < 3:
            continue
        best = fastest(points.values()).us_a_step
        lines.setdefault(tuple(series), []).append(
            (batch, sorted((m, f.us_a_step / best) for m, f in points.items()))
        )
    return lines


def share_data(figures):
    lines = {}
    for (*series, route), members in group(
        [f for f in figures if f.share], lambda f: (*f.series, f.route)
    ).items():
        best = {b: fastest(each) for b, each in group(members, lambda f: f.batch).items()}
        if len(best) > 1:
            lines.setdefault(tuple(series), []).append(
                (route, sorted((b, 100 * f.share) for b, f in best.items()))
            )
    return lines


def draw_lines(pyplot, lines, path, title, xlabel, ylabel):
    columns = len(lines)
    shape = {"figsize": (4.2 * columns, 3.4), "squeeze": False, "sharey": True}
    figure, axes = pyplot.subplots(1, columns, **shape)
    for axis, (series, members) in zip(axes[0], lines.items()):
        for label, points in members:
            axis.plot(*zip(*points), marker="o", markersize=3, label=str(label))
        ticks = sorted({x for _, points in members for x, _ in points})
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [str(x) for x in ticks])
        axis.set_title(f"{series[1]}, {series[2]}", fontsize=9)
        axis.set_xlabel(xlabel)
        axis.grid(alpha=0.3)
        axis.legend(title=title, fontsize=7, title_fontsize=7)
    axes[0][0].set_ylabel(ylabel)
    save(pyplot, figure, path)


def draw_model(pyplot, figures, path):
    figure, axis = pyplot.subplots(figsize=(4.6, 4.2))
    for route, members in group(figures, lambda f: f.route).items():
        axis.plot(
            [f.predicted_us for f in members],
            [f.us_a_step for f in members],
            "o", markersize=3, label=route,
        )
    ends = [
        pick(v for f in figures for v in (f.predicted_us, f.us_a_step))
        for pick in (min, max)
    ]
    axis.plot(ends, ends, color="gray", linewidth=0.8)
    for factor in (0.85, 1.15):
        scaled = [factor * end for end in ends]
        axis.plot(ends, scaled, color="gray", linewidth=0.5, linestyle=":")
    axis.set(xscale="log", yscale="log", xlabel="predicted, µs a layer-step",
             ylabel="measured, µs a layer-step")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
    save(pyplot, figure, path)


def save(pyplot, figure, path):
    figure.tight_layout()
    # The same results make the same file, with text as text.
    with pyplot.rc_context({"svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def plots(figures):
    """Text and drawing of each plot that there are figures for."""
    bell, share = bell_data(figures), share_data(figures)
    predicted = [f for f in figures if f.predicted_us]
    found = {}
    if bell:
        found["bell"] = (
            "The time of a step over m, relative to the best m of the batch",
            lambda p, path: draw_lines(p, bell, path, "batch", "m",
                                       "time, of the best m"),
        )
    if share:
        found["share"] = (
            "The share of the limit over the batch, at the best m",
            lambda p, path: draw_lines(p, share, path, "route", "batch",
                                       "% of the limit"),
        )
    if predicted:
        found["model"] = (
            "Measured against predicted times; dotted is 15 % off",
            lambda p, path: draw_model(p, predicted, path),
        )
    return found


# ---------------------------------------------------------------------------
# The document
# ---------------------------------------------------------------------------


def fill(document, parts):
    for name, text in parts.items():
        pattern = re.compile(
            f"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL
        )
        if not pattern.search(document):
            sys.exit(f"error: the document has no place for '{name}'")
        body = text + "\n" if text else ""
        document = pattern.sub(lambda m, b=body: m[1] + b + m[2], document)
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--document", type=pathlib.Path,
                        default=ROOT / "docs/performance.md")
    arguments = parser.parse_args()
    figures = load(arguments.results)
    drawn = plots(figures)
    parts = {
        "ceilings": ceilings_text(figures),
        "results": results_text(figures),
        "model": model_text(figures),
        "early": early_text(load(arguments.results / "early")),
    }
    for name in ("bell", "share", "model"):
        image = f"plots/{name}.svg"
        parts[f"plot of {name}"] = (
            f"![{drawn[name][0]}]({image})" if name in drawn else ""
        )
    before = arguments.document.read_text(encoding="utf-8")
    after = fill(before, parts)
    folder = arguments.document.parent / "plots"
    if arguments.check:
        missing = [n for n in drawn if not (folder / f"{n}.svg").exists()]
        if before != after or missing:
            sys.exit("error: docs/performance.md is not what bench/results says"
                     "\nnote: run bench/plot.py")
        return
    arguments.document.write_text(after, encoding="utf-8")
    if drawn:
        import matplotlib

        matplotlib.use("svg")
        matplotlib.rcParams["svg.hashsalt"] = "ladle"
        matplotlib.rcParams["svg.fonttype"] = "none"
        from matplotlib import pyplot

        folder.mkdir(exist_ok=True)
        for name, (_, draw) in drawn.items():
            draw(pyplot, folder / f"{name}.svg")


if __name__ == "__main__":
    main()
