#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains the gate of EdgeInfinite on a model that stays as it is.

train_gate.py --model DIR --text DIR --out DIR [--sinks 16 ...]

DIR of the model holds config.json and one .safetensors (see TinyLM for what it
is); DIR of the text holds train.bin and valid.bin (make_corpus.py). Leaves
gate.safetensors and report.json.

Each layer gets w1[R, D], b1[R], w2[D, R], b2[D], g[D], which all heads share.
With A what softmax attention answers from the tokens that are kept, and M what
the memory answers,

    out = sigmoid(g) (w2 relu(w1 M + b1) + b2) + (1 - sigmoid(g)) A

For a model of your own: give its attention layers what `EdgeInfinite` is given
here, queries and keys after their rotation, freeze it, and keep the rest.
"""

import argparse
import dataclasses
import datetime
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

# ---------------------------------------------------------------------------
# The model, with its attention left open
# ---------------------------------------------------------------------------


def rms(x, weight, eps):
    return F.rms_norm(x.to(weight.dtype), weight.shape, weight, eps)


def rotate(x, cos, sin):
    """Turns the pairs (i, i + D / 2) of x [B, H, T, D]."""
    first, second = x.to(cos.dtype).chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin],
                     -1).to(x.dtype)


class TinyLM(nn.Module):
    """tinylm-softmax: pre-norm layers of rotary attention and gated MLPs."""

    def __init__(self, folder, dtype=torch.float32):
        super().__init__()
        from safetensors.torch import load_file

        folder = pathlib.Path(folder)
        self.config = json.loads((folder / "config.json").read_text())
        weights = load_file(next(folder.glob("*.safetensors")))
        self.size = sum(w.numel() for w in weights.values())
        for name, weight in weights.items():
            self.register_buffer(name.replace(".", "_"), weight.to(dtype))
        self.layers = len(self.config["layers"])

    def weight(self, name):
        return getattr(self, name.replace(".", "_"))

    def angles(self, first, count, like):
        half = self.config["head_dim"] // 2
        turns = self.config["rope_base"] ** (
            -torch.arange(half, device=like.device, dtype=torch.float64) / half)
        at = torch.arange(first, first + count, device=like.device)
        angle = at.double()[:, None] * turns
        return angle.cos().to(like.dtype), angle.sin().to(like.dtype)

    def qkv(self, layer, x, cos, sin):
        """q [B, Hq, T, D], k and v [B, Hkv, T, D]; q and k after RoPE."""
        y = rms(x, self.weight(f"layers.{layer}.norm1.weight"),
                self.config["eps"])
        q, k, v = (
            F.linear(y, self.weight(f"layers.{layer}.mix.w{name}.weight"))
            .unflatten(-1, (-1, self.config["head_dim"])).transpose(1, 2)
            for name in "qkv")
        return rotate(q, cos, sin), rotate(k, cos, sin), v

    def after(self, layer, x, o):
        """The rest of a layer, given what its heads answered."""
        w = lambda name: self.weight(f"layers.{layer}.{name}.weight")
        x = x + F.linear(o.transpose(1, 2).flatten(2).to(x.dtype), w("mix.wo"))
        y = rms(x, w("norm2"), self.config["eps"])
        return x + F.linear(F.silu(F.linear(y, w("mlp.w1")))
                            * F.linear(y, w("mlp.w3")), w("mlp.w2"))

    def head(self, x):
        x = rms(x, self.weight("norm.weight"), self.config["eps"])
        return F.linear(x, self.weight("embed.weight"))

    def forward(self, tokens, attention, first=0):
        """What follows tokens[:, first:]; attention(layer, q, k, v) -> o."""
        x = F.embedding(tokens, self.weight("embed.weight"))
        cos, sin = self.angles(0, tokens.shape[1], x)
        for layer in range(self.layers):
            x = self.after(layer, x, attention(layer,
                                               *self.qkv(layer, x, cos, sin)))
        return self.head(x[:, first:])


# ---------------------------------------------------------------------------
# EdgeInfinite
# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sizes:
    sinks: int = 16
    window: int = 256
    segment: int = 1024

    def folded(self, length, prompt):
        """How many segments are in the memory when each token is answered.

        The first `prompt` tokens by segments, the others one after another:
        a step folds when, with its own token, `segment` tokens stand between
        the sinks and the window.
        """
        at = torch.arange(length)
        settled = max(0, (prompt - self.sinks - self.window) // self.segment)
        by_segments = ((at - self.sinks) // self.segment).clamp(0, settled)
        by_steps = ((at + 1 - self.sinks - self.window)
                    // self.segment).clamp(min=0)
        return torch.where(at < prompt, by_segments, by_steps)

    def start(self, folded):
        """The first token after the sinks that has not been folded."""
        return self.sinks + folded * self.segment


def runs(folded, longest=2048):
    """(begin, end, folded) of neighbours with the same memory."""
    values, counts = torch.unique_consecutive(folded, return_counts=True)
    begin = 0
    for value, count in zip(values.tolist(), counts.tolist()):
        for at in range(begin, begin + count, longest):
            yield at, min(at + longest, begin + count), value
        begin += count


def feature(x):
    return F.elu(x) + 1


def kept(x, dim, sinks, begin, end):
    """The sinks and [begin, end) of a tensor of the sequence."""
    late = x.narrow(dim, begin, end - begin)
    return torch.cat([x.narrow(dim, 0, sinks), late], dim) if sinks else late


def softmax_over(q, k, v, at, positions, oldest=None):
    """Attention of tokens `at` to those of `positions` up to themselves.

    q [B, Hq, n, D], k and v [B, Hkv, m, D]. A token that sees nothing is
    answered with 0, the empty sum. oldest = (sinks, first): besides the first
    `sinks` tokens each sees none before its own `first`.
    """
    if len(positions) == 0:
        return torch.zeros_like(q)
    visible = positions[None] <= at[:, None]
    if oldest is not None:
        sinks, first = oldest
        visible &= (positions[None] >= first[:, None]) | (positions[None] < sinks)
    empty = ~visible.any(-1)
    visible[:, 0] |= empty
    group = q.shape[1] // k.shape[1]
    o = F.scaled_dot_product_attention(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
        attn_mask=visible)
    return o.masked_fill(empty[:, None], 0)


class Memories:
    """M and z after each of `count` segments, of all heads of the cache."""

    def __init__(self, k, v, sizes, count):
        cut = slice(sizes.sinks, sizes.sinks + count * sizes.segment)
        wide = torch.promote_types(k.dtype, torch.float32)
        keys, values = (
            t[:, :, cut].to(wide).unflatten(2, (count, sizes.segment))
            for t in (k, v))
        features = feature(keys)
        self.matrix = (features.transpose(-1, -2) @ values).cumsum(2)
        self.normaliser = features.sum(-2).cumsum(2)

    def recall(self, q, folded):
        """What the first `folded` segments answer to q [B, Hq, n, D]."""
        matrix = self.matrix[:, :, folded - 1]
        normaliser = self.normaliser[:, :, folded - 1]
        f = feature(q.to(matrix.dtype))
        f = f.unflatten(1, (matrix.shape[1], -1)).flatten(2, 3)
        read = (f @ matrix) / (f @ normaliser[..., None])
        return read.unflatten(2, (-1, q.shape[2])).flatten(1, 2)


class Gate(nn.Module):
    """What a layer makes of its memory; `heads` of them, or one for all."""

    def __init__(self, size, width, heads=1, start=-3.0):
        super().__init__()
        many = (heads,) if heads > 1 else ()
        self.w1 = nn.Parameter(torch.randn(*many, width, size) * size**-0.5)
        self.b1 = nn.Parameter(torch.zeros(*many, width))
        self.w2 = nn.Parameter(torch.randn(*many, size, width)
                               * 0.1 * width**-0.5)
        self.b2 = nn.Parameter(torch.zeros(*many, size))
        self.g = nn.Parameter(torch.full((*many, size), start))  # nearly shut

    def forward(self, exact, recalled):
        """Of [B, Hq, n, D], or of vectors if heads share the gate."""
        if self.g.dim() == 1:
            hidden = F.relu(F.linear(recalled, self.w1, self.b1))
            passed = F.linear(hidden, self.w2, self.b2)
            share = torch.sigmoid(self.g)
        else:
            each = recalled.shape[1] // self.g.shape[0]
            w1, b1, w2, b2, g = (
                p.repeat_interleave(each, 0)
                for p in (self.w1, self.b1, self.w2, self.b2, self.g))
            hidden = F.relu(recalled @ w1.mT + b1[:, None])
            passed = hidden @ w2.mT + b2[:, None]
            share = torch.sigmoid(g)[:, None]
        return share * passed + (1 - share) * exact


class EdgeInfinite:
    """Attention of a layer to sinks, residual and window, and its memory.

    All tokens at once: what each sees depends on its position alone. Without
    gates the memory is not read: what has been folded is lost. A blind one
    reads zeros, and tells what a gate gives that has no memory behind it.
    """

    def __init__(self, sizes, length, prompt, gates=None, blind=False):
        self.sizes, self.gates, self.blind = sizes, gates, blind
        self.runs = list(runs(sizes.folded(length, prompt)))

    def __call__(self, layer, q, k, v):
        sizes, count = self.sizes, self.runs[-1][2]
        position = torch.arange(q.shape[2], device=q.device)
        exact, recalled, plain = [], [], 0
        reads = self.gates is not None and count
        memories = Memories(k, v, sizes, count) if reads else None
        for begin, end, folded in self.runs:
            span = ((sizes.sinks, sizes.start(folded), end) if folded
                    else (0, 0, end))
            exact.append(softmax_over(
                q[:, :, begin:end], kept(k, 2, *span), kept(v, 2, *span),
                position[begin:end], kept(position, 0, *span)))
            if folded and reads:
                recalled.append(memories.recall(q[:, :, begin:end], folded))
            else:
                plain = end
        exact = torch.cat(exact, 2)
        if not recalled:
            return exact
        recalled = torch.cat(recalled, 2)
        if self.blind:
            recalled = torch.zeros_like(recalled)
        gated = self.gates[layer](exact[:, :, plain:], recalled)
        return torch.cat([exact[:, :, :plain], gated.to(exact.dtype)], 2)


# ---------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------


def windows(text, batch, length, generator):
    """Bytes of any places, and what follows each."""
    first = torch.randint(0, len(text) - length - 1, (batch, 1),
                          generator=generator)
    at = first + torch.arange(length + 1)
    tokens = text[at.to(text.device)].long()
    return tokens[:, :-1], tokens[:, 1:]


def bits(logits, target):
    return F.cross_entropy(logits.flatten(0, 1).float(),
                           target.flatten()) / math.log(2)


@torch.no_grad()
def validate(model, text, make, length, batch, count):
    """Bits per byte of the second half of `count` windows side by side."""
    total = 0.0
    for at in range(0, count, batch):
        window = text[at * length : (at + batch) * length].view(-1, length).long()
        with torch.autocast(text.device.type, dtype=torch.bfloat16):
            logits = model(window[:, :-1], make(length - 1), length // 2 - 1)
            total += bits(logits, window[:, length // 2 :]).item() * len(window)
    return total / count


def train(model, gates, train_text, valid_text, options):
    sizes = Sizes(options.sinks, options.window, options.segment)
    optimizer = torch.optim.AdamW(gates.parameters(), lr=options.rate,
                                  betas=(0.9, 0.98), weight_decay=0.0)
    generator = torch.Generator().manual_seed(options.seed)
    curve, began = [], time.time()

    def valid(used, length):
        batch = max(1, options.tokens // length)
        return validate(
            model, valid_text,
            lambda n: EdgeInfinite(sizes, n, length // 2 - 1, used,
                                   options.blind),
            length, batch, min(len(valid_text) // length, 4 * batch))

    shut = {c: round(valid(None, c), 4) for c in options.contexts}
    print("valid without the memory", shut, flush=True)
    for step in range(options.steps + 1):
        progress = max(step / options.steps,
                       (time.time() - began) / options.seconds)
        if progress >= 1:
            break
        rate = options.rate * min(1, (step + 1) / 20) * (
            0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        length = options.contexts[step % len(options.contexts)]
        tokens, target = windows(train_text, max(1, options.tokens // length),
                                 length, generator)
        # A served sequence has a prompt and steps, and so has this one; every
        # other one is a prompt alone.
        prompt = length if step // len(options.contexts) % 2 else length // 2
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            attention = EdgeInfinite(sizes, length, prompt, gates, options.blind)
            loss = bits(model(tokens, attention), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(gates.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 9:
            curve.append([step + 1, length, round(loss.item(), 4),
                          round(time.time() - began, 1)])
        if step % 50 == 49:
            print(*curve[-1], flush=True)
    took = time.time() - began
    opened = {c: round(valid(gates, c), 4) for c in options.contexts}
    print(f"valid with it {opened}, {took:.0f} s", flush=True)
    return dict(steps=step, seconds=round(took, 1), valid_shut=shut,
                valid_trained=opened, curve_columns=["step", "context",
                "train bits per byte", "seconds"], curve=curve)


def card():
    if not torch.cuda.is_available():
        return "cpu", None
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False).stdout.split("\n")[0]
    return torch.cuda.get_device_name(), driver


def write_json(path, document):
    """Indented, with lists of numbers on a line each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub(r"\[[^][{}]*\]", lambda m: " ".join(m[0].split()),
                           json.dumps(document, indent=1)) + "\n")


def text_of(folder, name, device):
    raw = (pathlib.Path(folder) / name).read_bytes()
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).to(device)


def save(folder, gates, sizes):
    from safetensors.torch import save_file

    tensors = {f"layers.{i}.{name}": p.detach().float().cpu().contiguous()
               for i, gate in enumerate(gates)
               for name, p in gate.named_parameters()}
    save_file(tensors, str(folder / "gate.safetensors"),
              metadata={"sizes": json.dumps(dataclasses.asdict(sizes))})


def load_gates(path, model, dtype=torch.float32):
    """Gates of a file that `save` has left, and the sizes they are for."""
    from safetensors import safe_open

    with safe_open(str(path), "pt") as file:
        sizes = Sizes(**json.loads(file.metadata()["sizes"]))
        *many, width, size = file.get_tensor("layers.0.w1").shape
        gates = nn.ModuleList(Gate(size, width, *many)
                              for _ in range(model.layers))
        gates.load_state_dict({name.removeprefix("layers."): file.get_tensor(name)
                               for name in file.keys()})
    return gates.to(dtype), sizes


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--sinks", type=int, default=16)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--segment", type=int, default=1024)
    parser.add_argument("--width", type=int, default=24, help="R of the gate")
    parser.add_argument("--heads", type=int, default=1, help="gates of a layer")
    parser.add_argument("--blind", action="store_true",
                        help="a control: the memory reads as 0")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=600, help="at the most")
    parser.add_argument("--start", type=float, default=-3.0, help="g at first")
    parser.add_argument("--tokens", type=int, default=65536, help="a step")
    parser.add_argument("--contexts", type=int, nargs="+", default=[4096, 16384])
    parser.add_argument("--rate", type=float, default=6e-2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    model = TinyLM(options.model).to(device)
    gates = nn.ModuleList(Gate(model.config["head_dim"], options.width,
                               options.heads, options.start)
                          for _ in range(model.layers)).to(device)
    added = sum(p.numel() for p in gates.parameters())
    print(f"{added} weights of gates, {100 * added / model.size:.3f} % of "
          f"{model.size}", flush=True)
    figures = train(model, gates, text_of(options.text, "train.bin", device),
                    text_of(options.text, "valid.bin", device), options)
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = Sizes(options.sinks, options.window, options.segment)
    save(options.out, gates, sizes)
    name, driver = card()
    shares = [round(torch.sigmoid(gate.g).mean().item(), 4) for gate in gates]
    report = dict(
        schema="ladle-edge-infinite-gate-1",
        date=datetime.date.today().isoformat(), device=name, driver=driver,
        torch=torch.__version__, command=" ".join(
            [os.path.basename(sys.argv[0])] + sys.argv[1:]),
        model=model.config["name"], sizes=dataclasses.asdict(sizes),
        width=options.width, heads=options.heads, gate_weights=added, model_weights=model.size,
        share=added / model.size, mean_share_of_memory=shares,
        tokens_a_step=options.tokens, **figures)
    if device == "cuda":
        report["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    write_json(options.out / "report.json", report)


if __name__ == "__main__":
    main()
