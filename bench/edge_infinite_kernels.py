#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A trained gate by Ladle's kernels: logits and bits per byte beside PyTorch's.

edge_infinite_kernels.py --ladle build/portable/bin/ladle --model DIR
                         --streams heldout-8x65536.bin --out FILE.json

The model is that of train_gate.py; its attention is the object file that
`ladle emit` writes of examples/edge_infinite for the sizes of the gate, called
a layer at a time: the first half of a stream but one byte is a prompt, every
byte behind it a step. Once with tokens of f32, once with those of the file.
"""

import argparse
import ctypes
import datetime
import math
import pathlib
import subprocess
import tempfile

import torch
import torch.nn.functional as F

from edge_infinite_bits import STREAM, summary
from train_gate import EdgeInfinite, TinyLM, load_gates, write_json

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/edge_infinite"

# The functions of the header, for who has no C compiler in his language.
SHIM = r"""
#include "edge_infinite.h"
#include <stdlib.h>
edge_infinite *make(void) {
  edge_infinite *self = malloc(sizeof *self + EDGE_INFINITE_BYTES);
  edge_infinite_init(self, memset(self + 1, 0, EDGE_INFINITE_BYTES));
  return self;
}
void answer(edge_infinite *self, void **gate, void *q, void *k, void *v,
            void *o, int64_t tokens, int isStep) {
  edge_infinite_arguments given = {
      .w1 = gate[0], .b1 = gate[1], .w2 = gate[2], .b2 = gate[3], .g = gate[4],
      .q = q, .k = k, .v = v, .o = o};
  if (isStep)
    edge_infinite_step(self, &given);
  else
    edge_infinite_prefill(self, &given, tokens);
}
"""


class Kernels:
    """The library of an attention, and the calls of one sequence."""

    def __init__(self, ladle, folder, config, sizes, width, dtype):
        folder = pathlib.Path(folder)
        text = (EXAMPLE / "edge_infinite.ladle").read_text()
        # Answers are f32, so that their rounding is not what is compared.
        text = text.replace("out o[Hq, D] : bf16", "out o[Hq, D] : f32")
        if dtype == torch.float32:
            text = text.replace(": bf16", ": f32")
        (folder / "edge_infinite.ladle").write_text(text)
        (folder / "shim.c").write_text(SHIM)
        numbers = dict(Hq=config["n_q"], Hkv=config["n_kv"],
                       D=config["head_dim"], R=width, sinks=sizes.sinks,
                       window=sizes.window, segment=sizes.segment)
        subprocess.run(
            [ladle, "emit", folder / "edge_infinite.ladle", "--stage", "object",
             "-o", folder] + [part for name, value in numbers.items()
                              for part in ("--set", f"{name}={value}")],
            check=True)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{folder}",
                        folder / "shim.c", folder / "edge_infinite.o", "-lm",
                        "-o", folder / "shim.so"], check=True)
        self.library = ctypes.CDLL(str(folder / "shim.so"))
        self.library.make.restype = ctypes.c_void_p
        self.dtype = dtype

    def start(self, gates):
        address = lambda x: ctypes.c_void_p(x.data_ptr())
        self.weights = [[getattr(gate, n).detach().float().contiguous()
                         for n in ("w1", "b1", "w2", "b2", "g")]
                        for gate in gates]
        self.gates = [(ctypes.c_void_p * 5)(*(w.data_ptr() for w in each))
                      for each in self.weights]
        self.sequences = [ctypes.c_void_p(self.library.make()) for _ in gates]
        self.address = address

    def __call__(self, layer, q, k, v, is_step):
        q, k, v = (x[0].transpose(0, 1).to(self.dtype).contiguous()
                   for x in (q, k, v))
        o = torch.empty(q.shape, dtype=torch.float32)
        self.library.answer(
            self.sequences[layer], self.gates[layer],
            *(self.address(x) for x in (q, k, v, o)),
            ctypes.c_int64(len(q)), int(is_step))
        return o.transpose(0, 1)[None]

    def end(self):
        free = ctypes.CDLL(None).free
        for sequence in self.sequences:
            free(sequence)


@torch.no_grad()
def logits_of(model, kernels, gates, tokens, prompt):
    kernels.start(gates)
    found, done = [], 0
    for count in [prompt] + [1] * (len(tokens) - prompt):
        x = F.embedding(tokens[None, done : done + count],
                        model.weight("embed.weight"))
        cos, sin = model.angles(done, count, x)
        for layer in range(model.layers):
            q, k, v = model.qkv(layer, x, cos, sin)
            x = model.after(layer, x, kernels(layer, q, k, v, done > 0))
        if done:
            found.append(model.head(x)[0, 0])
        done += count
    kernels.end()
    return torch.stack(found)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ladle", default="ladle")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--streams", type=pathlib.Path, required=True)
    parser.add_argument("--gates", type=pathlib.Path,
                        default=EXAMPLE / "gate.safetensors")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--count", type=int, default=8, help="of streams")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    model = TinyLM(options.model)
    gates, sizes = load_gates(options.gates, model)
    text = torch.frombuffer(bytearray(options.streams.read_bytes()),
                            dtype=torch.uint8).view(-1, STREAM).long()
    text = text[: options.count, : options.context]
    half = options.context // 2
    attention = EdgeInfinite(sizes, options.context - 1, half - 1, gates)
    wanted = torch.cat([model(s[None, :-1], attention, half - 1) for s in text])

    def bits(logits):
        return (F.cross_entropy(logits.transpose(1, 2), text[:, half:],
                                reduction="none").double().mean(1)
                / math.log(2)).tolist()

    exact = bits(wanted)
    document = dict(
        schema="ladle-edge-infinite-kernels-1",
        date=datetime.date.today().isoformat(), torch=torch.__version__,
        model=model.config["name"], context=options.context,
        sizes=dict(sinks=sizes.sinks, window=sizes.window,
                   segment=sizes.segment),
        runs=[summary("PyTorch, f32", exact, None)])
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        with tempfile.TemporaryDirectory() as folder:
            kernels = Kernels(options.ladle, folder, model.config, sizes,
                              gates[0].b1.shape[-1], dtype)
            found = torch.stack([logits_of(model, kernels, gates, s[:-1],
                                           half - 1) for s in text])
        off = (found - wanted).abs()
        document["runs"].append(summary(
            f"Ladle, {name}", bits(found), exact,
            largest_difference=off.max().item(),
            mean_difference=off.mean().item()))
        print(document["runs"][-1], flush=True)
    write_json(options.out, document)


if __name__ == "__main__":
    main()
