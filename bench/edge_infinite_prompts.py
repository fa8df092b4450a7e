#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time to the first token and peak memory of prompts, against their length.

edge_infinite_prompts.py --machine TEXT --out FILE.json

Emits the attention as an object file, links examples/edge_infinite/main.c with
it, and answers a prompt of each length in a process of its own. Exact attention
is the same attention with a segment that is longer than the prompt: it is never
folded, and all tokens are kept.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/edge_infinite"
FOUND = re.compile(r"([0-9.]+) seconds to the last answer, ([0-9.]+) of a "
                   r"processor, (\d+) kB")


def build(ladle, folder, settings):
    given = [part for name, value in settings.items()
             for part in ("--set", f"{name}={value}")]
    subprocess.run([ladle, "emit", EXAMPLE / "edge_infinite.ladle", "--stage",
                    "object", "-o", folder, *given], check=True)
    program = pathlib.Path(folder) / "decode"
    subprocess.run(["cc", "-O2", f"-I{folder}", EXAMPLE / "main.c",
                    f"{folder}/edge_infinite.o", "-lm", "-o", program],
                   check=True)
    return program


def measure(program, tokens, times):
    """The best times of several runs, and the most memory. Where other work
    shares the processor, what counts is the time that the process had it."""
    seconds, busy, peak = [], [], 0
    for _ in range(times):
        said = subprocess.run([program, "--prompt", str(tokens)], check=True,
                              capture_output=True, text=True).stdout
        found = FOUND.search(said)
        seconds.append(float(found[1]))
        busy.append(float(found[2]))
        peak = max(peak, int(found[3]) * 1024)
    return dict(tokens=tokens, seconds=min(seconds), busy_seconds=min(busy),
                peak_bytes=peak)


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ladle", default="ladle")
    parser.add_argument("--machine", required=True)
    parser.add_argument("--lengths", type=int, nargs="+",
                        default=[1024, 4096, 8192, 16384, 65536])
    parser.add_argument("--exact-lengths", type=int, nargs="*", default=None,
                        help="of exact attention (default: the same)")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    document = dict(
        schema="ladle-edge-infinite-prompts-1", machine=options.machine,
        date=datetime.date.today().isoformat(),
        command="bench/" + " ".join(
            f"'{a}'" if " " in a else a
            for a in [pathlib.Path(sys.argv[0]).name] + sys.argv[1:]), runs=[])
    exact = (options.lengths if options.exact_lengths is None
             else options.exact_lengths)
    with tempfile.TemporaryDirectory() as folder:
        program = build(options.ladle, folder, {})
        for tokens in options.lengths:
            run = measure(program, tokens, options.times)
            document["runs"].append(dict(name="EdgeInfinite", **run))
            print(document["runs"][-1], flush=True)
            write(options.out, document)
    for tokens in exact:
        with tempfile.TemporaryDirectory() as folder:
            program = build(options.ladle, folder,
                            dict(sinks=0, window=0, segment=tokens + 1))
            run = measure(program, tokens, options.times if tokens < 16384 else 1)
            document["runs"].append(dict(name="exact attention", **run))
            print(document["runs"][-1], flush=True)
            write(options.out, document)


if __name__ == "__main__":
    main()
