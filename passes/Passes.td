//===- Passes.td - the passes of Ladle ---------------------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In alphabetical order. The IR of a description is taken from the test
// tests/passes/<pass without ladle->.mlir.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES
#define LADLE_PASSES

include "mlir/Pass/PassBase.td"

include "passes/AttentionPasses.td"
include "passes/BuildPasses.td"

def ApproximateDecays : Pass<"ladle-approximate-decays",
                             "::ladle::RecurrenceOp"> {
  let summary = "let targets approximate the exponentials of decays";
  let description = [{
    Marks the exponentials whose products are decays, and those in the exponents
    of these, where they are vectors: numbers cost nothing. That of an argument x
    may then err by 2 + 1.2 |x| units in the last place: of a decay, whose x is
    not positive, that is most where e^x is least, |x| e^x ≤ 0.37, so that the
    decay errs by less than 3·10⁻⁷ of 1, and by less than 10⁻⁶ if its x is an
    exponential, too, of -10 to 10. GPUs have an instruction for it, where an
    accurate one takes eight; kernels take it where that is a gain, for drafts,
    for heads that are channels, and for prompts.

    ```mlir
    %e = math.exp %A : tensor<2x4xf32>
    %x = arith.mulf %e, %d : tensor<2x4xf32>
    %n = arith.negf %x : tensor<2x4xf32>
    %a = math.exp %n : tensor<2x4xf32>
    %S1 = ladle.decay %S, %a : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
    ```
    becomes
    ```mlir
    %e = math.exp %A fastmath<afn> : tensor<2x4xf32>
    %x = arith.mulf %e, %d : tensor<2x4xf32>
    %n = arith.negf %x : tensor<2x4xf32>
    %a = math.exp %n fastmath<afn> : tensor<2x4xf32>
    %S1 = ladle.decay %S, %a : !ladle.state<2x4x8xf32>, tensor<2x4xf32>
    ```
  }];
  let dependentDialects = ["::mlir::math::MathDialect"];
}

def ConvertLadleToCPU : Pass<"convert-ladle-to-cpu", "::mlir::ModuleOp"> {
  let summary = "lower scheduled steps to functions over memrefs";
  let description = [{
    Each scheduled `ladle.step` becomes a function for one row of the batch and
    a range of heads. Its arguments are seven indices (row, read slot, write
    slot, base and length of the entry ring, first head, head after the last),
    then the memory of parameters [heads, ...], tokens [rows, heads, ...],
    carries [slots, heads, ...], pools [slots, heads, dv, dk] (or, of the layout
    dk_dv, [slots, heads, dk, dv], of which tiles are transposed on the way),
    entry fields [slots, heads, capacity, ...] and outputs [rows, heads, ...].

    Head counts become a loop nest, in which a value with few heads is computed
    once for the heads that share it. Odd phases become loops over tiles of dv:
    the rows of a tile are read with all queries, what depends on the reads is
    computed for the tile as a vector, and the rows are updated and stored
    while they are in the nearest cache.

    ```mlir
    %S = ladle.load_state %pool : ...
    %y = ladle.read %S, %q {ladle.phase = 1 : index} : ...
    ```
    becomes
    ```mlir
    scf.for %v = %c0 to %dv step %c16 {
      scf.for %r = %c0 to %c16 step %c1 {
        %at = arith.addi %v, %r : index
        %row = vector.load %pool[%slot, %head, %at, %c0] : ..., vector<128xf32>
        %product = arith.mulf %row, %q : vector<128xf32>
        %dot = vector.reduction <add>, %product fastmath<reassoc> : ...
        memref.store %dot, %scratch[%c0, %at] : memref<1x128xf32>
      }
      %tile = vector.load %scratch[%c0, %v] : memref<1x128xf32>, vector<16xf32>
      vector.store %tile, %y[%row, %head, %v] : ..., vector<16xf32>
    }
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
}

def ConvertLadleToGPU : Pass<"convert-ladle-to-gpu", "::mlir::ModuleOp"> {
  let summary = "lower steps to GPU kernels";
  let description = [{
    A decode step and its decode_fold become one `gpu.func` in the module
    `kernels`, with a branch for the rows that fold; a fold becomes a kernel of
    its own; `forms` leaves some out. A block takes a row of the batch (y), a head
    and a tile of dv (x);
    heads that share a carry share a block. Rows whose slot is negative or
    `pad_slot` get zeros. The cursors stay as they are.

    Arguments are read slots, write slots, cursors [slots, 2] (base and length of
    the ring), the threshold m, the pad slot, then the memory that
    `convert-ladle-to-cpu` lists; `ladle.alignment` says which views are loaded
    as vectors.

    ```mlir
    %S = ladle.load_state %pool : ...
    %y = ladle.read %S, %q : ...
    ```
    becomes, for a lane of a group and a row of those that the group reads,
    ```mlir
    memref.dma_start %pool[%slot, %head, %row0, %c0], %tile[%c0, %c0], ...
    %query = vector.load %q[%row, %head, %k] : ..., vector<4xf32>
    memref.dma_wait %copies[%c0], %c0 : ...
    %part = vector.load %tile[%i, %k] : ..., vector<4xf32>
    %product = arith.mulf %part, %query : vector<4xf32>
    %sum = vector.reduction <add>, %product : vector<4xf32> into f32
    %other, %valid = gpu.shuffle xor %sum, %c1_i32, %c32_i32 : f32
    ```
    Rows of bf16 that are read, and folds whose decays are numbers, are products
    of tiles, of factors that are split into parts of bf16:
    ```mlir
    nvgpu.mma.sync(%rows, %parts, %sums) {mmaShape = [16, 8, 16]} : ...
    ```
    A prefill_fold step becomes a kernel that goes through the prompt of a row in
    chunks: stacks and a tile of the state, in f32, are in shared memory, a pass of
    teams of lanes computes what tokens give, and all that is a matrix product
    (reads, Gram products, sums along the chain, the fold) is one of tiles:
    ```mlir
    nvgpu.mma.sync(%upper, %lower, %sums) {mmaShape = [16, 8, 8], tf32Enabled} : ...
    ```
    It takes where the tokens of rows begin after the pad slot, no entries, and
    after all others the memory for what carries become. A prefill_entries step
    that carries its state along takes the entries as well: it rebuilds the state
    from those that there are, and which rows fold, and which keep entries, is
    decided by the thresholds. Others of this form are not lowered.

    Of a route that has no verify form, because drafts wait for their parents,
    `drafts` makes kernels of its decode and fold forms besides, called `.._draft`
    and `.._draft_fold`: for the draft with a number of each row, whose history
    is the committed entries and those of its path, and for the rows that fold
    before their drafts.

    In pages, the kernel by which a route verifies drafts answers rows without a
    state as well, if the module has kv_only with the same entries: its way is the
    other branch
    ```mlir
    scf.if %is_own { ... } else { ... }
    ```
    of one kernel, with shared memory (`ladle.other_rows`) where that of the first
    lies. kv_only has a kernel of its own where it is alone.

    A head of the state that one block must hold and cannot is an error.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::nvgpu::NVGPUDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
  let options = [
    Option<"threads", "threads", "int64_t", "0",
           "threads of a block at least; 0 stands for what its rows need">,
    Option<"tileRows", "tile-rows", "int64_t", "0",
           "rows of dv in a block; 0 stands for 16 to 32 KiB of state, less for a "
           "small batch">,
    Option<"batch", "batch", "int64_t", "0",
           "rows of the batch that blocks are to fill a GPU with; 0 is many">,
    Option<"shared", "shared", "int64_t", "0",
           "bytes of shared memory that a block may have; 0 stands for what "
           "Hopper has">,
    Option<"cluster", "cluster", "int64_t", "0",
           "blocks of a cluster at the most; 0 stands for what Hopper has">,
    Option<"productWarps", "product-warps", "int64_t", "0",
           "warps that tensor cores multiply for together at the most: 4 on "
           "Hopper, for which 0 stands, and 1 elsewhere">,
    Option<"pieces", "pieces", "int64_t", "0",
           "bulk copies of a tile that warps wait for apart; 0 stands for 1">,
    Option<"stages", "stages", "int64_t", "0",
           "stages in which a warp's rows are copied and read; 0 stands for 1">,
    Option<"verifyThreads", "verify-threads", "int64_t", "0",
           "threads of a block that verifies at least; 0 stands for what its rows "
           "and drafts need">,
    Option<"verifyTileRows", "verify-tile-rows", "int64_t", "0",
           "rows of dv in a block that verifies; 0 stands for up to 64 KiB of state">,
    Option<"verifyHeads", "verify-heads", "int64_t", "0",
           "heads that share their keys and that a block verifies one after the "
           "other; 0 stands for as many as leave blocks enough">,
    Option<"drafts", "drafts", "int64_t", "0",
           "the most drafts of a row, of routes whose drafts wait for their "
           "parents: a kernel for one draft of each row, and one that folds "
           "before">,
    Option<"forms", "forms", "int64_t", "0",
           "the sum of what kernels hold: 1 decode, 2 decode_fold, 4 fold, "
           "8 prefill_fold, 16 verify, which is never left out; 0 all">,
  ];
}

def DeriveHistory : Pass<"ladle-derive-history", "::ladle::RecurrenceOp"> {
  let summary = "classify operands and find the legal routes";
  let description = [{
    For a recurrence in normal form (see `ladle-normalize-reads`), leaves on
    each decay and read the class of its factor or query, on each write the
    classes of value and key, and on the recurrence the routes that give the
    same output as the recurrence itself:

    - `recurrent` always;
    - `outer`, `inner` and `kv_only` if decays, keys and queries are token-only;
    - `adjoint` if, besides, every written value is a combination of reads of
      its own state with token-only numbers, one a head.

    ```mlir
    ladle.recurrence @r(...) -> (...) {
      %p = ladle.read %S, %k : ...
      %u = arith.subf %v, %p : tensor<4x64xf32>
      %1 = ladle.write %S, %k, %u : ...
    ```
    becomes
    ```mlir
    ladle.recurrence @r(...) -> (...) attributes {
        ladle.routes = [#ladle.route<recurrent>, #ladle.route<outer>,
                        #ladle.route<inner>, #ladle.route<adjoint>,
                        #ladle.route<kv_only>]} {
      %p = ladle.read %S, %k {ladle.class = #ladle.operand_class<token_only>}
      %u = arith.subf %v, %p : tensor<4x64xf32>
      %1 = ladle.write %S, %k, %u {
             ladle.class = #ladle.operand_class<affine>,
             ladle.key_class = #ladle.operand_class<token_only>}
    ```
    A remark names, for each route that is not legal, the operation that
    prevents it and the way out.
  }];
}

def ExpandFunctions : Pass<"ladle-expand-functions"> {
  let summary = "turn the functions of models into arith, math and ladle.sum";
  let description = [{
    Replaces `ladle.sigmoid`, `silu`, `softplus`, `elu` and `l2norm`, and also
    `math.log1p` and `math.expm1` (upstream lowers them to log(1 + x) and
    exp(x) − 1, which lose all digits near 0), by forms that neither overflow
    nor cancel in f32. `rotate`, `shift`, `conv`, `sum` and `broadcast` stay:
    they say where elements come from, which the lowering must see.

    ```mlir
    %0 = ladle.l2norm %x eps 1.0e-6 : tensor<4x64xf32>
    ```
    becomes
    ```mlir
    %eps = arith.constant dense<1.0e-6> : tensor<4xf32>
    %0 = arith.mulf %x, %x : tensor<4x64xf32>
    %1 = ladle.sum %0 dim 1 : tensor<4x64xf32> to tensor<4xf32>
    %2 = arith.addf %1, %eps : tensor<4xf32>
    %3 = math.rsqrt %2 : tensor<4xf32>
    %4 = ladle.broadcast %3 dims [0] : tensor<4xf32> to tensor<4x64xf32>
    %5 = arith.mulf %x, %4 : tensor<4x64xf32>
    ```
    Rounding changes; the float64 reference evaluates the functions themselves.

    With `approximate` the exponentials of sigmoid and silu are marked as those
    of decays are, where they are vectors. What these err by, s(1 − s) and
    s(1 − s) |x| times 2 + 1.2 |x| units, is less than 2·10⁻⁷ of 1.
  }];
  let options = [
    Option<"approximate", "approximate", "bool", "false",
           "let targets approximate the exponentials of sigmoid and silu">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
}

def LadleSchedule : Pass<"ladle-schedule", "::ladle::StepOp"> {
  let summary = "decide what is computed once a head and what along dv";
  let description = [{
    Gives every operation of a step its phase. In an even phase a value is
    complete for a head; an odd phase is a pass over tiles of dv, in which
    state rows are read, what depends on them is computed, and rows are
    stored. A value that goes from dv to dk or is reduced over dv ends a phase,
    because then a head needs all of dv. A state is never stored before the
    last phase that reads its old rows.

    ```mlir
    %r = ladle.read %S, %k : ...
    %u = arith.subf %v, %r : tensor<4x64xf32>
    %n = arith.mulf %k, %k : tensor<4x64xf32>
    ```
    becomes
    ```mlir
    %r = ladle.read %S, %k {ladle.phase = 1 : index} : ...
    %u = arith.subf %v, %r {ladle.phase = 1 : index} : tensor<4x64xf32>
    %n = arith.mulf %k, %k {ladle.phase = 0 : index} : tensor<4x64xf32>
    ```
    On the step it leaves the head counts (`ladle.levels`), the heads that one
    task must cover together (`ladle.head_group`), and the tile
    (`ladle.tile_rows`). A verify step has no phases: its operations on stacks
    are passes of their own.
  }];
  let options = [
    Option<"tileRows", "tile-rows", "int64_t", "16",
           "rows of the state in a tile">,
  ];
}

def NormalizeReads : Pass<"ladle-normalize-reads", "::ladle::RecurrenceOp"> {
  let summary = "read every state as it is at the start of the token";
  let description = [{
    Brings a recurrence into the normal form that histories are derived from:
    every read takes a state argument, and each state goes through at most one
    decay, then its writes, to the terminator.

        read(decay(S, a), q)    = a read(S, q)            a a number a head
        read(decay(S, a), q)    = read(S, a ∘ q)          a a vector
        read(write(S, k, u), q) = read(S, q) + Σ_r (k_r · q) u_r
        decay(write(S, k, u), a) = write(decay(S, a), a ∘ k, u)
        decay(decay(S, a), b)    = decay(S, a ∘ b)

    What has few heads is computed with few heads and repeated afterwards.

    ```mlir
    %0 = ladle.decay %S, %a : !ladle.state<4x64x64xf32>, tensor<4xf32>
    %1 = ladle.write %0, %k, %v : ...
    %y = ladle.read %1, %q : ...
    ladle.yield %y, %1 : ...
    ```
    becomes
    ```mlir
    %0 = ladle.decay %S, %a : !ladle.state<4x64x64xf32>, tensor<4xf32>
    %1 = ladle.write %0, %k, %v : ...
    %2 = ladle.broadcast %a dims [0] : tensor<4xf32> to tensor<4x64xf32>
    %3 = ladle.read %S, %q : ...
    %4 = arith.mulf %2, %3 : tensor<4x64xf32>
    %5 = arith.mulf %k, %q : tensor<4x64xf32>
    %6 = ladle.sum %5 dim 1 : tensor<4x64xf32> to tensor<4xf32>
    %7 = ladle.broadcast %6 dims [0] : tensor<4xf32> to tensor<4x64xf32>
    %8 = arith.mulf %7, %v : tensor<4x64xf32>
    %y = arith.addf %4, %8 : tensor<4x64xf32>
    ladle.yield %y, %1 : ...
    ```
    Rounding changes; the float64 reference evaluates the recurrence as it was
    written.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def SelectRoute : Pass<"ladle-select-route", "::mlir::ModuleOp"> {
  let summary = "keep the steps of the cheapest route";
  let description = [{
    Counts the bytes and flops of every step, predicts the time a token of
    every route over its cycle (fills 0 to m − 1, the last of which folds) with
    its own best threshold m, and keeps the steps of the fastest; of routes
    within 1 % of it, the simplest. Remarks say what each of the others would
    have cost.

    ```mlir
    ladle.recurrence @f ...
    ladle.step @f_recurrent_decode of @f route(recurrent) form(decode) ...
    ladle.step @f_inner_decode of @f route(inner) form(decode) ...
    ```
    becomes
    ```mlir
    ladle.recurrence @f ... attributes {
      ladle.fold_threshold = 16 : i64, ladle.selected = #ladle.route<inner>}
    ladle.step @f_inner_decode of @f route(inner) form(decode) ...
    ```
  }];
  let options = [
    Option<"machineName", "machine", "std::string", "\"cpu\"",
           "what to predict for: cpu or h200">,
    Option<"batch", "batch", "int64_t", "256", "rows of the batch">,
    Option<"context", "context", "int64_t", "0",
           "tokens of a sequence; 0 stands for more than any buffer holds">,
    Option<"readBandwidth", "read-bandwidth", "double", "0",
           "measured GB/s of reading; 0 keeps the machine's">,
    Option<"updateBandwidth", "update-bandwidth", "double", "0",
           "measured GB/s of updating in place, read and write counted">,
  ];
}

#endif // LADLE_PASSES
