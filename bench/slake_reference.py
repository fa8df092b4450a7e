#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bits per byte and needles of SLAKE, in PyTorch: what an engine should give.

slake_reference.py --model DIR --streams heldout-8x65536.bin --out FILE.json
slake_reference.py --model DIR --streams heldout-8x65536.bin --verify

Written from the equations, apart from the engine. All schemes, budgets and
streams are rows of one batch; --verify compares it in float64 with one row
that is decoded over lists of tokens (slake_lists.py).

The first half of a stream but one byte is a prompt, answered exactly; what each
layer and head keeps of it is chosen by its last queries. Then token by token.
"""

import argparse
import dataclasses
import datetime
import math
import pathlib
import random
import sys

import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples/edge_infinite"), str(ROOT / "bench")]

from edge_infinite_bits import STREAM, Windowed, full, score, summary
from slake_lists import decode_lists
from train_gate import TinyLM, card, write_json


@dataclasses.dataclass(frozen=True)
class Policy:
    """What the rows of a batch have in common."""

    sinks: int = 0
    recent: int = 32
    queries: int = 32
    pool: int = 5


@dataclasses.dataclass(frozen=True)
class Scheme:
    """What a row does."""

    name: str
    taylor: bool = False
    limit: float = 0.0  # of |q| rho scale; 0: none
    vabs: bool = False
    variance: float = 200.0
    exponents: tuple = (0.6, 0.5)  # alpha, beta of VABS


EAGER = False  # without graphs
ZEROTH = 1e-30
SCHEMES = [
    Scheme("evict-only"),
    Scheme("evict-only, mean alone", variance=0.0),
    Scheme("+ PTAA", taylor=True),
    Scheme("+ PTAA, limit 16", taylor=True, limit=16.0),
    Scheme("+ PTAA, zeroth order", taylor=True, limit=ZEROTH),
    Scheme("evict-only + VABS", vabs=True),
    Scheme("+ PTAA + VABS", taylor=True, vabs=True),
]

# ---------------------------------------------------------------------------
# What a prompt leaves
# ---------------------------------------------------------------------------


@dataclasses.dataclass
class Layer:
    """Of a prompt: keys and values [B, Hkv, n, D], and of its last queries
    their vectors [B, Hq, w, D], weights [B, Hq, w, n] and logits."""

    k: torch.Tensor
    v: torch.Tensor
    q: torch.Tensor
    weights: torch.Tensor
    scores: torch.Tensor


@torch.no_grad()
def answer_prompt(model, tokens, policy):
    layers = []
    n = tokens.shape[1]
    last = min(policy.queries, n)

    def attention(_, q, k, v):
        group = q.shape[1] // k.shape[1]
        late = q[:, :, n - last :]
        scores = late @ k.repeat_interleave(group, 1).mT * q.shape[-1] ** -0.5
        at = torch.arange(n, device=q.device)
        scores.masked_fill_(at > at[n - last :, None], -math.inf)
        layers.append(Layer(k, v, late, scores.softmax(-1), scores))
        return full(None, q, k, v)

    model(tokens, attention, n - 1)
    return layers


def pooled(salience, there, pool):
    """The mean over `pool` neighbours, as far as they are there."""
    n = salience.shape[-1]

    def add(x):
        x = F.pad(x, (pool // 2, pool // 2))
        return sum(x[..., i : i + n] for i in range(pool))

    there = there.to(salience.dtype)
    return add(salience * there) / add(there).clamp(min=1)


def salience(weights, seen, variance):
    """weights [..., queries, n] with 0 where a token was not seen."""
    seen = seen.clamp(min=1).to(weights.dtype)
    mean = weights.sum(-2) / seen
    squares = torch.linalg.vector_norm(weights, dim=-2).square() / seen
    spread = (squares - mean.square()).clamp(min=0)
    return mean + variance * spread


def prompt_weights(layer, heads):
    """Weights of the last queries, summed over the heads that share keys, and
    how many of these queries saw each token."""
    w = layer.weights.unflatten(1, (heads, -1)).sum(2)
    n, last = w.shape[-1], w.shape[-2]
    at = torch.arange(n, device=w.device)
    return w, (n - at).clamp(max=last)


def ranking(weights, seen, policy, variance):
    """Tokens from the first to go to the last, [B, Hkv, n]."""
    n = weights.shape[-1]
    s = pooled(salience(weights, seen, variance),
               torch.ones_like(weights[..., 0, :]), policy.pool)
    at = torch.arange(n, device=s.device)
    s = s.masked_fill((at < policy.sinks) | (at >= n - policy.recent), math.inf)
    return s.sort(dim=-1, stable=True).indices


def preference(layer, order, budget, exponents):
    """VABS: what a layer wants, given who goes at a uniform budget; [B]."""
    heads, n = layer.k.shape[1], layer.k.shape[2]
    gone = max(0, n - budget)
    out = torch.zeros(order.shape, dtype=torch.bool, device=order.device)
    out.scatter_(-1, order[..., :gone], True)
    group = layer.q.shape[1] // heads
    out = out.repeat_interleave(group, 1)[:, :, None]
    s = layer.scores
    # Tokens that a query does not see were not evicted before it.
    out = out & s.isfinite()
    count = out.sum(-1, keepdim=True)
    flat = s.masked_fill(~out, 0)
    mu = flat.sum(-1, keepdim=True) / count.clamp(min=1)
    kept_top = s.masked_fill(out, -math.inf).amax(-1, keepdim=True)
    top = torch.where(count > 0, torch.maximum(kept_top, mu), kept_top)
    near = torch.where(out, (mu - top).exp() * (1 + s.masked_fill(~out, 0) - mu),
                       (s - top).exp())
    total = ((s - top).exp().masked_fill(out, 0).sum(-1, keepdim=True)
             + count * (mu - top).exp())
    near = near / total
    off = (near - layer.weights).abs()
    norms = layer.v.norm(dim=-1)
    norms = (norms / norms.sum(-1, keepdim=True)).repeat_interleave(group, 1)
    tv = off.sum(-1) / 2
    aware = (norms[:, :, None] * off).sum(-1).pow(0.1)
    positive = near.clamp(min=0)
    positive = positive / positive.sum(-1, keepdim=True)
    entropy = -torch.special.xlogy(positive, positive).sum(-1)
    alpha, beta = exponents
    return ((tv * aware).mean((1, 2)) ** alpha) * (entropy.mean((1, 2)) ** beta)


def share_out(total, preferences, least):
    """Budgets over layers by largest remainder; [layers] to [layers]."""
    if sum(preferences) == 0:
        preferences = [1.0] * len(preferences)
    exact = [total * p / sum(preferences) for p in preferences]
    budgets = [int(e) for e in exact]
    by_rest = sorted(range(len(exact)), key=lambda i: budgets[i] - exact[i])
    for i in by_rest[: total - sum(budgets)]:
        budgets[i] += 1
    # No layer may have less than it must keep: the largest pays.
    for i in range(len(budgets)):
        while budgets[i] < least:
            rich = max(range(len(budgets)), key=lambda j: budgets[j])
            budgets[i] += 1
            budgets[rich] -= 1
    return budgets


# ---------------------------------------------------------------------------
# Decoding a batch of rows
# ---------------------------------------------------------------------------


class Memory:
    """n, sums of k and v, L, and the spread of the keys; [R, H, ...]."""

    def __init__(self, k, v, gone, on):
        """gone [R, H, n]: who of k and v [R, H, n, D] has been evicted."""
        gone = (gone & on[:, None, None]).to(k.dtype)
        self.on = on.to(k.dtype)[:, None]
        self.n = gone.sum(-1)
        self.k = (k * gone[..., None]).sum(2)
        self.v = (v * gone[..., None]).sum(2)
        self.L = (k * gone[..., None]).mT @ v
        mean = self.k / self.n.clamp(min=1)[..., None]
        self.m2 = ((k - mean[:, :, None]).square().sum(-1) * gone).sum(-1)

    def fold(self, k, v, due):
        """A token [R, H, D] of each head where it is due [R]."""
        due = due.to(k.dtype)[:, None] * self.on
        before = self.k / self.n.clamp(min=1)[..., None]
        self.n += due
        self.k += k * due[..., None]
        self.v += v * due[..., None]
        self.L += k[..., :, None] * v[..., None, :] * due[..., None, None]
        after = self.k / self.n.clamp(min=1)[..., None]
        # Of the first token of all, mean and k are the same.
        self.m2 += ((k - before) * (k - after)).sum(-1) * due * (self.n > 1)

    def read(self, q, scale, limit):
        """(m, Z, A) for q [R, H, G, D]."""
        n = self.n.clamp(min=1)[..., None]
        mu = scale * (q @ self.k[..., None])[..., 0] / n
        rho = (self.m2[..., None] / n).clamp(min=0).sqrt()
        near = (scale * q.norm(dim=-1) * rho <= limit[:, None, None]) \
            | (limit[:, None, None] == 0)
        first = scale * q @ self.L - mu[..., None] * self.v[:, :, None]
        a = self.v[:, :, None] + first * near[..., None]
        there = (self.n > 0)[..., None]
        return mu.masked_fill(~there, -math.inf), self.n[..., None] * there, a


class Cache:
    """What a layer keeps for each row and head, in entries of any order."""

    def __init__(self, layer, index, budgets, schemes, policy, rank_of):
        """Row r continues stream index[r] with budgets[r] tokens a head."""
        self.policy = policy
        heads, n = layer.k.shape[1], layer.k.shape[2]
        device, rows = layer.k.device, len(index)
        self.budget = torch.tensor(budgets, device=device)
        size = max(budgets) + 1
        w, seen = prompt_weights(layer, heads)
        k, v = layer.k, layer.v
        make = lambda *shape: torch.zeros(rows, heads, *shape, device=device,
                                          dtype=k.dtype)
        self.k, self.v = make(size, k.shape[-1]), make(size, k.shape[-1])
        self.ring = make(policy.queries, size)
        self.seen = make(size)
        self.order = torch.arange(size, device=device).expand(
            rows, heads, size).clone()
        self.count = self.budget.clamp(max=n)
        slots = torch.arange(n - w.shape[-2], n, device=device) % policy.queries
        on = torch.tensor([s.taylor for s in schemes], device=device)
        self.limit = torch.tensor([s.limit for s in schemes], device=device,
                                  dtype=k.dtype)
        self.variance = torch.tensor([s.variance for s in schemes], device=device,
                                     dtype=k.dtype)[:, None, None]
        parts = []
        for r, (i, scheme) in enumerate(zip(index, schemes)):
            stay = min(budgets[r], n)
            order = rank_of(i, scheme)
            chosen = order[:, n - stay :].sort(-1).values
            wide = chosen[..., None].expand(-1, -1, k.shape[-1])
            self.k[r, :, :stay] = k[i].gather(1, wide)
            self.v[r, :, :stay] = v[i].gather(1, wide)
            for h in range(heads):
                self.ring[r, h][slots, :stay] = w[i, h][:, chosen[h]]
                self.seen[r, h, :stay] = seen[chosen[h]].to(k.dtype)
            gone = torch.ones(heads, n, dtype=torch.bool, device=device)
            gone.scatter_(-1, chosen, False)
            parts.append(Memory(k[i][None], v[i][None], gone[None], on[r][None]))
        self.memory = Memory.__new__(Memory)
        for name in ("n", "k", "v", "L", "m2", "on"):
            setattr(self.memory, name,
                    torch.cat([getattr(p, name) for p in parts]))
        self.free = self.count[:, None].expand(rows, heads).clone()
        self.lane = torch.arange(size, device=device)

    def put(self, k, v):
        at = self.free[..., None]
        wide = at[..., None].expand(-1, -1, 1, k.shape[-1])
        self.k.scatter_(2, wide, k[:, :, None])
        self.v.scatter_(2, wide, v[:, :, None])
        self.ring.scatter_(3, at[:, :, None].expand(-1, -1, self.ring.shape[2], 1),
                           0.0)
        self.seen.scatter_(2, at, 0.0)
        self.order.scatter_(2, self.count[:, None, None].expand_as(at), at)

    def evict(self):
        """One token of each head of the rows that hold more than they may."""
        held = self.count + 1
        due = held > self.budget
        lane, policy = self.lane, self.policy
        s = salience(self.ring, self.seen, self.variance).gather(2, self.order)
        there = lane < held[:, None, None]
        s = pooled(s, there.expand_as(s), policy.pool)
        may = (lane >= policy.sinks) & (lane < held[:, None, None] - policy.recent)
        s = s.masked_fill(~may, math.inf)
        least = s.amin(-1, keepdim=True)
        which = torch.where(s == least, lane, len(lane)).amin(-1, keepdim=True)
        entry = self.order.gather(2, which)
        wide = entry[..., None].expand(-1, -1, 1, self.k.shape[-1])
        self.memory.fold(self.k.gather(2, wide)[:, :, 0],
                         self.v.gather(2, wide)[:, :, 0], due)
        closed = self.order.gather(
            2, (lane + (lane >= which)).clamp(max=len(lane) - 1))
        self.order.copy_(torch.where(due[:, None, None], closed, self.order))
        self.free.copy_(torch.where(due[:, None], entry[..., 0],
                                    held[:, None].clamp(max=len(lane) - 1)))
        self.count.copy_(torch.minimum(held, self.budget))

    def attend(self, q, scale, slot):
        """q [R, H, G, D] to the answers; the weights go to the ring."""
        # Past the count the order names any entries, kept ones too.
        there = torch.zeros_like(self.seen).scatter_add_(
            2, self.order, (self.lane < self.count[:, None, None])
            .to(self.seen.dtype).expand_as(self.seen))
        s = (q @ self.k.mT * scale).masked_fill(there[:, :, None] == 0, -math.inf)
        top = s.amax(-1)
        p = (s - top[..., None]).exp()
        z = p.sum(-1)
        self.ring.index_copy_(2, slot, (p / z[..., None]).sum(2)[:, :, None])
        self.seen.copy_((self.seen + there).clamp(max=self.policy.queries) * there)
        m, n, a = self.memory.read(q, scale, self.limit)
        both = torch.maximum(top, m)
        left, right = (top - both).exp(), (m - both).exp()
        return ((p @ self.v * left[..., None] + a * right[..., None])
                / (z * left + n * right)[..., None])


class Batch:
    """Rows (stream, scheme, budget) of one model."""

    def __init__(self, model, tokens, prompt, rows, policy):
        self.model, self.policy, self.rows = model, policy, rows
        layers = answer_prompt(model, tokens[:, :prompt], policy)
        heads = model.config["n_kv"]
        ranks = []
        for layer in layers:
            w, seen = prompt_weights(layer, heads)
            ranks.append({v: ranking(w, seen, policy, v)
                          for v in {s.variance for _, s, _ in rows}})
        self.budgets = self.share(layers, ranks)
        index = [i for i, _, _ in rows]
        schemes = [s for _, s, _ in rows]
        self.caches = [
            Cache(layer, index, [b[at] for b in self.budgets], schemes, policy,
                  lambda i, s, rank=rank: rank[s.variance][i])
            for at, (layer, rank) in enumerate(zip(layers, ranks))]
        self.tokens = tokens[index]
        self.captures = tokens.is_cuda and not EAGER
        self.at = torch.tensor([prompt], device=tokens.device)
        length = tokens.shape[1]
        x = model.weight("norm.weight")
        self.cos, self.sin = model.angles(0, length, x)
        self.logits = torch.empty(len(rows), model.config["vocab"],
                                  device=tokens.device, dtype=x.dtype)

    def share(self, layers, ranks):
        """Budgets of each row, a layer each."""
        wanted = {}
        for _, scheme, budget in self.rows:
            key = (scheme.variance, budget, scheme.exponents)
            if scheme.vabs and key not in wanted:
                wanted[key] = torch.stack([
                    preference(layer, rank[scheme.variance], budget,
                               scheme.exponents)
                    for layer, rank in zip(layers, ranks)]).tolist()
        least = self.policy.sinks + self.policy.recent + 1
        return [
            [budget] * len(layers) if not scheme.vabs else share_out(
                budget * len(layers),
                [p[i] for p in wanted[scheme.variance, budget, scheme.exponents]],
                least)
            for i, scheme, budget in self.rows]

    def step(self):
        """The token at `at` of each row; logits of what follows."""
        model, config = self.model, self.model.config
        token = self.tokens.index_select(1, self.at)
        x = F.embedding(token, model.weight("embed.weight"))
        cos = self.cos.index_select(0, self.at)
        sin = self.sin.index_select(0, self.at)
        scale, slot = config["head_dim"] ** -0.5, self.at % self.policy.queries
        for layer, cache in enumerate(self.caches):
            q, k, v = model.qkv(layer, x, cos, sin)
            cache.put(k[:, :, 0], v[:, :, 0])
            cache.evict()
            grouped = q[:, :, 0].unflatten(1, (config["n_kv"], -1))
            o = cache.attend(grouped, scale, slot).flatten(1, 2)
            x = model.after(layer, x, o[:, :, None])
        self.logits.copy_(model.head(x)[:, 0])
        self.at += 1

    @torch.no_grad()
    def run(self, steps):
        """Logits of each step, one after another."""
        graph = None
        for i in range(steps):
            if graph is not None:
                graph.replay()
            elif i < 3 or not self.captures:
                self.step()
            else:
                graph = torch.cuda.CUDAGraph()
                torch.cuda.synchronize()
                with torch.cuda.graph(graph):
                    self.step()
                graph.replay()
            yield self.logits


# ---------------------------------------------------------------------------
# Figures
# ---------------------------------------------------------------------------


@torch.no_grad()
def verify(folder, stream):
    model = TinyLM(folder, torch.float64)
    tokens = torch.tensor([list(stream[:140]), list(stream[140:280])])
    prompt, worst = 90, {}
    policy = Policy(sinks=2, recent=4, queries=6)
    evict, mean, ptaa, guarded, zeroth, vabs, both = SCHEMES
    # The largest of a batch fills all of its entries; 400 is past the context.
    small = [(0, evict, 24), (1, mean, 16), (0, ptaa, 12), (1, guarded, 30),
             (1, zeroth, 20), (0, both, 24), (1, vabs, 24), (1, ptaa, 60),
             (0, vabs, 48)]
    for rows in (small, [(0, both, 30)], [(0, ptaa, 110), (1, ptaa, 400)]):
        batch = Batch(model, tokens, prompt, rows, policy)
        fast = torch.stack(
            [l.clone() for l in batch.run(tokens.shape[1] - prompt)], 1)
        for row, (i, scheme, budget) in enumerate(rows):
            slow = decode_lists(model, tokens[i], prompt, scheme,
                                batch.budgets[row], policy)
            worst[f"{scheme.name}, budget {budget} {batch.budgets[row]}"] = (
                (slow - fast[row]).abs().max().item())
    exact = model(tokens[1:2], full, prompt)[0]
    worst["budget over the context"] = (exact - fast[1]).abs().max().item()
    return worst


def rows_of(streams, budgets):
    # alpha and beta of Llama-3.1, the paper's nearest to rotary GQA.
    exponents = lambda b: (0.4, 0.2) if b <= 128 else (0.6, 0.5)
    return [(i, dataclasses.replace(s, exponents=exponents(b)), b)
            for s in SCHEMES for b in budgets for i in range(streams)]


def bits_of(model, streams, budgets, policy):
    """One run a scheme and budget."""
    length, half = streams.shape[1], streams.shape[1] // 2
    exact = score(lambda t, f: model(t, full, f), streams, 8)
    runs = [summary("full attention", exact, None, budget=length)]
    for budget in budgets:
        recent = Windowed(4, budget - 4, half - 1)
        runs.append(summary(
            "StreamingLLM", score(lambda t, f: model(t, recent, f), streams, 8),
            exact, budget=budget))
    rows = rows_of(len(streams), budgets)
    batch = Batch(model, streams, half - 1, rows, policy)
    index = torch.tensor([i for i, _, _ in rows], device=streams.device)
    loss = torch.zeros(len(rows), device=streams.device, dtype=torch.float64)
    for t, logits in zip(range(half, length), batch.run(half)):
        loss += F.cross_entropy(logits, streams[index, t], reduction="none")
    loss = (loss / half / math.log(2)).tolist()
    count = len(streams)
    for at in range(0, len(rows), count):
        _, scheme, budget = rows[at]
        more = dict(budget=budget)
        if scheme.vabs:
            more["layer_budgets"] = [
                round(sum(b) / count, 1)
                for b in zip(*batch.budgets[at : at + count])]
        runs.append(summary(scheme.name, loss[at : at + count], exact, **more))
    return runs


def planted(streams, depth, seed):
    """Streams with a line at a depth, and the line's value asked for at their
    end: (tokens, length of the prompt, length of the value)."""
    chance, made, size = random.Random(seed), [], 12
    for stream in streams.cpu().tolist():
        key = "".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(8))
        value = "".join(chance.choice("0123456789abcdef") for _ in range(size))
        line = f"\n#define {key} 0x{value}\n".encode()
        asked = f"\n#define {key} 0x{value}".encode()
        room = len(stream) - len(line) - len(asked)
        at = int(room * depth)
        made.append(stream[:at] + list(line) + stream[at:room] + list(asked))
    asks = 1 + len("#define ") + 8 + len(" 0x") + size
    tokens = torch.tensor(made, device=streams.device)
    return tokens, tokens.shape[1] - asks, size


def needles_of(model, streams, budgets, policy, depths=(0.1, 0.3, 0.5, 0.7, 0.9)):
    """The part of the value's bytes that come out right, and their bits."""
    found = {}
    for d, depth in enumerate(depths):
        tokens, prompt, size = planted(streams, depth, 100 + d)
        rows = rows_of(len(streams), budgets)
        batch = Batch(model, tokens[:, :-1], prompt, rows, policy)
        steps = tokens.shape[1] - 1 - prompt
        logits = torch.stack([l.clone() for l in batch.run(steps)][-size:], 1)
        index = [i for i, _, _ in rows]
        target = tokens[index, -size:]
        with torch.no_grad():
            exact = model(tokens[:, :-1], full, tokens.shape[1] - 1 - size)

        def note(name, budget, logits, target):
            right = (logits.argmax(-1) == target).double().mean().item()
            cost = F.cross_entropy(logits.transpose(1, 2), target).item()
            found.setdefault((name, budget), []).append(
                (right, cost / math.log(2)))

        note("full attention", streams.shape[1], exact, tokens[:, -size:])
        count = len(streams)
        for at in range(0, len(rows), count):
            _, scheme, budget = rows[at]
            note(scheme.name, budget, logits[at : at + count],
                 target[at : at + count])
    return dict(
        depths=list(depths), streams=len(streams),
        runs=[dict(name=name, budget=budget,
                   recall=round(sum(r for r, _ in each) / len(each), 4),
                   bits=round(sum(b for _, b in each) / len(each), 4),
                   by_depth=[round(r, 4) for r, _ in each])
              for (name, budget), each in found.items()])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--streams", type=pathlib.Path, required=True)
    parser.add_argument("--contexts", type=int, nargs="+", default=[4096, 16384])
    parser.add_argument("--budgets", type=int, nargs="+",
                        default=[128, 256, 512, 1024])
    parser.add_argument("--needles", type=int, default=4096,
                        help="the longest context to look for needles in")
    parser.add_argument("--count", type=int, default=8, help="of streams")
    parser.add_argument("--eager", action="store_true", help="without graphs")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    global EAGER
    EAGER = options.eager
    raw = options.streams.read_bytes()
    if options.verify:
        worst = verify(options.model, raw[STREAM : STREAM + 400])
        for name, difference in worst.items():
            print(f"{name}: {difference:.1e}")
        sys.exit(max(worst.values()) > 1e-9)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = TinyLM(options.model).to(device)
    streams = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    streams = streams.view(-1, STREAM).long().to(device)[: options.count]
    name, driver = card()
    policy = Policy()
    document = dict(
        schema="ladle-slake-reference-1", model=model.config["name"],
        date=datetime.date.today().isoformat(), device=name, driver=driver,
        torch=torch.__version__, policy=dataclasses.asdict(policy),
        schemes=[dataclasses.asdict(s) for s in SCHEMES], contexts=[])
    for length in options.contexts:
        cut = streams[:, :length]
        needles = dict(runs=[])
        if length <= options.needles:
            needles = needles_of(model, cut, options.budgets, policy)
        runs = bits_of(model, cut, options.budgets, policy)
        for run in runs:
            needle = [n for n in needles["runs"]
                      if (n["name"], n["budget"]) == (run["name"], run["budget"])]
            print(length, run["budget"], run["name"],
                  f"{run['bits']:.4f} ± {run['error']:.4f}",
                  *(f"needle {n['recall']:.3f}" for n in needle), flush=True)
        document["contexts"].append(dict(context=length, positions=length // 2,
                                         runs=runs, needles=needles))
        if options.out:
            write_json(options.out, document)


if __name__ == "__main__":
    main()
