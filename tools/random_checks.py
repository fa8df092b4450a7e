#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random cases of `ladle check`, at shapes that no planned case has.

tools/random_checks.py --cases 1000 --seed 7

Recurrences, attentions over pages and those with bounded caches, decoded by
the kernels of a GPU on the emulated one that tests use, or with --gpu on a real
one; and recurrences that are drawn themselves, on the CPU, too. Rings of
several sections, blocks that share a head, few recent tokens, pages and forks of
any sizes are drawn together. A failure is printed with the command that repeats
it. The same seed draws the same cases.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import itertools
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time

import random_recurrences

ROOT = pathlib.Path(__file__).resolve().parent.parent
OTHERS = "../tests/tools/Inputs"  # shapes that no example has
DRAWN = "ladle-drawn-"  # files of recurrences, which stay if a case fails
MAYBE = (None, None, 1)  # a flag of a case, set in a third of them


def sizes(**given):
    return [word for name, value in given.items()
            for word in ("--set", f"{name}={value}")]


def attention(draw):
    """(file, sizes, environment, cases)"""
    file = draw.choice(["mac", "mac", f"{OTHERS}/two_bands", "exact_attention"])
    reuses, is_gated = file != "exact_attention", file.endswith("two_bands")
    heads = draw.choice([1, 1, 2, 3])
    shape = sizes(Hq=heads * draw.choice([1, 2, 3, 4, 8]), Hkv=heads,
                  D=draw.choice([32, 64, 96, 128]))
    environment, cases = device_of(draw), []
    if draw.random() < 0.3:
        environment["LADLE_ROWS_IN_HALVES"] = "1"
    has_sinks = reuses and draw.random() < 0.4
    if has_sinks:
        shape += sizes(sinks=1)
    for _ in range(3):
        case = {"type": draw.choice(["bf16", "f16", "f32"]),
                "page": draw.choice([1, 16, 64]),
                "tokens": draw.randint(3, 10),
                "prompt": draw.choice([0, 1, 5, 63, 130, 260, 400, 700, 1100]),
                "batch_invariant": draw.choice(MAYBE),
                "guesses": draw.choice([None, 1, 4, 9]),
                "seed": draw.randint(1, 10**6)}
        if reuses:
            band = draw.choice([0, 1, 4, 16, 33])
            case |= {"summaries": draw.choice(["f32", "f32", "bf16"]),
                     "tau": draw.choice([0, 0.1, 0.3, 0.45, 0.7]),
                     "window": draw.choice([1, 7, 64, 128, 129, 300, 513, 1300]),
                     "band": band,
                     "sinks": draw.choice([1, 5]) if has_sinks else None,
                     "max_gap": draw.choice([None, None, 3, 140]),
                     "max_chain": draw.choice([None, None, 1, 3]),
                     "skip": draw.choice([None, None, 2, 50])}
            if is_gated:
                case |= {"drift": draw.choice([0, 0.01, 0.05, 0.3]),
                         "wide_band": band + draw.choice([0, 8, 40]),
                         "wide_gap": draw.choice([0, 2, 100])}
        cases.append(case)
    return file, shape, environment, cases


def bounded(draw):
    file = draw.choice(["slake", "slake", "cake", "h2o", "snapkv",
                        "streaming_llm", "pyramid_kv",
                        "edge_infinite/edge_infinite"])
    heads = draw.choice([1, 2])
    shape = sizes(Hq=heads * draw.choice([1, 2, 4, 8]), Hkv=heads,
                  D=draw.choice([32, 64, 128]))
    folds, judges = "edge" in file, file in ("slake", "cake")
    if folds:
        shape += sizes(R=16)
    else:
        shape += sizes(budget=draw.choice([24, 40, 64, 100, 257, 600]))
    if judges:
        shape += sizes(sinks=draw.choice([0, 1, 4]),
                       queries=draw.choice([1, 4, 8]),
                       pool=draw.choice([1, 5, 9]))
    if not folds and file != "streaming_llm":
        shape += sizes(recent=draw.choice([1, 2, 8, 16]))
    cases = []
    for _ in range(2):
        case = {"type": draw.choice(["bf16", "f16"]),
                "tokens": draw.randint(3, 60),
                "prompt": draw.choice([0, 1, 20, 100, 200]),
                "later": draw.choice([None, 7, 40]),
                "seed": draw.randint(1, 10**6)}
        if folds:
            case["segments"] = (f"{draw.choice([0, 1, 4, 20])}:"
                                f"{draw.choice([0, 1, 8, 33])}:"
                                f"{draw.choice([1, 2, 16, 40])}")
        elif judges and draw.random() < 0.3:
            case["lowered"] = draw.randint(21, 24)
        cases.append(case)
    return file, shape, device_of(draw), cases


def recurrence(draw):
    file, names = draw.choice([
        ("gated_delta_net", ("Dk", "Dv")), ("gated_delta_rule", ("Dk", "Dv")),
        ("kda", ("Dk", "Dv")), ("mamba2", ("N", "P")), ("gla", ("Dk", "Dv")),
        ("rwkv7", ()), ("delta_net", ("Dk", "Dv")), ("mamba3", ()),
        ("gdn2", ("Dk", "Dv")), ("rwkv6", ("Dk", "Dv")),
        ("retnet", ("Dk", "Dv")),
        (f"{OTHERS}/narrow_ranks", ("R", "Dk", "Dv")),
        (f"{OTHERS}/decay_before_another", ("Dk", "Dv")),
        (f"{OTHERS}/scaled_by_carry", ("D",)), (f"{OTHERS}/two_deltas", ("D",)),
        (f"{OTHERS}/channel_strengths", ("Dk", "Dv")),
        (f"{OTHERS}/rank_strengths", ("R", "Dk", "Dv")),
        (f"{OTHERS}/reduced_reads", ("R", "Dk", "Dv"))])
    heads = dict.fromkeys(["kda", "gla", "delta_net", "rwkv6", "retnet"], {"H": 1})
    heads |= {"gated_delta_net": {"Hk": 1, "Hv": 2}, "gdn2": {"Hk": 1, "Hv": 2},
              "gated_delta_rule": {"Hk": 1, "Hv": 2}, "mamba2": {"H": 4, "G": 1}}
    shape = ["--preset", "tiny"]
    if names:
        shape = sizes(**heads.get(file, {}),
                      **{name: draw.choice([2, 3, 4] if name == "R" else
                                           [4, 6, 20, 32, 48, 64, 128, 256]
                                           if name == "Dk" else
                                           [4, 6, 20, 32, 48, 64, 128])
                         for name in names})
    return file, shape, {}, [decoding(draw) for _ in range(2)]


def invented(draw):
    text = random_recurrences.draw_recurrence(draw)
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    file = pathlib.Path(tempfile.gettempdir()) / f"{DRAWN}{name}.ladle"
    file.write_text(text)
    return file, ["--preset", "p"], {}, [decoding(draw)]


def decoding(draw):
    """A case of a recurrence."""
    drafts, m = draw.choice([1, 2, 3, 4, 8, 16]), draw.randint(1, 24)
    page = draw.choice([None, None, 8, 16])
    entries = max(m + drafts, 2 * drafts) + draw.choice([0, 0, 3, 40])
    if page:
        entries = (entries + page - 1) // page * page
    route = draw.choice(["inner", "inner", "outer", "kv_only", "recurrent",
                         "adjoint"])
    case = {"route": route, "state": draw.choice(["f32", "bf16", "f16"]),
            "entries": draw.choice(["f32", "bf16", "f16"]),
            "outputs": draw.choice(["f32", "f32", "bf16"]),
            "L": entries,
            "m": m, "page": page, "drafts": drafts,
            "trees": draw.choice([None, 1]), "rows": draw.randint(1, 5),
            "tokens": draw.randint(10, 50),
            "prompts": draw.choice([None, None, 7, 70]),
            "chunk": draw.choice([None, None, 16, 33]),
            "batch": draw.choice([None, None, 1]),
            "padding": draw.choice([None, None, 32]),
            "takes_states": draw.choice(MAYBE) if page else None,
            "forks": draw.choice([None, 1]) if page else None,
            "seed": draw.randint(1, 10**6)}
    for flag in ("staggered", "moves", "pads", "resets", "packed"):
        case[flag] = draw.choice(MAYBE)
    if route == "kv_only" and page:
        case["crossover"] = draw.choice([None, 5, 11])
    return case


def device_of(draw):
    """How many multiprocessors the emulated device has."""
    if draw.random() < 0.5:
        return {}
    count = draw.choice([1, 2, 8, 32, 64])
    return {"LADLE_EMULATED_MULTIPROCESSORS": str(count)}


KINDS = {"attention": attention, "bounded": bounded, "recurrence": recurrence,
         "invented": invented}


def check(ladle, arguments, environment):
    """"ok", "refused" or "failed", and what was printed."""
    done = subprocess.run([ladle, "check", *arguments], capture_output=True,
                          env=os.environ | environment, text=True, check=False)
    printed = done.stdout + done.stderr
    if done.returncode == 0:
        return "ok", printed
    # What MLIR's verifier says is a fault of the compiler, and no refusal.
    is_refused = (done.returncode in (1, 2) and "FAILED" not in printed
                  and ("error:" in printed or " refused" in printed)
                  and not re.search(r"error: '[a-z_]+\.[a-z_.]+' op ", printed))
    return "refused" if is_refused else "failed", printed


def drawn(options, emulated, cache):
    """The commands of a seed: (arguments, environment), without an end."""
    draw = random.Random(options.seed)
    while True:
        file, shape, environment, cases = KINDS[draw.choice(options.kinds)](draw)
        if not options.gpu:
            environment |= {"LADLE_CUDA": str(emulated),
                            "LADLE_NVRTC": str(emulated)}
        path = (file if isinstance(file, pathlib.Path)
                else ROOT / f"examples/{file}.ladle")
        target = draw.choice(["cpu", "cuda"]) if path == file else "cuda"
        for case in cases:
            text = ",".join(f"{key}={value}" for key, value in case.items()
                            if value is not None)
            yield ([str(path), *shape, "--target", target, "--case", text],
                   environment | {"LADLE_CACHE_DIR": cache})


def run(ladle, arguments, environment):
    verdict, printed = check(ladle, arguments, environment)
    if verdict == "failed":
        prefix = [f"{k}={v}" for k, v in environment.items()
                  if k != "LADLE_CACHE_DIR"]
        command = shlex.join([*prefix, str(ladle), "check", *arguments])
        print(f"{printed.strip()}\nrepeat with: {command}", flush=True)
    return verdict


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ladle", type=pathlib.Path,
                        default=ROOT / "build/dev/bin/ladle")
    parser.add_argument("--gpu", action="store_true", help="a real one")
    parser.add_argument("--cases", type=int, default=40, help="how many")
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="to begin none after")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--kinds", nargs="+", choices=KINDS,
                        default=list(KINDS))
    options = parser.parse_args()
    emulated = options.ladle.parent.parent / "lib/libladle_emulated_gpu.so"
    if not options.gpu and not emulated.exists():
        sys.exit(f"error: there is no {emulated}\n"
                 "note: cmake --build --preset dev builds it")
    counts = collections.Counter()
    end = time.monotonic() + options.seconds

    def run_in_time(command):
        verdict = (run(options.ladle, *command) if time.monotonic() < end
                   else "not begun")
        file = pathlib.Path(command[0][0])
        if verdict != "failed" and file.name.startswith(DRAWN):
            file.unlink()
        return verdict

    with (tempfile.TemporaryDirectory() as cache,
          concurrent.futures.ThreadPoolExecutor(options.jobs) as threads):
        commands = itertools.islice(drawn(options, emulated, cache),
                                    options.cases)
        counts.update(threads.map(run_in_time, commands))
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    # Without a device, say, all are refused.
    sys.exit(counts["failed"] > 0 or counts["ok"] == 0)


if __name__ == "__main__":
    main()
