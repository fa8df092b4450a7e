#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a Taylor memory gives and what it cannot give, in PyTorch.

slake_evicted.py --model DIR --streams heldout-8x65536.bin --out FILE.json

Decodes as slake_reference.py does, and remembers all that was evicted, so that
the exact summary of it is known at each step. Rows differ in what they answer:

  evict-only                     nothing of what was evicted
  + PTAA                         n e^mu, and the mean of the first order
  first order, Gaussian weight   n e^(mu + var/2) for scores of variance var
  first order, exact weight      the sum of e^s, and the mean of the first order
  mean value, exact weight       the sum of e^s, and the plain mean of values
  exact in layer N               all of what was evicted, in one layer alone

All of it in all layers is full attention. Of the queries of evict-only's rows
it also tells how far the answer of each would be off attention to all tokens.
"""

import argparse
import datetime
import math
import pathlib
import statistics

import torch

import slake_reference
from edge_infinite_bits import STREAM, full
from slake_reference import Batch, Cache, Policy, Scheme
from train_gate import TinyLM, card, write_json

EVICT, PTAA, GAUSSIAN, FIRST, MEAN, EXACT = range(6)
SUMMARIES = {
    "evict-only": EVICT, "+ PTAA": PTAA,
    "first order, Gaussian weight": GAUSSIAN,
    "first order, exact weight": FIRST, "mean value, exact weight": MEAN}
FIGURES = [*(f"error, {name}" for name in SUMMARIES), "share of the evicted",
           "deviation of scores", "weight left out", "largest", "largest 8"]


def ways_of(layers, of_layers):
    """Names of rows, and what each does in each layer."""
    if not of_layers:
        return {name: [way] * layers for name, way in SUMMARIES.items()}
    return {"evict-only": [EVICT] * layers} | {
        f"exact in layer {at}": [EXACT if i == at else EVICT
                                 for i in range(layers)]
        for at in range(layers)}


def merged(one, other):
    """Of two (m, Z, A): the answer."""
    top = torch.maximum(one[0], other[0])
    left, right = (one[0] - top).exp(), (other[0] - top).exp()
    return ((one[2] * left[..., None] + other[2] * right[..., None])
            / (one[1] * left + other[1] * right)[..., None])


class Watched(Cache):
    """A cache that knows what it has evicted; row r answers in ways[r]."""

    def __init__(self, layer, index, budgets, schemes, policy, rank_of, ways,
                 watches, length):
        super().__init__(layer, index, budgets, schemes, policy, rank_of)
        rows, (heads, n, size) = len(index), layer.k.shape[1:]
        device = layer.k.device
        self.ways = torch.tensor(ways, device=device)
        # Rows that have to know what was evicted: all of it is kept for them.
        self.knows = ((self.ways > PTAA) | watches & (self.ways == EVICT)
                      ).nonzero()[:, 0]
        self.watched = watches and self.ways[self.knows] == EVICT
        self.figures, self.at = [], n
        self.keys = torch.zeros(len(self.knows), heads, length, size,
                                device=device)
        self.values = torch.zeros_like(self.keys)
        index = torch.tensor(index, device=device)[self.knows]
        self.keys[:, :, :n], self.values[:, :, :n] = layer.k[index], layer.v[index]
        self.position = torch.zeros(rows, heads, self.k.shape[2],
                                    dtype=torch.long, device=device)
        self.gone = torch.zeros(rows, heads, length, dtype=torch.bool,
                                device=device)
        self.gone[:, :, :n] = True

    def start(self, chosen):
        """chosen [rows, heads, budget]: what was kept of the prompt."""
        self.position[:, :, : chosen.shape[2]] = chosen
        self.gone.scatter_(2, chosen, False)

    def put(self, k, v):
        self.keys[:, :, self.at] = k[self.knows]
        self.values[:, :, self.at] = v[self.knows]
        self.position.scatter_(2, self.free[..., None], self.at)
        super().put(k, v)
        self.at += 1

    def evict(self):
        due = self.count + 1 > self.budget
        super().evict()
        entry = self.position.gather(2, self.free[..., None])
        old = self.gone.gather(2, entry)
        self.gone.scatter_(2, entry, old | due[:, None, None])

    def attend(self, q, scale, slot):
        there = torch.zeros_like(self.seen).scatter_add_(
            2, self.order, (self.lane < self.count[:, None, None])
            .to(self.seen.dtype).expand_as(self.seen))
        s = (q @ self.k.mT * scale).masked_fill(there[:, :, None] == 0, -torch.inf)
        top = s.amax(-1)
        p = (s - top[..., None]).exp()
        z = p.sum(-1)
        self.ring.index_copy_(2, slot, (p / z[..., None]).sum(2)[:, :, None])
        self.seen.copy_((self.seen + there).clamp(max=self.policy.queries) * there)
        kept = (top, z, p @ self.v)
        series = self.memory.read(q, scale, self.limit)
        plain = kept[2] / z[..., None]
        o = torch.where((self.ways == PTAA)[:, None, None, None],
                        merged(kept, series), plain)
        knows = self.knows
        if len(knows):
            kept = [x[knows] for x in kept]
            mu, n, first = (x[knows] for x in series)
            n = n.expand_as(mu)
            answers, figures = self.answers(q[knows], scale, kept, mu, n, first)
            o[knows] = answers[self.ways[knows], torch.arange(len(knows))]
            if self.watched is not False:
                self.figures.append(figures[:, self.watched].cpu())
        return o

    def answers(self, q, scale, kept, mu, n, first):
        """In each way, and FIGURES, of the rows that know."""
        gone = self.gone[self.knows][:, :, None, : self.at]
        s = q @ self.keys[:, :, : self.at].mT * scale
        variance = ((s - mu[..., None]).square() * gone).sum(-1) / n
        s = s.masked_fill(~gone, -torch.inf)
        most = s.amax(-1)
        weight = (s - most[..., None]).exp()
        exact = (most, weight.sum(-1), weight @ self.values[:, :, : self.at])
        first = first / n[..., None]
        mean = (self.memory.v[self.knows][:, :, None] / n[..., None]
                ).expand_as(first)
        heavy = exact[1][..., None]
        answers = torch.stack([
            kept[2] / kept[1][..., None],
            merged(kept, (mu, n, n[..., None] * first)),
            merged(kept, (mu + variance / 2, n, n[..., None] * first)),
            merged(kept, (most, exact[1], heavy * first)),
            merged(kept, (most, exact[1], heavy * mean)),
            merged(kept, exact)])
        off = ((answers - answers[EXACT]).norm(dim=-1)
               / answers[EXACT].norm(dim=-1))[:EXACT]
        log = most + exact[1].log()
        largest = weight.topk(8, -1).values / heavy
        return answers, torch.stack([
            *off, torch.sigmoid(log - kept[0] - kept[1].log()),
            variance.sqrt(), log - mu - n.log(), largest[..., 0],
            largest.sum(-1)])


class WatchedBatch(Batch):
    """Rows (way, stream) of one budget."""

    def __init__(self, model, tokens, prompt, budget, policy, ways, watches):
        scheme = Scheme("+ PTAA", taylor=True)
        rows = [(i, scheme, budget) for _ in ways for i in range(len(tokens))]
        each = iter(zip(*(w for w in ways.values() for _ in range(len(tokens)))))

        def make(layer, index, budgets, schemes, policy, rank_of):
            cache = Watched(layer, index, budgets, schemes, policy, rank_of,
                            next(each), watches, tokens.shape[1])
            stay = min(budget, prompt)
            cache.start(torch.stack([
                rank_of(i, scheme)[:, prompt - stay :].sort(-1).values
                for i in index]))
            return cache

        slake_reference.Cache = make
        try:
            super().__init__(model, tokens, prompt, rows, policy)
        finally:
            slake_reference.Cache = Cache
        self.captures = False


@torch.no_grad()
def decode(model, streams, exact, budget, policy, ways, watches):
    """Bits of each byte and KL to `exact`, [ways, streams, n], and figures."""
    length, half = streams.shape[1], streams.shape[1] // 2
    index = torch.arange(len(streams), device=streams.device).repeat(len(ways))
    batch = WatchedBatch(model, streams, half - 1, budget, policy, ways, watches)
    costs, apart = [], []
    for t, logits in zip(range(half, length), batch.run(half)):
        logits = logits.log_softmax(-1)
        costs.append(-logits.gather(1, streams[index, t][:, None])[:, 0])
        sure = exact[index, t - half]
        apart.append((sure.exp() * (sure - logits)).sum(-1))
    fold = lambda x: torch.stack(x, 1).unflatten(0, (len(ways), -1)) / math.log(2)
    figures = [torch.stack(c.figures, 1) for c in batch.caches if c.figures]
    return fold(costs), fold(apart), figures


def mean_error(values):
    """Over streams."""
    each = values.mean(-1).tolist()
    error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0
    return statistics.mean(each), error


def runs_of(ways, costs, apart, loss):
    runs = []
    # Half of each, so that noise of one does not choose what is worst.
    order = ((costs[0] + costs[1]) / 2 - loss).flatten().argsort(descending=True)
    for way, name in enumerate(ways):
        excess, error = mean_error(costs[way] - loss)
        change, change_error = mean_error(costs[way] - costs[0])
        each = (costs[way] - loss).flatten()[order]
        parts = {f"{part:g}": each[: int(part * len(each))].sum().item() / len(each)
                 for part in (0.01, 0.05, 0.2, 1)}
        runs.append(dict(
            name=name, excess=excess, error=error, change=change,
            change_error=change_error, apart=apart[way].mean().item(),
            excess_of_worst=parts))
    return runs


def layers_of(figures):
    """Means over streams, steps and heads, and over them by the share that the
    evicted have of the weight."""
    found = []
    for each in figures:
        share = each[FIGURES.index("share of the evicted")]
        of_head = each.mean((1, 2))
        found.append({
            name: dict(mean=x.mean().item(),
                       by_share=((x * share).sum() / share.sum()).item(),
                       by_head=[round(h, 4) for h in of_head[i].flatten().tolist()])
            for i, (name, x) in enumerate(zip(FIGURES, each))})
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--streams", type=pathlib.Path, required=True)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--budgets", type=int, nargs="+",
                        default=[128, 256, 512, 1024])
    parser.add_argument("--layers", type=int, nargs="*", default=[256],
                        help="budgets for exact summaries in one layer")
    parser.add_argument("--count", type=int, default=8, help="of streams")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = TinyLM(options.model).to(device)
    streams = torch.frombuffer(bytearray(options.streams.read_bytes()),
                               dtype=torch.uint8).view(-1, STREAM).long()
    streams = streams[: options.count, : options.context].to(device)
    half = options.context // 2
    with torch.no_grad():
        exact = torch.cat([model(s[None, :-1], full, half - 1)
                           for s in streams]).log_softmax(-1)
    loss = -exact.gather(2, streams[:, half:, None])[..., 0] / math.log(2)
    name, driver = card()
    document = dict(
        schema="ladle-slake-evicted-1", model=model.config["name"],
        date=datetime.date.today().isoformat(), device=name, driver=driver,
        torch=torch.__version__, context=options.context, streams=len(streams),
        full=mean_error(loss)[0], budgets=[], layers=[])
    jobs = [("layers", b) for b in options.layers] + [
        ("budgets", b) for b in options.budgets]
    for kind, budget in jobs:
        ways = ways_of(model.layers, kind == "layers")
        costs, apart, figures = decode(model, streams, exact, budget, Policy(),
                                       ways, kind == "budgets")
        runs = runs_of(ways, costs, apart, loss)
        document[kind].append(dict(budget=budget, runs=runs))
        if figures:
            document[kind][-1]["layers"] = layers_of(figures)
        for run in runs:
            print(budget, run["name"], f"{run['excess']:.4f}",
                  f"{run['change']:+.4f} ± {run['change_error']:.4f}",
                  f"KL {run['apart']:.4f}", flush=True)
        write_json(options.out, document)


if __name__ == "__main__":
    main()
