#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What SLAKE's answers are off by on traces of real attention, in PyTorch.

slake_traces.py --traces DIR --out FILE.json
slake_traces.py --model DIR --streams heldout-8x65536.bin --out FILE.json

The first half of a trace is a prompt, what follows is decoded with the trace's
own queries, keys and values. Errors are |o - exact| / |exact|, over heads and
tokens. `reach` is scale |q| rho, the size of what the Taylor term expands in.

With --model the traces are those of all layers of a model that attends to all
tokens of a stream, of any length, and layers have budgets of VABS as well.
"""

import argparse
import datetime
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from slake_reference import (SCHEMES, STREAM, Cache, Layer, Policy, Scheme,
                             card, full, preference, prompt_weights, ranking,
                             rows_of, share_out)
from train_gate import TinyLM, rotate, write_json


def trace_of(path):
    """q [Hq, T, D], k and v [Hkv, T, D], after RoPE."""
    found = load_file(path)
    if "q_post" in found:
        q = found["q_post"].float()
    else:
        q = found["q_pre"].float()
        half = q.shape[-1] // 2
        turns = 50000.0 ** (-torch.arange(half).double() / half)
        angle = torch.arange(len(q)).double()[:, None] * turns
        q = rotate(q.transpose(0, 1), angle.cos().float(),
                   angle.sin().float()).transpose(0, 1).bfloat16().float()
        at = found["positions"].long()
        assert (q[at] - found["q_post_at"].float()).abs().max() < 0.1
    return tuple(x.float().transpose(0, 1)
                 for x in (q, found["k_post"], found["v"]))


def exact_answers(q, k, v):
    group = q.shape[0] // k.shape[0]
    return F.scaled_dot_product_attention(
        q, k.repeat_interleave(group, 0), v.repeat_interleave(group, 0),
        is_causal=True)


def prompt_of(q, k, v, policy):
    """What the first half of a trace leaves, as a batch of one."""
    prompt = q.shape[1] // 2
    late = q[:, prompt - policy.queries : prompt]
    scores = late @ k[:, :prompt].repeat_interleave(
        q.shape[0] // k.shape[0], 0).mT * q.shape[-1] ** -0.5
    at = torch.arange(prompt, device=q.device)
    scores.masked_fill_(at > at[-policy.queries :, None], -torch.inf)
    return Layer(k[None, :, :prompt], v[None, :, :prompt], late[None],
                 scores.softmax(-1)[None], scores[None])


def rank_of(layer, policy, variance):
    weights, seen = prompt_weights(layer, layer.k.shape[1])
    return ranking(weights, seen, policy, variance)


@torch.no_grad()
def errors_of(q, k, v, rows, policy):
    """Of rows (scheme, budget, how many tokens are kept)."""
    tokens = q.shape[1]
    prompt, scale = tokens // 2, q.shape[-1] ** -0.5
    heads = k.shape[0]
    exact = exact_answers(q, k, v)
    layer = prompt_of(q, k, v, policy)
    ranks = {s.variance: rank_of(layer, policy, s.variance)[0]
             for s, _, _ in rows}
    cache = Cache(layer, [0] * len(rows), [n for _, _, n in rows],
                  [s for s, _, _ in rows], policy,
                  lambda _, s: ranks[s.variance])
    wide = lambda x: x.expand(len(rows), *x.shape)
    errors = torch.empty(tokens - prompt, len(rows), q.shape[0])
    reach = torch.empty_like(errors)
    slot = torch.zeros(1, dtype=torch.long, device=q.device)
    for i in range(tokens - prompt):
        t = prompt + i
        cache.put(wide(k[:, t]), wide(v[:, t]))
        cache.evict()
        slot.fill_(t % policy.queries)
        grouped = wide(q[:, t]).unflatten(1, (heads, -1))
        o = cache.attend(grouped, scale, slot).flatten(1, 2)
        errors[i] = ((o - exact[:, t]).norm(dim=-1)
                     / exact[:, t].norm(dim=-1)).cpu()
        memory = cache.memory
        rho = (memory.m2 / memory.n.clamp(min=1)).sqrt()
        reach[i] = (scale * grouped.norm(dim=-1) * rho[..., None]
                    ).flatten(1).cpu()
    found = []
    for r, (scheme, budget, kept) in enumerate(rows):
        one = dict(name=scheme.name, budget=budget,
                   mean=errors[:, r].mean().item(),
                   median=errors[:, r].median().item(),
                   largest_tenth=errors[:, r].quantile(0.9).item())
        if scheme.vabs:
            one["kept"] = kept
        elif scheme.taylor and scheme.limit == 0:
            one["reach"] = {f"{p:g}": reach[:, r].quantile(p).item()
                            for p in (0.01, 0.1, 0.5, 0.9, 0.99)}
        found.append(one)
    return found


def of_files(options, policy, device):
    """(name, context, runs) of traces that there are."""
    schemes = [s for s in SCHEMES if not s.vabs] + [
        Scheme("+ PTAA, limit 8", taylor=True, limit=8.0)]
    for path in sorted(options.traces.glob(options.names)):
        q, k, v = (x.to(device) for x in trace_of(path))
        for context in options.contexts:
            cut = [x[:, :context] for x in (q, k, v)]
            yield path.name, context, [
                run for budget in options.budgets for run in errors_of(
                    *cut, [(s, budget, budget) for s in schemes], policy)]


@torch.no_grad()
def of_model(options, policy, device):
    """The same of each layer of a model, budgets of VABS among them."""
    model = TinyLM(options.model).to(device)
    text = torch.frombuffer(bytearray(options.streams.read_bytes()),
                            dtype=torch.uint8).view(-1, STREAM)
    names = ("evict-only", "+ PTAA", "evict-only + VABS", "+ PTAA + VABS")
    for context in options.contexts:
        for stream in range(options.count):
            layers = []
            model(text[stream : stream + 1, :context].long().to(device),
                  lambda _, q, k, v: layers.append((q[0], k[0], v[0]))
                  or full(None, q, k, v), context - 1)
            prompts = [prompt_of(*each, policy) for each in layers]
            least = policy.sinks + policy.recent + 1
            kept = {}
            for _, scheme, budget in rows_of(1, options.budgets):
                if scheme.name not in names:
                    continue
                shares = [budget] * len(layers)
                if scheme.vabs:
                    shares = share_out(budget * len(layers), [
                        preference(p, rank_of(p, policy, scheme.variance),
                                   budget, scheme.exponents)[0].item()
                        for p in prompts], least)
                kept[scheme, budget] = shares
            for layer, (q, k, v) in enumerate(layers):
                yield f"stream{stream}-layer{layer}", context, errors_of(
                    q, k, v, [(s, b, shares[layer])
                              for (s, b), shares in kept.items()], policy)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--traces", type=pathlib.Path)
    parser.add_argument("--names", default="traces-softmax-*-layer*.safetensors")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--streams", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=2, help="of streams")
    parser.add_argument("--budgets", type=int, nargs="+",
                        default=[128, 256, 512, 1024])
    parser.add_argument("--contexts", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    if (options.traces is None) == (options.model is None):
        parser.error("wanted --traces, or --model and --streams")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name, driver = card()
    document = dict(schema="ladle-slake-traces-1", device=name, driver=driver,
                    date=datetime.date.today().isoformat(),
                    torch=torch.__version__, traces=[])
    traces = of_files if options.traces else of_model
    for trace, context, runs in traces(options, Policy(), device):
        document["traces"].append(dict(trace=trace, context=context,
                                       prompt=context // 2, runs=runs))
        for run in runs:
            print(trace, context, run["budget"], run["name"],
                  f"{run['mean']:.4f}", run.get("reach", ""), flush=True)
        write_json(options.out, document)


if __name__ == "__main__":
    main()
