# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""usage: random_model.py FOLDER: two layers of softmax attention, and a text."""

import json
import math
import pathlib
import random
import struct
import sys

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
random.seed(1)
shapes = {"embed.weight": [256, 32], "norm.weight": [32]}
for layer in range(2):
    at = f"layers.{layer}."
    shapes |= {at + "norm1.weight": [32], at + "norm2.weight": [32],
               at + "mix.wq.weight": [32, 32], at + "mix.wk.weight": [16, 32],
               at + "mix.wv.weight": [16, 32], at + "mix.wo.weight": [32, 32],
               at + "mlp.w1.weight": [24, 32], at + "mlp.w3.weight": [24, 32],
               at + "mlp.w2.weight": [32, 24]}
header, data = {}, b""
for name, shape in shapes.items():
    scale = 1 / math.sqrt(shape[-1])
    values = [random.gauss(0, scale) if len(shape) > 1 else 1.0
              for _ in range(math.prod(shape))]
    blob = struct.pack(f"<{len(values)}f", *values)
    header[name] = {"dtype": "F32", "shape": shape,
                    "data_offsets": [len(data), len(data) + len(blob)]}
    data += blob
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
(folder / "random.safetensors").write_bytes(
    struct.pack("<Q", len(text)) + text + data)
(folder / "config.json").write_text(json.dumps(
    {"name": "random", "vocab": 256, "d_model": 32, "layers": ["attn"] * 2,
     "n_q": 2, "n_kv": 1, "head_dim": 16, "rope_base": 1000.0,
     "mlp_hidden": 24, "eps": 1e-6}))
(folder / "text").write_bytes(bytes(random.choices(b"abcde", k=400)))
