#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cuts the first tokens out of a trace of the gated delta rule or of softmax.

usage: slice_trace.py TRACE.safetensors TOKENS OUTPUT.safetensors

A trace holds q, k [T, Hk, Dk] and v [T, Hv, Dv] in bfloat16, g = ln alpha and
beta [T, Hv] in float32, the exact outputs o at `positions`, and the state
[Hv, Dk, Dv] after the last token. The slice keeps the tensors of the first
TOKENS tokens, the outputs that fall inside, and the state after its own last
token. That state is recomputed in float64; before anything is written, the
recomputation over the whole trace must give the stored o and state to 1e-7.

A trace of softmax attention holds q_pre, q_post [T, Hq, D] and k_post, v
[T, Hkv, D] in bfloat16, and o and lse at `positions`; the recomputation must
give both to 1e-7.
"""

import json
import struct
import sys

import numpy as np

TYPES = {"F32": np.float32, "I32": np.int32, "BF16": np.uint16, "U8": np.uint8}
TOLERANCE = 1e-7


def load(path):
    """Returns (metadata, {name: (dtype name, array)}); bfloat16 as its bits."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
        tensors[name] = (entry["dtype"], array.reshape(entry["shape"]))
    return metadata, tensors


def save(path, metadata, tensors):
    """Writes tensors, the widest types first so that all are aligned."""
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, (dtype, array) in sorted(
        tensors.items(), key=lambda item: (-item[1][1].itemsize, item[0])
    ):
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def widen(tensor):
    """The float64 values of a tensor."""
    dtype, array = tensor
    if dtype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def replay(tensors, count):
    """Runs the gated delta rule; returns all outputs and the last state."""
    q, k, v, g, beta = (widen(tensors[name]) for name in ("q", "k", "v", "g", "beta"))
    group, scale = v.shape[1] // q.shape[1], q.shape[2] ** -0.5
    q, k = (np.repeat(x, group, axis=1) for x in (q * scale, k))
    state = np.zeros((v.shape[1], k.shape[2], v.shape[2]))
    outputs = np.zeros((count, *v.shape[1:]))
    for t in range(count):
        state *= np.exp(g[t])[:, None, None]
        read = np.einsum("hkv,hk->hv", state, k[t])
        state += k[t][:, :, None] * (beta[t][:, None] * (v[t] - read))[:, None, :]
        outputs[t] = np.einsum("hkv,hk->hv", state, q[t])
    return outputs, state


def attend(tensors):
    """Exact attention; returns outputs and log sums at the positions."""
    q, k, v = (widen(tensors[name]) for name in ("q_post", "k_post", "v"))
    group, scale = q.shape[1] // k.shape[1], q.shape[2] ** -0.5
    outputs, sums = [], []
    for t in tensors["positions"][1]:
        keys, values = (np.repeat(x[: t + 1], group, axis=1) for x in (k, v))
        scores = scale * np.einsum("hd,thd->ht", q[t], keys)
        most = scores.max(axis=1)
        weights = np.exp(scores - most[:, None])
        total = weights.sum(axis=1)
        outputs.append(np.einsum("ht,thd->hd", weights, values) / total[:, None])
        sums.append(most + np.log(total))
    return np.array(outputs), np.array(sums)


def error(name, actual, stored):
    """Checks a recomputed tensor against the stored one."""
    value = np.abs(actual - stored).max() / np.abs(stored).max()
    print(f"{name}: relative error {value:.2e}")
    if value > TOLERANCE:
        sys.exit(f"error: {name} differs from the stored one by more than {TOLERANCE}")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    metadata, tensors = load(sys.argv[1])
    is_softmax = "q_post" in tensors
    count, total = int(sys.argv[2]), len(tensors["v"][1])
    if not 0 < count <= total:
        sys.exit(f"error: the trace has {total} tokens, not {count}")

    positions = tensors["positions"][1]
    if is_softmax:
        outputs, sums = attend(tensors)
        error("o", outputs, widen(tensors["o"]))
        error("lse", sums, widen(tensors["lse"]))
    else:
        outputs, state = replay(tensors, total)
        error("o", outputs[positions], widen(tensors["o"]))
        error("state", state, widen(tensors["state"]))

    inside = positions < count
    cut = {
        name: (dtype, array[:count])
        for name, (dtype, array) in tensors.items()
        if name not in ("lse", "o", "positions", "state")
    }
    cut["positions"] = ("I32", positions[inside])
    cut["o"] = ("F32", tensors["o"][1][inside])
    if is_softmax:
        cut["lse"] = ("F32", tensors["lse"][1][inside])
    else:
        cut["state"] = ("F32", replay(tensors, count)[1].astype(np.float32))
    save(sys.argv[3], metadata, cut)


if __name__ == "__main__":
    main()
