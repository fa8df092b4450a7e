# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SLAKE for one sequence over lists of tokens, as its equations read.

Evicted tokens are kept, and their Taylor weights are summed one by one: no
state is folded. What slake_reference.py is compared with.
"""

import torch
import torch.nn.functional as F


class Lists:
    """A layer's head as the declaration has it."""

    def __init__(self, policy, scheme, scale):
        self.policy, self.scheme, self.scale = policy, scheme, scale
        self.kept = []  # [k, v, weights of the queries that saw it]
        self.gone = []  # (k, v)

    def pooled_salience(self):
        each = []
        for _, _, weights in self.kept:
            last = weights[-self.policy.queries :]
            mean = sum(last) / max(1, len(last))
            spread = sum((w - mean) ** 2 for w in last) / max(1, len(last))
            each.append(mean + self.scheme.variance * spread)
        half = self.policy.pool // 2
        return [sum(c) / len(c) for c in (
            each[max(0, i - half) : i + half + 1] for i in range(len(each)))]

    def shrink(self, budget, salience=None):
        """Evicts down to a budget, all by one salience."""
        s = salience or self.pooled_salience()
        end = len(self.kept) - self.policy.recent
        order = sorted(range(self.policy.sinks, max(self.policy.sinks, end)),
                       key=lambda i: (s[i], i))
        lost = set(order[: max(0, len(self.kept) - budget)])
        self.gone += [self.kept[i][:2] for i in sorted(lost)]
        self.kept = [e for i, e in enumerate(self.kept) if i not in lost]

    def weights(self, q):
        s = torch.stack([k @ q for k, _, _ in self.kept]) * self.scale
        return s.softmax(0)

    def answer(self, q):
        s = torch.stack([k @ q for k, _, _ in self.kept]) * self.scale
        values = torch.stack([v for _, v, _ in self.kept])
        numerator, denominator = s.exp() @ values, s.exp().sum()
        if self.gone and self.scheme.taylor:
            keys = torch.stack([k for k, _ in self.gone])
            lost = torch.stack([v for _, v in self.gone])
            center = keys.mean(0)
            mu = self.scale * center @ q
            rho = (keys - center).square().sum(1).mean().sqrt()
            weight = 1 + self.scale * keys @ q - mu
            if 0 < self.scheme.limit < q.norm() * rho * self.scale:
                weight = torch.ones_like(weight)
            numerator = numerator + mu.exp() * (weight @ lost)
            denominator = denominator + mu.exp() * len(keys)
        return numerator / denominator


@torch.no_grad()
def decode_lists(model, tokens, prompt, scheme, budgets, policy):
    heads, group = model.config["n_kv"], model.config["n_q"] // model.config["n_kv"]
    scale = model.config["head_dim"] ** -0.5
    state = [[Lists(policy, scheme, scale) for _ in range(heads)]
             for _ in range(model.layers)]
    found = []
    for t, token in enumerate(tokens.tolist()):
        x = F.embedding(torch.tensor([[token]]), model.weight("embed.weight"))
        cos, sin = model.angles(t, 1, x)
        for layer in range(model.layers):
            q, k, v = model.qkv(layer, x, cos, sin)
            answers = []
            for h, lists in enumerate(state[layer]):
                lists.kept.append([k[0, h, 0], v[0, h, 0], []])
                if t >= prompt and len(lists.kept) > budgets[layer]:
                    lists.shrink(budgets[layer])
                mine = q[0, h * group : (h + 1) * group, 0]
                answers += [lists.answer(one) for one in mine]
                weights = sum(lists.weights(one) for one in mine)
                for entry, weight in zip(lists.kept, weights.tolist()):
                    entry[2].append(weight)
                if t == prompt - 1:
                    lists.shrink(budgets[layer])
            x = model.after(layer, x, torch.stack(answers)[None, :, None])
        if t >= prompt:
            found.append(model.head(x)[0, 0])
    return torch.stack(found)
