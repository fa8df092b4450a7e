# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a trace for the `tiny` preset of gated_delta_rule.ladle, whole or
damaged: make_trace.py FILE [--tokens N] [--drop NAME] [--widen NAME]
[--integers NAME] [--nan NAME] [--truncate BYTES]
[--positions P,P: answers of these tokens, zeros]."""

import argparse
import json
import random
import struct

SHAPES = {
    "q": ("BF16", [2, 12]),
    "k": ("BF16", [2, 12]),
    "v": ("BF16", [4, 20]),
    "g": ("F32", [4]),
    "beta": ("F32", [4]),
}


def encode(dtype, values):
    data = struct.pack(f"<{len(values)}f", *values)
    if dtype == "BF16":
        return b"".join(data[i + 2 : i + 4] for i in range(0, len(data), 4))
    return data


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--truncate", type=int, default=0)
    parser.add_argument("--positions", default="")
    for change in ("drop", "widen", "integers", "nan"):
        parser.add_argument("--" + change, default="")
    options = parser.parse_args()

    random.seed(1)
    header, body = {}, b""

    def add(name, dtype, shape, data):
        nonlocal body
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        body += data

    for name, (dtype, shape) in SHAPES.items():
        if name == options.drop:
            continue
        if name == options.widen:
            shape = shape[:-1] + [shape[-1] + 1]
        count = options.tokens
        for size in shape:
            count *= size
        # Small enough for a delta rule to contract, and for g to decay.
        values = [random.uniform(-0.25, 0) for _ in range(count)]
        if name == options.nan:
            values[-1] = float("nan")
        data = encode(dtype, values)
        if name == options.integers:
            dtype = "I32" if dtype == "F32" else "I16"
        add(name, dtype, [options.tokens] + shape, data)
    if options.positions:
        places = [int(place) for place in options.positions.split(",")]
        count = len(places)
        add("positions", "I32", [count], struct.pack(f"<{count}i", *places))
        add("o", "F32", [count, 4, 20], bytes(count * 4 * 20 * 4))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(options.file, "wb") as file:
        contents = struct.pack("<Q", len(text)) + text + body
        file.write(contents[: len(contents) - options.truncate])


if __name__ == "__main__":
    main()
