//===- AttentionPasses.td - attentions to kernels ---------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of attentions, in alphabetical order.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_ATTENTION_PASSES
#define LADLE_ATTENTION_PASSES

include "mlir/Pass/PassBase.td"

def BuildBoundedAttention
    : Pass<"ladle-build-bounded-attention", "::mlir::ModuleOp"> {
  let summary = "build the steps of attentions whose caches give up tokens";
  let description = [{
    Behind each `ladle.attention` with a bounded cache, builds a
    `ladle.attention_step` that decodes, in which the cache and the memory are
    stores. Where tokens are evicted, another one answers a token of a prompt,
    by all tokens before it (`prefill_select`): which of them are kept is chosen
    after the last. A segmented cache answers prompts with the step that decodes,
    and a window of one token.

    ```mlir
    %next = ladle.cache_token %KV, %k, %v : ...
    %kept, %folded = ladle.evict %next into %T {budget = 1024 : i64, ...} : ...
    %exact = ladle.softmax %q, %kept scale 1.25e-01 : ...
    %evicted = ladle.taylor %q, %folded scale 1.25e-01 limit 0.0 : ...
    %all = ladle.merge %exact, %evicted : ...
    %o = ladle.normalize %all : ...
    %seen = ladle.observe %q, %kept scale 1.25e-01 : ...
    ```
    becomes
    ```mlir
    ladle.append %KV, %k, %v : ...
    ladle.evict_from %KV into %T {budget = 1024 : i64, ...} : ...
    %exact = ladle.attend %q, %KV from start to end scale 1.25e-01 : ...
    %evicted = ladle.taylor %q, %T scale 1.25e-01 limit 0.0 : ...
    %all = ladle.merge %exact, %evicted : ...
    %o = ladle.normalize %all : ...
    ladle.note_weights %q, %KV scale 1.25e-01 : ...
    ```
  }];
}

def ConvertLadleAttentionToCPU
    : Pass<"convert-ladle-attention-to-cpu", "::mlir::ModuleOp"> {
  let summary = "lower steps of attentions to functions over memrefs";
  let description = [{
    A `ladle.attention_step` becomes three functions, which the runtime calls
    one after another (runtime/AttentionKernels.h says with what):

    - `<step>_find`, a row and a range of heads: the match of each head, and
      the token at which what is attended to anew begins;
    - `<step>_attend`, a row, a head of the cache and a piece of its tokens: the
      summaries of the piece for all heads of the query that share it, in blocks
      of 32 tokens. A tile of heads and keys has 16 scores, the lanes of a
      register, so that each key and value is loaded once for all heads;
    - `<step>_finish`, a row and a head of the cache: the pieces of each
      `ladle.attend` merged, then what the step does with its summaries.

    Pieces are any parts of what a `ladle.attend` covers, so that the runtime
    can spread a long history over threads. `ladle.append` is the runtime's: the
    cache holds the token before the first function is called.

    A step over a bounded cache becomes one function, `<step>`, which does all of
    it for a row and a head of the cache (runtime/BoundedKernels.h): the token
    enters the cache, what has to leave is folded or evicted, and then the token
    is answered. A product of a matrix and a vector, a `ladle.sum` of a product of
    broadcasts, is a loop over the rows of the matrix.

    ```mlir
    %newest = ladle.attend %q, %KV from band to end scale 1.25e-01 : ...
    ```
    becomes
    ```mlir
    %scores = arith.select %valid, %scaled, %never : vector<16xi1>, vector<16xf32>
    ...
    %shifted = arith.subf %scores, %base : vector<16xf32>
    %weights = math.exp %shifted : vector<16xf32>
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
    "::mlir::x86vector::X86VectorDialect"];
  let options = [
    Option<"lanes", "lanes", "int64_t", "16",
           "f32 numbers in a register of the processor">,
    Option<"dotsBF16", "dots-bf16", "bool", "false",
           "Multiply and add pairs of bf16, as AVX512-BF16 does">,
    Option<"asksAgain", "asks-again", "bool", "false",
           "Ask for keys and values again shortly before they are used">
  ];
}

def ConvertLadleAttentionToGPU
    : Pass<"convert-ladle-attention-to-gpu", "::mlir::ModuleOp"> {
  let summary = "lower steps of attentions to GPU kernels";
  let description = [{
    A `ladle.attention_step` becomes four kernels in a `gpu.module`, which run
    one after another (passes/gpu/AttentionInfo.h says what they take):

    - `<step>_find`: puts the token into its page, and looks for the nearest
      query in a section of a head's ring. `<step>_append` without a match;
    - `<step>_plan`, one block: decides about matches, and cuts what all rows
      and heads attend to into one list of pieces;
    - `<step>_attend`, any number of blocks: the summaries of pieces, for up to
      8 heads of the query that share keys and values, which stream through
      shared memory. Caches of bf16 or f16 are multiplied on tensor cores;
    - `<step>_finish`, a row and a head: the pieces merged in their order, then
      what the step does with its summaries.

    Of few rows blocks find their pieces by themselves: without a match
    `<step>_attend` then needs neither a plan nor a finish, with one `<step>_few`
    takes the place of the plan and of `<step>_attend`, and `<step>_finish_slices`
    may take that of `<step>_finish`: blocks of a cluster have slices of the
    elements of a head's values.

    A step without a match also answers prompts, by three kernels: `<step>_append`
    puts all tokens into their pages; a block of `<step>_attend` takes a tile of a
    prompt's queries, the heads that share keys among them, and goes through the
    keys before them once; `<step>_finish` leaves what later tokens look at beside
    summaries.

    Lengths, matches and whether a ring may be used are read on the device, and
    where pieces end depends on a row alone.

    A step over a bounded cache becomes one kernel, `<step>`, in which a cluster
    of blocks has a head of the cache of a row (passes/gpu/BoundedInfo.h): they
    share its keys and the rows of its memory, and merge what they find through
    their shared memories. `ladle.least_blocks` on the kernel is how many have
    room for what they note of their keys. Prompts have kernels of their own
    (passes/gpu/BoundedPrompts.h, passes/gpu/SegmentPrompts.h) where these know
    what is answered; those of a segmented cache are otherwise answered by the
    kernel of a step, a token of each row at a time.

    ```mlir
    %newest = ladle.attend %q, %KV from band to end scale 1.25e-01 : ...
    ```
    becomes
    ```mlir
    %scores = nvgpu.mma.sync(%keys, %query, %zero) {mmaShape = [16, 8, 16]} : ...
    %more = arith.maxnumf %most, %score : f32
    %weight = math.exp %shifted : f32
    %values = nvgpu.mma.sync(%block, %weights, %before) {mmaShape = [16, 8, 16]} : ...
    ```
  }];
  let options = [
    Option<"shared", "shared", "int64_t", /*default=*/"0",
           "bytes of shared memory that a block may have; 0: as on Hopper">,
    Option<"cluster", "cluster", "int64_t", /*default=*/"8",
           "blocks of a cluster at the most; 1 where there are none">];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::nvgpu::NVGPUDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def FuseMatchAmendComplete
    : Pass<"ladle-fuse-match-amend-complete", "::mlir::ModuleOp"> {
  let summary = "turn an attention into one plan a form";
  let description = [{
    Behind each `ladle.attention`, builds a `ladle.attention_step` that decodes,
    and, if it reuses summaries, one that answers the tokens of a prompt and
    fills the rings (`prefill_amend`). A plan first attends to the pieces that
    wait for no match, then looks for one, takes what it left, attends to what
    comes after that, and leaves the summary for later tokens.

    What is attended to anew is split where that summary ends, at m − r: the
    older piece, merged with what was reused, is the new summary, and the newer
    one completes the output. Nothing is subtracted. Where no query matches, the
    reused summary is empty and the older piece begins at the sinks: the same
    plan is then exact attention.

    ```mlir
    %next = ladle.cache_token %KV, %k, %v : ...
    %prefix = ladle.match %q_pre {tau = 4.5e-01 : f64, window = 1024 : i64} : ...
    %all = ladle.softmax %q, %next scale 1.25e-01 : ...
    %done = ladle.complete %prefix, %all {band = 256 : i64} : ...
    %o = ladle.normalize %done : ...
    ```
    becomes
    ```mlir
    ladle.append %KV, %k, %v : ...
    %newest = ladle.attend %q, %KV from band to end scale 1.25e-01 : ...
    %match = ladle.find %q_pre, %ring {tau = 4.5e-01 : f64, ...} : ...
    %reused = ladle.reuse %ring, %match part 0 : ...
    %fresh = ladle.attend %q, %KV from sinks to band after %match ... : ...
    %summary = ladle.merge %reused, %fresh : ...
    ladle.store_summary %q_pre, %summary in %ring after %match : ...
    %done = ladle.merge %summary, %newest : ...
    %o = ladle.normalize %done : ...
    ```
    With sinks there is a piece `from start to sinks`, and with a wide band the
    fresh piece is two, of which each is stored. A remark says what was fused,
    or why not: `tau = 1` never matches, and needs no ring.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
  let options = [
    Option<"summaryType", "summary-type", "std::string", "\"f32\"",
           "how A / Z of a summary is stored: f32, bf16 or f16">,
  ];
}

#endif // LADLE_ATTENTION_PASSES
