# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""usage: drop_tensor.py NAME IN.safetensors OUT: a copy without a tensor."""

import json
import struct
import sys

name, source, target = sys.argv[1:]
with open(source, "rb") as file:
    (length,) = struct.unpack("<Q", file.read(8))
    header = json.loads(file.read(length))
    data = file.read()
kept, blobs, offset = {}, [], 0
entries = [e for e in header.items() if e[0] not in (name, "__metadata__")]
for key, entry in sorted(entries, key=lambda item: item[1]["data_offsets"]):
    begin, end = entry["data_offsets"]
    blobs.append(data[begin:end])
    kept[key] = {**entry, "data_offsets": [offset, offset + end - begin]}
    offset += end - begin
text = json.dumps(kept).encode()
text += b" " * (-len(text) % 8)
with open(target, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
