# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what `ladle explain --json` says a request of Gated DeltaNet needs
with what its arrays take, counted from the shapes of Qwen3-Next."""

import json
import sys

HK, HV, D = 16, 32, 128


def main() -> None:
    state_size, entry_size, least = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    memory = json.load(sys.stdin)["memory"]
    drafts, entries, layers = (memory[name] for name in ("drafts", "capacity", "layers"))
    state = HV * D * D * state_size
    # k as it came and 1/|k|, u, and the logarithm of the decay.
    entry = HK * D * 2 + HK * 4 + HV * D * entry_size + HV * 4
    # Base, length, epoch, a place of a flush, the order of the ring, which
    # version of the carries it is, and what waits.
    cursors = 4 * (2 + 1 + 1 + entries + 1 + 1)
    inner = next(each for each in memory["routes"] if each["route"] == "inner")
    assert inner["state"] == state, inner
    assert inner["entries"] == entries * entry, (inner, entry)
    assert inner["carries"] == 0, inner
    assert inner["cursors"] == cursors, (inner, cursors)
    request = layers * (state + entries * entry) + cursors
    assert inner["bytes"] == request, (inner, request)
    states = layers * (drafts + 1) * state
    assert memory["state_a_draft"] == states, memory
    assert abs(inner["gain"] - states / request) < 1e-9, inner
    assert inner["gain"] >= least, inner
    budget = 80 * 2**30
    assert inner["requests"] == budget // request, inner
    assert memory["requests_of_a_state_a_draft"] == budget // states, memory
    print("gain %.2f" % inner["gain"])


if __name__ == "__main__":
    main()
