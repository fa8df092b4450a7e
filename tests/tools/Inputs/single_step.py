# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""usage: single_step.py TRACE PROFILE.json: are its one-step figures right?

From the definition, in float64: the nearest of the last K queries before their
rotation, what its own query makes of the tokens up to p - r, and what the new
query makes of the others; with the limits and gates that the profile was given.
"""

import json
import struct
import sys

import numpy as np


def load(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    found = {}
    for name in ("q_pre", "q_post", "k_post", "v"):
        begin, end = header[name]["data_offsets"]
        bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
        shape = header[name]["shape"]
        found[name] = bits.view(np.float32).astype(float).reshape(shape)
    return found


def summary(query, keys, values):
    """(log-sum-exp, average) of a piece of the history."""
    if not len(keys):
        return -np.inf, np.zeros(values.shape[1])
    scores = keys @ query / np.sqrt(len(query))
    most = scores.max()
    weights = np.exp(scores - most)
    total = weights.sum()
    return most + np.log(total), weights @ values / total


def merge(a, b):
    most = max(a[0], b[0])
    left, right = np.exp(a[0] - most), np.exp(b[0] - most)
    return (left * a[1] + right * b[1]) / (left + right)


def measure(trace, tokens, prompt, window, band, tau, given):
    pre, post, keys, values = (
        trace[n][:tokens] for n in ("q_pre", "q_post", "k_post", "v"))
    heads, size = pre.shape[1:]
    group = heads // keys.shape[1]
    errors, hits = 0, 0
    sinks, wide = given["sinks"], given["wide_band"]
    starts = np.full((tokens, heads), sinks)
    limits = [2 * (1 - share) ** 2 for share in (tau, given.get("drift", -1))]
    for head in range(heads):
        k, v, q = keys[:, head // group], values[:, head // group], post[:, head]
        moment = (pre[:, head] ** 2).sum(1).mean()
        # The gate of the rotated queries has the moment of a running decoder,
        # whose rings were filled with the end of the prompt.
        filled = max(prompt - given["room"], 0)
        norms = (pre[filled:, head] ** 2).sum(1)
        moments = np.full(tokens, np.nan)
        moments[filled:] = norms.cumsum() / np.arange(1, len(norms) + 1)
        for m in range(prompt, tokens):
            count = min(m, window, given["max_gap"] or m)
            if given["skip"]:
                count = min(count, m + 1 - band - sinks - given["skip"])
            if count < 1:
                continue
            first = m - count
            far = ((pre[first:m, head] - pre[m, head]) ** 2).sum(1)
            p = m - 1 - int(np.argmin(far[::-1]))  # ties to the newest
            drift = ((q[p] - q[m]) ** 2).sum()
            if not (far[p - first] < limits[0] * moment
                    and drift < limits[1] * moments[m - 1]):
                continue
            hits += 1
            r = wide if wide and m - p > given["wide_gap"] else band
            cut = starts[m, head] = max(p + 1 - r, sinks)
            reused = summary(q[p], k[sinks:cut], v[sinks:cut])
            apart = np.r_[:sinks, cut:m + 1]
            fresh = summary(q[m], k[apart], v[apart])
            exact = summary(q[m], k[:m + 1], v[:m + 1])[1]
            errors += (np.linalg.norm(merge(reused, fresh) - exact)
                       / np.linalg.norm(exact))
    count = heads * (tokens - prompt)
    # Of a token in the cache; of a head, its query and its summary.
    cached = (size + values.shape[2]) * 2
    query, stored = 2 * size, 4 * values.shape[2] + 4 + 4
    if wide:  # another part, and where the first one ends
        stored += 4 * values.shape[2] + 4 + 8
    read = moved = exact = 0
    for m in range(prompt, tokens):
        first = starts[m].reshape(-1, group).min(1)
        part = cached * (m + 1 - first + sinks).sum()
        read += part
        moved += part + heads * (query * (min(m, window) + 1) + 2 * stored)
        exact += cached * (m + 1) * keys.shape[1]
    return hits / count, errors / count, read / exact, moved / exact


with open(sys.argv[2], encoding="utf-8") as file:
    given = json.load(file)
profile = given["traces"][0]
given["room"] = 1 + max(f["window"] for f in profile["figures"])
tokens = profile["tokens"]
trace = load(sys.argv[1])
for figure in profile["figures"]:
    hits, error, read, moved = measure(
        trace, tokens, tokens - profile["decoded"], figure["window"],
        figure["band"], figure["tau"], given)
    wanted = {"single_hits": hits, "single": error}
    # At tau = 0 and without a gate a closed loop has the same matches.
    if figure["tau"] == 0 and "drift" not in given:
        wanted |= {"hits": hits, "cache": read, "bytes": moved}
    for name, value in wanted.items():
        if abs(figure[name] - value) > 1e-5 + 1e-4 * value:
            sys.exit(f"{name} at tau {figure['tau']}, window "
                     f"{figure['window']}, band {figure['band']} is "
                     f"{value:.6f}, not {figure[name]}")
print(f"{len(profile['figures'])} figures are right")
