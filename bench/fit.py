#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fits the cost model's constants of an H200 to the figures in bench/results.

bench/fit.py          prints the constants, and what they miss
bench/fit.py --write  puts them into passes/analysis/Machine.cpp, and what they
                      predict into the figures; build Ladle again afterwards

A step of B rows at a fill is predicted to take

  launch + (entry latency, if there are entries)
    + B max(states / streaming rate + scattered bytes / scattered rate,
            flops / rate)

where states that are read alone stream at one rate, states that are updated in
place at another. What a step moves and computes, `ladle explain --json` counts.
Steps that verify drafts have constants of their own, as tensor cores multiply
what they can, of those that were timed in order. Where a draft is several
vectors, arithmetic is far slower, and all that is fitted is its rate.
The time is linear in the reciprocals once it is known which side of each
maximum is larger, so a few rounds of least squares on relative errors find them.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
MACHINE = ROOT / "passes/analysis/Machine.cpp"
# Launches decide small batches, and rates the rest, which matters more.
LARGE, WEIGHT_OF_SMALL = 32, 0.02
NAMES = ["launch", "entryLatency", "readBandwidth", "updateBandwidth",
         "scatteredBandwidth", "flopRate"]


def explain(ladle, figure):
    """What the steps of a figure's route move and compute, for one row."""
    drafts = figure.get("drafts", 0)
    command = [ladle, "explain", str(ROOT / figure["file"]), "--json",
               "--machine", "h200", "--capacity", str(figure["m"] + drafts)]
    if drafts:
        command += ["--drafts", str(drafts)]
    if figure["preset"]:
        command += ["--preset", figure["preset"]]
    if figure["state"]:
        command += ["--state", figure["state"]]
    if figure["entry"]:
        command += ["--entry", figure["entry"]]
    for name, size in figure["sizes"].items():
        command += ["--set", f"{name}={size}"]
    text = subprocess.run(command, check=True, capture_output=True, text=True)
    routes = json.loads(text.stdout)["routes"]
    return next(r["steps"] for r in routes if r["route"] == figure["route"])


def features(cost, entries, batch):
    """What the constants are multiplied with: both sides of the maximum."""
    updates = cost["state_written"] > 0
    states = cost["state_read"] + cost["state_written"]
    cached = cost["entry_read"] * entries
    scattered = (cached + cost["entry_written"] + cost["input_read"]
                 + cost["output_written"] + cost["carry_moved"])
    flops = cost["flops"] + cost["flops_per_entry"] * entries
    start = [1, cached > 0]
    memory = [(not updates) * states, updates * states, scattered, 0]
    return (np.array(start + [batch * x for x in memory], float),
            np.array(start + [0, 0, 0, batch * flops], float))


def steps_of(figure, costs):
    """Both features of every fill of a cycle."""
    m = figure["m"]
    if "decode_fold" not in costs:
        return [features(costs["decode"], 0, figure["batch"])]
    fills = [(costs["decode"], fill) for fill in range(m - 1)]
    fills.append((costs["decode_fold"], m - 1))
    return [features(cost, fill, figure["batch"]) for cost, fill in fills]


class Sample:
    """Steps whose mean was measured, and each of them, in microseconds."""

    def __init__(self, figure, steps, times, mean):
        self.figure, self.steps, self.times, self.mean = figure, steps, times, mean

    def predict(self, constants):
        """Seconds a step, amortised over the cycle."""
        return np.mean([max(memory @ constants, flops @ constants)
                        for memory, flops in self.steps])


def samples_of_tokens(figure, costs):
    return [Sample(figure, steps_of(figure, costs), figure["us_by_fill"],
                   figure["us_a_step"])]


def samples_of_drafts(result, costs):
    """Chains at some fills, with and without their fold; trees take the same."""
    samples = []
    for figure in result["figures"]:
        if figure["tree"] != "chain" or "h" not in figure:
            continue
        cost = costs["verify_fold" if figure["folds"] else "verify"]
        step = features(cost, figure["h"], result["batch"])
        samples.append(Sample({**result, "h": figure["h"]}, [step],
                              [figure["us_a_step"]], figure["us_a_step"]))
    return samples


def solve(rows, root, start):
    """Least squares, where constants that no step depends on stay what they are,
    and those that would be negative are as small as makes no difference."""
    constants, free = start.copy(), np.abs(rows).sum(axis=0) > 0
    while True:
        scale = start[free]
        rest = 1 - rows[:, ~free] @ constants[~free]
        solved = np.linalg.lstsq(rows[:, free] * scale * root[:, None],
                                 rest * root, rcond=None)[0]
        if np.all(solved > 0):
            constants[free] = scale * solved
            return constants
        # What takes no time: 1 ns, or 1e15 a second.
        for i in np.flatnonzero(free)[solved <= 0]:
            constants[i], free[i] = (1e-9 if i < 2 else 1e-15), False


def fit(samples, rounds=90):
    """Latencies in seconds, then the reciprocals of the rates. Figures that are
    far off weigh more in the next round: what counts is the worst."""
    boosts = np.ones(len(samples))
    constants = np.array([3e-6, 3e-6, 1 / 4.3e12, 1 / 3.9e12, 1 / 2e12, 1 / 2e13])
    for _ in range(rounds):
        rows, weights = [], []
        for i, sample in enumerate(samples):
            is_large = sample.figure["batch"] >= LARGE
            weight = 1 if is_large else WEIGHT_OF_SMALL
            off = sample.predict(constants) / (1e-6 * sample.mean)
            if is_large and abs(off - 1) > 0.13:
                boosts[i] *= 1.2
            weight *= boosts[i]
            steps = [memory if memory @ constants >= flops @ constants else flops
                     for memory, flops in sample.steps]
            # Every fill, and what counts: their mean.
            for step, time in zip(steps, sample.times):
                rows.append(step / (1e-6 * time))
                weights.append(weight / len(steps))
            rows.append(np.mean(steps, axis=0) / (1e-6 * sample.mean))
            weights.append(2 * weight)
        before = constants
        constants = solve(np.array(rows), np.sqrt(weights), constants)
        if np.allclose(before, constants, rtol=1e-6):
            return constants
    # Two neighbours may take turns at a maximum: either is as good.
    return constants


def describe(constants):
    return {name: value if i < 2 else 1 / value
            for i, (name, value) in enumerate(zip(NAMES, constants))}


def ranked_rate(samples):
    """Flops a second of steps that do nothing else for most of their time: of
    least squares on relative errors."""
    rates = np.array([s.steps[0][1][-1] / (1e-6 * s.mean) for s in samples])
    rate = np.sum(rates ** 2) / np.sum(rates)
    print("steps of drafts of several vectors")
    print(f"{'rankedFlopRate':<20}{rate:.4g}")
    report([(rate / own - 1, s.figure) for s, own in zip(samples, rates)])
    return rate


def write_machine(machines, dates):
    body = ""
    for kind, machine in machines.items():
        body += f"  // Of {dates[kind]}.\n"
        start = f"  StepRates {kind}{{"
        values = (",\n" + " " * len(start)).join(
            f"/*{name}=*/{machine[name]:.4g}" for name in [
                "readBandwidth", "updateBandwidth", "scatteredBandwidth",
                "flopRate", "launch", "entryLatency", "rankedFlopRate"]
            if name in machine)
        body += f"{start}{values}}};\n"
    text = MACHINE.read_text(encoding="utf-8")
    marks = re.compile(r"(// bench/fit.py writes these\.\n).*?(  // End\.)",
                       re.DOTALL)
    if not marks.search(text):
        sys.exit(f"error: {MACHINE} has no place for the constants")
    MACHINE.write_text(marks.sub(lambda m: m[1] + body + m[2], text),
                       encoding="utf-8")


def rounded(machine):
    """As they are written: what is predicted is what Ladle predicts."""
    return np.array([float(f"{machine[name]:.4g}") ** (1 if i < 2 else -1)
                     for i, name in enumerate(NAMES)])


def documents_of(folder):
    documents = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("device") == "NVIDIA H200":
            documents[path] = document
    return documents


def report(misses):
    for label, some in (
        (f"batch {LARGE} up", [m for m in misses if m[1]["batch"] >= LARGE]),
        ("below", [m for m in misses if m[1]["batch"] < LARGE]),
    ):
        errors = np.array([error for error, _ in some])
        if len(errors):
            print(f"{label}: {np.sum(abs(errors) <= 0.15)} of {len(errors)} within "
                  f"15 %, {100 * np.sqrt(np.mean(errors ** 2)):.1f} % in the mean")
    for error, f in sorted(misses, key=lambda m: -abs(m[0]))[:8]:
        drafts = f", T = {f['drafts']}, h = {f['h']}" if "drafts" in f else ""
        print(f"  {100 * error:+6.1f} %  {pathlib.Path(f['file']).stem}, "
              f"{f['route']}, {f['state']}, m = {f['m']}, batch {f['batch']}"
              f"{drafts}")


def fit_and_report(kind, samples):
    """The constants, and each sample beside what they predict, microseconds."""
    machine = describe(fit(samples))
    constants = rounded(machine)
    print(f"steps of {kind}")
    for name, value in machine.items():
        print(f"{name:<20}{value:.4g}")
    predictions = [(s, 1e6 * s.predict(constants)) for s in samples]
    report([(s.mean / predicted - 1, s.figure) for s, predicted in predictions])
    return machine, predictions


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ladle", default=ROOT / "build/dev/bin/ladle")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench/results")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    documents = documents_of(arguments.results)
    # What was laid out by hand is no default.
    figures = [f for d in documents.values() for f in d["results"]
               if not f["schedule"] and "layout" not in f
               and f["route"] != "kv_only"]
    if not figures:
        sys.exit(f"error: no figures of an H200 in {arguments.results}")
    machine, predictions = fit_and_report(
        "tokens", [sample for f in figures
                   for sample in samples_of_tokens(f, explain(arguments.ladle, f))])
    for sample, predicted in predictions:
        sample.figure["predicted_us"] = round(predicted, 3)
    machines = {"tokens": machine}
    documents_of_drafts = documents_of(arguments.results / "drafts")
    drafts = [(r, explain(arguments.ladle, r))
              for d in documents_of_drafts.values()
              for r in d["results"] if not r["schedule"]]
    if drafts:
        machines["drafts"], _ = fit_and_report(
            "drafts", [sample for r, costs in drafts
                       if not r.get("started_early") and not costs["verify"]["ranked"]
                       for sample in samples_of_drafts(r, costs)])
        # What takes so long gains nothing by starting early.
        ranked = [sample for r, costs in drafts if costs["verify"]["ranked"]
                  for sample in samples_of_drafts(r, costs)]
        if ranked:
            machines["drafts"]["rankedFlopRate"] = ranked_rate(ranked)
    if not arguments.write:
        return
    dates = {kind: datetime.date.fromisoformat(max(
        run["date"] for d in of.values() for run in d["runs"]))
        for kind, of in (("tokens", documents), ("drafts", documents_of_drafts))
        if of}
    write_machine(machines, dates)
    for path, document in documents.items():
        write_results(path, document)


def write_results(path, document):
    """One run and one result a line, as `ladle bench` has them."""
    def lines(items):
        dumped = (json.dumps(item, separators=(",", ":"), ensure_ascii=False)
                  for item in items)
        return "\n  " + ",\n  ".join(dumped) + "\n "

    path.write_text(
        f'{{\n "schema": {json.dumps(document["schema"])},\n "device": '
        f'{json.dumps(document["device"])},\n "runs": [{lines(document["runs"])}],'
        f'\n "results": [{lines(document["results"])}]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
