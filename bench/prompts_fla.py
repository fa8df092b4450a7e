#!/usr/bin/env python3
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times prompts in the chunked kernels of flash-linear-attention and mamba-ssm.

    python3 bench/prompts_fla.py [--tokens 2048] [--batch 1,8] [--json FILE]

The shapes are those of `ladle bench FILE --preset NAME --prompts 2048`: norms,
gates and the bonus of the file are part of a call where a package has them in
its own kernels. A call starts from f32 states and returns them. Each is
captured in a CUDA graph, so that what a host launches does not count; a figure
is the median of `--samples` replays of at least 20 calls. Needs PyTorch, Triton,
fla-core and mamba-ssm (its Triton kernels alone); a package that is not there is
left out with its reason.
"""

import argparse
import datetime
import json
import statistics
import sys

import torch

KINDS = {}


def kind(name):
    return lambda build: KINDS.setdefault(name, build)


def bf16(*shape, scale=1.0):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * scale


def f32(*shape, scale=1.0):
    return torch.randn(*shape, device="cuda", dtype=torch.float32) * scale


@kind("gated_delta_net, qwen3-next")
def gated_delta_net(batch, tokens, keys=16, heads=32, dk=128, dv=128):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k = bf16(batch, tokens, keys, dk), bf16(batch, tokens, keys, dk)
    v = bf16(batch, tokens, heads, dv)
    a, b = bf16(batch, tokens, heads), bf16(batch, tokens, heads)
    state = f32(batch, heads, dk, dv, scale=0.1)
    a_log, bias = f32(heads), f32(heads)
    return lambda: chunk_gated_delta_rule(
        q, k, v, a, b, initial_state=state, output_final_state=True,
        use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
        use_gate_in_kernel=True, A_log=a_log, dt_bias=bias)


@kind("kda, kimi-linear")
def kda(batch, tokens, heads=32, dk=128, dv=128):
    from fla.ops.kda import chunk_kda

    q, k = bf16(batch, tokens, heads, dk), bf16(batch, tokens, heads, dk)
    v = bf16(batch, tokens, heads, dv)
    a, b = bf16(batch, tokens, heads, dk), bf16(batch, tokens, heads)
    state = f32(batch, heads, dk, dv, scale=0.1)
    a_log, bias = f32(heads), f32(heads * dk)
    return lambda: chunk_kda(
        q, k, v, a, b, initial_state=state, output_final_state=True,
        use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
        use_gate_in_kernel=True, A_log=a_log, dt_bias=bias)


@kind("mamba2, nemotron-3-super")
def mamba2(batch, tokens, heads=128, groups=8, state_size=128, values=64):
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    x, z = bf16(batch, tokens, heads, values), bf16(batch, tokens, heads, values)
    b, c = bf16(batch, tokens, groups, state_size), bf16(batch, tokens, groups, state_size)
    dt = bf16(batch, tokens, heads)
    a = -torch.exp(f32(heads))
    bias, d = f32(heads), f32(heads)
    state = f32(batch, heads, values, state_size, scale=0.1)
    # 128 tokens a chunk are what config.json of the model says.
    return lambda: mamba_chunk_scan_combined(
        x, dt, a, b, c, 128, D=d, z=z, dt_bias=bias, initial_states=state,
        dt_softplus=True, return_final_states=True)


@torch.no_grad()
def microseconds(call, samples):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    taken = []
    for _ in range(samples + 1):
        begin.record()
        for _ in range(20):
            graph.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) * 1000 / 20)
    return statistics.median(taken[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--only", help="kinds whose name holds this")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    figures = []
    for name, build in KINDS.items():
        if arguments.only and arguments.only not in name:
            continue
        for batch in map(int, arguments.batch.split(",")):
            try:
                taken = microseconds(build(batch, arguments.tokens), arguments.samples)
            except Exception as error:  # a package that is missing, or refuses a shape
                print(f"{name}, {batch} prompts: left out: {error}", file=sys.stderr)
                continue
            figures.append({"name": name, "batch": batch, "tokens": arguments.tokens,
                            "us_a_call": taken,
                            "ns_a_token": taken * 1000 / (batch * arguments.tokens)})
            print(f"{name}, {batch} prompts: {taken:.1f} us, "
                  f"{figures[-1]['ns_a_token']:.1f} ns a token")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"schema": "ladle-peer-prompts-1",
                       "device": torch.cuda.get_device_name(),
                       "date": datetime.date.today().isoformat(),
                       "torch": torch.__version__,
                       "command": " ".join(["python3", *sys.argv]),
                       "figures": figures}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
