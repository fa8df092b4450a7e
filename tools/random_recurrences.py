# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recurrences that nobody has published, for tools/random_checks.py.

What one draws stays in bounds, and none of its answers is a difference of
nearly equal numbers: keys have the length 1, strengths of deltas add up to
less than 1, and sums are of squares.
"""

import re

OF_RANKS = "mean(square(read(S, p)))"


class Recurrence:
    def __init__(self, draw):
        self.draw = draw
        self.tokens, self.lines, self.has_carry = {}, [], False
        self.heads = draw.choice([1, 2, 3])
        self.sizes = {"G": draw.choice([1, self.heads]), "H": self.heads,
                      "R": draw.choice([2, 3]), "Dk": draw.randint(4, 40),
                      "Dv": draw.randint(4, 40)}
        self.has_ranks = draw.random() < 0.4
        self.rank = ", R" if self.has_ranks else ""
        self.states = ["S"] if draw.random() < 0.8 else ["S", "T"]

    def token(self, name, shape):
        self.tokens[name] = shape
        return name

    def decay(self, state):
        factor = self.draw.choice([
            None, "0.9", f"sigmoid({self.token('a', 'H')} + 1)",
            f"exp(-exp({self.token('w', 'H, Dk')} - 1))",
            f"exp(-softplus({self.token('a', 'H')}))", "sigmoid(before + 1)"])
        if factor and "before" in factor:
            self.has_carry = True
        if factor:
            self.lines.append(f"{state} = decay({state}, {factor})")

    def strength(self):
        """Of a delta, less than a half, shared by ranks."""
        choices = ["0.4", f"0.4 * sigmoid({self.token('b', 'H')})",
                   f"sigmoid({self.token('e', f'H{self.rank}, Dv')}) * 0.4",
                   f"0.2 / (1 + exp({self.token('e', f'H{self.rank}, Dv')}))"]
        if self.has_ranks:
            choices.append(f"0.4 * sigmoid({self.token('c', 'H, R')})")
        return self.draw.choice(choices) + (" / R" if self.has_ranks else "")

    def write(self, state, number):
        heads = self.draw.choice("GH")
        key = f"l2norm({self.token(f'k{number}', f'{heads}{self.rank}, Dk')})"
        value = self.token(f"v{number}", f"H{self.rank}, Dv")
        form = self.draw.choice(["delta", "delta", "delta", "sum", "other"])
        if form == "sum":
            value = f"{value} * {self.strength()}"
        elif form == "other" and len(self.states) > 1:
            other = next(each for each in self.states if each != state)
            value = f"{self.strength()} * ({value} + 0.3 * read({other}, {key}))"
        elif self.has_ranks and self.draw.random() < 0.3:
            numbers = f"sigmoid({self.token('c', 'H, R')})"
            found = f"sum({numbers} * read({state}, {key}), R) / R"
            value = f"0.4 * ({value} - {found}) / R"
        else:
            value = f"{self.strength()} * ({value} - read({state}, {key}))"
        self.lines.append(f"{state} = write({state}, {key}, {value})")

    def outputs(self):
        query = self.token("q", "G, Dk")
        read = " + ".join(f"read({state}, {query})" for state in self.states)
        gate = self.token("g", "H, Dv")
        choices = [("[H, Dv]", read), ("[H, Dv]", f"({read}) * silu({gate})"),
                   ("[H, Dv]", f"rmsnorm({read} + {gate})"),
                   ("[H]", f"mean(square({read}))"),
                   ("[H, Dv]", f"{gate} + 0.1"),
                   ("[H, Dk]", f"{query} * mean(square({read}))")]
        if self.has_ranks:
            self.token("p", "H, R, Dk")
            choices += [("[H, R, Dv]", "read(S, p)"), ("[H, R]", OF_RANKS),
                        ("[H, Dv]", "sum(read(S, p), R)"), ("[H]", f"sum({OF_RANKS})"),
                        ("[H, R, Dv]", f"read(S, p) * rsqrt({OF_RANKS} + 1)")]
        chosen = self.draw.sample(choices, self.draw.randint(1, 3))
        if all("read" not in value for _, value in chosen) or len(self.states) > 1:
            chosen.append(choices[0])
        types = [self.draw.choice(["f32", "f32", "bf16", "f16"]) for _ in chosen]
        return [f"out y{i}{shape} : {of} = {value}"
                for i, ((shape, value), of) in enumerate(zip(chosen, types))]

    def source(self):
        draw = self.draw
        for state in self.states:
            for number in range(draw.choice([1, 1, 2])):
                if number == 0 or draw.random() < 0.5:
                    self.decay(state)
                self.write(state, f"{state}{number}".lower())
        body = self.lines + self.outputs()
        text = "\n".join(body)
        declared = [f"state {state}[H, Dk, Dv] : {draw.choice(['f32', 'bf16'])}"
                    for state in self.states]
        if self.has_carry:
            declared.append("carry before[H] : f32")
            declared.append(f"token {self.token('u', 'H')}[H] : f32")
            body.insert(0, "before = 0.5 * before + u")
        tokens = [f"token {name}[{shape}] : {draw.choice(['f32', 'bf16', 'f16'])}"
                  for name, shape in self.tokens.items()
                  if name != "u" and uses(text, name)]
        body = tokens + declared + body
        sizes = {name: size for name, size in self.sizes.items()
                 if uses("\n".join(body), name)}
        preset = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        return "\n  ".join([f"recurrence drawn({', '.join(sizes)}) {{",
                            f'preset "p" {{ {preset} }}', *body]) + "\n}\n"


def uses(text, name):
    return re.search(rf"\b{name}\b", text)


def draw_recurrence(draw):
    """The text of a `.ladle` file with one recurrence and a preset "p"."""
    return Recurrence(draw).source()
