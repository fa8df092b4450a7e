#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bits per byte of EdgeInfinite and of caches of the same bytes.

edge_infinite_bits.py --model DIR --streams heldout-8x65536.bin
                      --gates gate.safetensors --out FILE.json
edge_infinite_bits.py --model DIR --streams ... --gates ... --verify

The first half of a stream but one byte is a prompt, which each scheme answers
by its own form; then token by token. Scored is the second half, teacher-forced.
What a token sees depends on its position alone, so that all tokens of a stream
are computed at once; --verify compares that with a float64 run token by token,
which keeps, folds and drops as the declaration says.
"""

import argparse
import dataclasses
import datetime
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples/edge_infinite"))

from train_gate import (EdgeInfinite, Memories, Sizes, TinyLM, card, feature,
                        kept, load_gates, runs, softmax_over, write_json)

STREAM = 65536

# ---------------------------------------------------------------------------
# Other caches
# ---------------------------------------------------------------------------


def full(layer, q, k, v):
    group = q.shape[1] // k.shape[1]
    return F.scaled_dot_product_attention(
        q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
        is_causal=True)


class Windowed:
    """The first `sinks` tokens and the `recent` newest: sliding windows, and
    StreamingLLM with keys as they were rotated when they came."""

    def __init__(self, sinks, recent, exact_prompt=0, step=1024):
        self.sinks, self.recent = sinks, recent
        self.exact, self.step = exact_prompt, step

    def __call__(self, layer, q, k, v):
        n = self.exact
        position = torch.arange(q.shape[2], device=q.device)
        parts = [full(layer, q[:, :, :n], k[:, :, :n], v[:, :, :n])] if n else []
        for begin in range(n, q.shape[2], self.step):
            end = min(begin + self.step, q.shape[2])
            first = max(0, begin - self.recent + 1)
            span = ((self.sinks, first, end) if first > self.sinks
                    else (0, 0, end))
            at = position[begin:end]
            parts.append(softmax_over(
                q[:, :, begin:end], kept(k, 2, *span), kept(v, 2, *span), at,
                kept(position, 0, *span),
                (self.sinks, at - self.recent + 1)))
        return torch.cat(parts, 2)


# ---------------------------------------------------------------------------
# The printed algorithm, which answers a folded segment and the window again
# ---------------------------------------------------------------------------


def rerun_logits(model, tokens, sizes, gates, first):
    """Logits of tokens[:, first:], of steps after a prompt.

    When a step folds, segment and window are answered again as a prompt, the
    new token with them. So what is kept and folded is always what a prompt
    would leave (`settled`), except for the newest tokens of an epoch, which
    are past their predecessor's segment, but whose segment has not begun: they
    are answered again when it does (`passing`). With a window longer than a
    segment they would be so several times, which this does not do.
    """
    assert sizes.window <= sizes.segment
    length = tokens.shape[1]
    settled = EdgeInfinite(sizes, length, 0, gates)
    settled.runs = [(b, e, n) for b, e, n in prefill_runs(sizes, length)]
    spans = [(sizes.start(n), min(sizes.start(n) + sizes.window - 1, length), n - 1)
             for n in range(1, settled.runs[-1][2] + 1)]
    spans = [s for s in spans if s[1] > s[0]]
    at = torch.arange(length, device=tokens.device)
    passing = torch.cat([at[:0]] + [at[b:e] for b, e, _ in spans])
    x = F.embedding(tokens, model.weight("embed.weight"))
    y = x[:, passing]
    cos, sin = model.angles(0, length, x)
    for layer in range(model.layers):
        q, k, v = model.qkv(layer, x, cos, sin)
        q2, k2, v2 = model.qkv(layer, y, cos[passing], sin[passing])
        memories = Memories(k, v, sizes, settled.runs[-1][2])
        parts, at = [q2[:, :, :0]], 0
        for begin, end, folded in spans:
            mine = slice(at, at + end - begin)
            at += end - begin
            span = ((sizes.sinks, sizes.start(folded), begin) if folded
                    else (0, 0, begin))
            position = torch.arange(end, device=x.device)
            exact = softmax_over(
                q2[:, :, mine],
                torch.cat([kept(k, 2, *span), k2[:, :, mine]], 2),
                torch.cat([kept(v, 2, *span), v2[:, :, mine]], 2),
                position[begin:], torch.cat([kept(position, 0, *span),
                                             position[begin:]]))
            parts.append(exact if folded == 0 else gates[layer](
                exact, memories.recall(q2[:, :, mine], folded)).to(exact.dtype))
        x = model.after(layer, x, settled(layer, q, k, v))
        y = model.after(layer, y, torch.cat(parts, 2))
    x = x.clone()
    x[:, passing] = y
    return model.head(x[:, first:])


def prefill_runs(sizes, length):
    """Runs of a prompt whose every segment settles."""
    at = torch.arange(length)
    return runs(((at - sizes.sinks) // sizes.segment).clamp(min=0))


# ---------------------------------------------------------------------------
# Token by token
# ---------------------------------------------------------------------------


class Sequence:
    """One sequence as it is served, by the declaration, a token at a time."""

    def __init__(self, model, sizes, gates, rerun=False):
        self.model, self.sizes, self.gates = model, sizes, gates
        self.rerun, self.tokens, self.segments = rerun, [], 0
        heads, size = model.config["n_kv"], model.config["head_dim"]
        self.caches = [[] for _ in range(model.layers)]  # (position, k, v)
        self.matrix = [torch.zeros(heads, size, size).double()
                       for _ in range(model.layers)]
        self.normaliser = [torch.zeros(heads, size).double()
                           for _ in range(model.layers)]

    def fold(self, layer):
        """The oldest segment after the sinks."""
        begin, rest = self.sizes.start(self.segments), []
        for position, k, v in self.caches[layer]:
            if begin <= position < begin + self.sizes.segment:
                self.matrix[layer] += feature(k)[:, :, None] * v[:, None]
                self.normaliser[layer] += feature(k)
            else:
                rest.append((position, k, v))
        self.caches[layer] = rest

    def answer(self, token, folds):
        """Appends, folds if folds(position) says so, and answers."""
        position = len(self.tokens)
        self.tokens.append(token)
        x = F.embedding(torch.tensor([[token]]), self.model.weight("embed.weight"))
        cos, sin = self.model.angles(position, 1, x)
        due = folds(position)
        for layer in range(self.model.layers):
            q, k, v = self.model.qkv(layer, x, cos, sin)
            self.caches[layer].append((position, k[0, :, 0], v[0, :, 0]))
            if due:
                self.fold(layer)
            o = self.attend(layer, q[0, :, 0], due)
            x = self.model.after(layer, x, o[None, :, None])
        self.segments += due
        return self.model.head(x)[0, 0]

    def attend(self, layer, q, due):
        heads = q.shape[0] // self.normaliser[layer].shape[0]
        answers = []
        for h in range(q.shape[0]):
            g = h // heads
            exact = torch.zeros_like(q[h])
            if self.caches[layer]:
                keys = torch.stack([k[g] for _, k, _ in self.caches[layer]])
                values = torch.stack([v[g] for _, _, v in self.caches[layer]])
                weights = (keys @ q[h] * q.shape[1] ** -0.5).softmax(0)
                exact = weights @ values
            if self.segments + due and self.gates is not None:
                f = feature(q[h])
                read = f @ self.matrix[layer][g] / (f @ self.normaliser[layer][g])
                exact = self.gates[layer](exact, read)
            answers.append(exact)
        return torch.stack(answers)

    def prefill(self, tokens):
        sizes = self.sizes
        final = max(0, (len(self.tokens) + len(tokens) - sizes.sinks
                        - sizes.window) // sizes.segment)
        for token in tokens:
            logits = self.answer(token, lambda at: (
                self.segments < final
                and at - sizes.start(self.segments) >= sizes.segment))
        while self.segments < final:
            for layer in range(self.model.layers):
                self.fold(layer)
            self.segments += 1
        return logits

    def step(self, token):
        sizes = self.sizes
        full_at = sizes.start(self.segments) + sizes.segment + sizes.window
        if self.rerun and len(self.tokens) + 1 == full_at:
            begin = sizes.start(self.segments)
            again = self.tokens[begin:] + [token]
            self.tokens = self.tokens[:begin]
            self.caches = [[e for e in cache if e[0] < begin]
                           for cache in self.caches]
            return self.prefill(again)
        return self.answer(token, lambda at: at + 1 == full_at)


@torch.no_grad()
def verify(model_folder, gates_path, stream):
    """The largest differences of logits, by sizes and form."""
    model = TinyLM(model_folder, torch.float64)
    gates, _ = load_gates(gates_path, model, torch.float64)
    worst = {}
    for sizes, length in ((Sizes(3, 5, 16), 110), (Sizes(0, 4, 9), 80),
                          (Sizes(2, 0, 12), 80), (Sizes(0, 0, 7), 60),
                          (Sizes(2, 20, 8), 80), (Sizes(1, 1, 1), 40),
                          (Sizes(5, 3, 64), 60)):
        tokens = stream[:length]
        prompt = length // 2 - 1
        batch = torch.tensor([list(tokens)])
        for name in ("folds", "shut", "rerun"):
            if name == "rerun" and not 0 < sizes.window <= sizes.segment:
                continue
            used = None if name == "shut" else gates
            if name == "rerun":
                fast = rerun_logits(model, batch, sizes, used, prompt)[0]
            else:
                fast = model(batch, EdgeInfinite(sizes, length, prompt, used),
                             prompt)[0]
            slow = Sequence(model, sizes, used, rerun=name == "rerun")
            slow.prefill(list(tokens[:prompt]))
            logits = torch.stack([slow.step(t) for t in tokens[prompt:]])
            worst[f"{dataclasses.astuple(sizes)} {name}"] = (
                (logits - fast).abs().max().item())
    return worst


# ---------------------------------------------------------------------------
# Figures
# ---------------------------------------------------------------------------


@torch.no_grad()
def score(logits_of, streams, at_once):
    """Bits per byte of each stream's second half; logits_of(tokens, first)."""
    half, found = streams.shape[1] // 2, []
    for at in range(0, len(streams), at_once):
        part = streams[at : at + at_once]
        logits = logits_of(part[:, :-1], half - 1)
        loss = F.cross_entropy(logits.transpose(1, 2), part[:, half:],
                               reduction="none")
        found += (loss.double().mean(1) / math.log(2)).tolist()
    return found


def summary(name, values, exact, **more):
    t = torch.tensor(values).double()
    result = dict(name=name, **more, bits=t.mean().item(),
                  error=(t.std() / len(t) ** 0.5).item())
    if exact is not None:
        change = t - torch.tensor(exact).double()
        result |= dict(change=change.mean().item(),
                       change_error=(change.std() / len(t) ** 0.5).item())
    return result | dict(streams=[round(x, 5) for x in values])


def memory_tokens(config):
    """How many bf16 tokens of a head the memory's f32 takes."""
    d = config["head_dim"]
    return math.ceil((d * d + d) * 4 / (2 * d * 2))


def schemes(model, length, gates, sizes, ablations, blind):
    """(name, tokens kept at the most, logits_of)"""
    prompt = length // 2 - 1
    extra = memory_tokens(model.config)
    capacity = sizes.sinks + sizes.window + sizes.segment - 1
    mean = sizes.sinks + sizes.window + (sizes.segment - 1) // 2

    def edge(s, g, is_blind=False):
        return lambda tokens, first: model(
            tokens, EdgeInfinite(s, tokens.shape[1], prompt, g, is_blind), first)

    def windowed(sinks, tokens_kept, exact_prompt=0):
        attention = Windowed(sinks, tokens_kept - sinks, exact_prompt)
        return lambda tokens, first: model(tokens, attention, first)

    yield "full attention", length, lambda t, f: model(t, full, f)
    yield "EdgeInfinite", capacity + extra, edge(sizes, gates)
    yield ("EdgeInfinite, re-run", capacity + extra,
           lambda t, f: rerun_logits(model, t, sizes, gates, f))
    yield "EdgeInfinite, gate shut", capacity, edge(sizes, None)
    if blind:
        yield ("EdgeInfinite, a gate trained to read zeros", capacity,
               edge(sizes, blind, True))
    for which, size in (("at its peak", capacity + extra),
                        ("on average", mean + extra)):
        yield (f"sliding window, bytes {which}", size, windowed(0, size))
        yield (f"StreamingLLM, bytes {which}", size, windowed(sizes.sinks, size))
    yield ("StreamingLLM after an exact prompt, bytes at its peak",
           capacity + extra, windowed(sizes.sinks, capacity + extra, prompt))
    for name, change in (("no sink", dict(sinks=0)), ("no window", dict(window=0)),
                         ("no sink, no window", dict(sinks=0, window=0))):
        other = dataclasses.replace(sizes, **change)
        size = other.sinks + other.window + other.segment - 1 + extra
        yield f"{name}, same gate", size, edge(other, gates)
        if name in ablations:
            own, own_sizes = ablations[name]
            assert own_sizes == other, (name, own_sizes)
            yield f"{name}, gate of its own", size, edge(other, own)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--streams", type=pathlib.Path, required=True)
    parser.add_argument("--gates", type=pathlib.Path, required=True)
    parser.add_argument("--ablation", nargs=2, action="append", default=[],
                        metavar=("NAME", "GATES"), help="a gate of its own")
    parser.add_argument("--blind", metavar="GATES",
                        help="a gate that was trained with --blind")
    parser.add_argument("--contexts", type=int, nargs="+",
                        default=[4096, 16384, 65536])
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    raw = options.streams.read_bytes()
    if options.verify:
        worst = verify(options.model, options.gates, raw[STREAM : STREAM + 200])
        for name, difference in worst.items():
            print(f"{name}: {difference:.1e}")
        sys.exit(max(worst.values()) > 1e-9)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = TinyLM(options.model).to(device)
    gates, sizes = load_gates(options.gates, model)
    ablations = {name: load_gates(path, model)
                 for name, path in options.ablation}
    ablations = {n: (g.to(device), s) for n, (g, s) in ablations.items()}
    blind = load_gates(options.blind, model)[0].to(device) if options.blind else None
    streams = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    streams = streams.view(-1, STREAM).long().to(device)
    name, driver = card()
    document = dict(
        schema="ladle-edge-infinite-bits-1", model=model.config["name"],
        date=datetime.date.today().isoformat(), device=name, driver=driver,
        torch=torch.__version__, sizes=dataclasses.asdict(sizes),
        memory_tokens=memory_tokens(model.config), contexts=[])
    for length in options.contexts:
        rows, exact = [], None
        for name, size, logits_of in schemes(model, length, gates.to(device),
                                             sizes, ablations, blind):
            values = score(logits_of, streams[:, :length],
                           max(1, 2**18 // length))
            rows.append(summary(name, values, exact, tokens=size))
            exact = exact or values
            print(f"{length} {name}: {rows[-1]['bits']:.4f} "
                  f"± {rows[-1]['error']:.4f}", flush=True)
        document["contexts"].append(dict(
            context=length, positions=length // 2, runs=rows))
        if options.out:
            write_json(options.out, document)


if __name__ == "__main__":
    main()
