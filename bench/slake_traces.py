#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What SLAKE's answers are off by on traces of real attention, in PyTorch.

slake_traces.py --traces DIR --out FILE.json

The first half of a trace is a prompt, what follows is decoded with the trace's
own queries, keys and values. Errors are |o - exact| / |exact|, over heads and
tokens. `reach` is scale |q| rho, the size of what the Taylor term expands in.
"""

import argparse
import datetime
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from slake_reference import (SCHEMES, Cache, Scheme, Layer, Policy,
                             card, prompt_weights, ranking)
from train_gate import rotate, write_json


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


@torch.no_grad()
def errors_of(q, k, v, budgets, policy):
    tokens = q.shape[1]
    prompt, scale = tokens // 2, q.shape[-1] ** -0.5
    heads = k.shape[0]
    exact = exact_answers(q, k, v)
    late = q[:, prompt - policy.queries : prompt]
    scores = late @ k[:, :prompt].repeat_interleave(
        q.shape[0] // heads, 0).mT * scale
    at = torch.arange(prompt, device=q.device)
    scores.masked_fill_(at > at[-policy.queries :, None], -torch.inf)
    layer = Layer(k[None, :, :prompt], v[None, :, :prompt], late[None],
                  scores.softmax(-1)[None], scores[None])
    weights, seen = prompt_weights(layer, heads)
    schemes = [s for s in SCHEMES if not s.vabs] + [
        Scheme("+ PTAA, limit 8", taylor=True, limit=8.0)]
    rows = [(s, b) for s in schemes for b in budgets]
    cache = Cache(layer, [0] * len(rows), [b for _, b in rows],
                  [s for s, _ in rows], policy,
                  lambda _, s: ranking(weights, seen, policy, s.variance)[0])
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
    for r, (scheme, budget) in enumerate(rows):
        one = dict(name=scheme.name, budget=budget,
                   mean=errors[:, r].mean().item(),
                   median=errors[:, r].median().item(),
                   largest_tenth=errors[:, r].quantile(0.9).item())
        if scheme.taylor and scheme.limit == 0:
            one["reach"] = {f"{p:g}": reach[:, r].quantile(p).item()
                            for p in (0.01, 0.1, 0.5, 0.9, 0.99)}
        found.append(one)
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--names", default="traces-softmax-*-layer*.safetensors")
    parser.add_argument("--budgets", type=int, nargs="+",
                        default=[128, 256, 512, 1024])
    parser.add_argument("--contexts", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name, driver = card()
    document = dict(schema="ladle-slake-traces-1", device=name, driver=driver,
                    date=datetime.date.today().isoformat(),
                    torch=torch.__version__, traces=[])
    for path in sorted(options.traces.glob(options.names)):
        q, k, v = (x.to(device) for x in trace_of(path))
        for context in options.contexts:
            cut = [x[:, :context] for x in (q, k, v)]
            runs = [run for budget in options.budgets
                    for run in errors_of(*cut, [budget], Policy())]
            document["traces"].append(dict(trace=path.name, context=context,
                                           prompt=context // 2, runs=runs))
            for run in runs:
                print(path.stem, context, run["budget"], run["name"],
                      f"{run['mean']:.4f}", run.get("reach", ""), flush=True)
            write_json(options.out, document)


if __name__ == "__main__":
    main()
