//===- BuildPasses.td - from recurrences to steps ----------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes that build the forms of a route, in alphabetical order, and those
// that change them for a target. The IR of a description is taken from the test
// tests/passes/<pass without ladle->.mlir.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_BUILD_PASSES
#define LADLE_BUILD_PASSES

include "mlir/Pass/PassBase.td"

def BuildDecode : Pass<"ladle-build-decode", "::mlir::ModuleOp"> {
  let summary = "build the decode and fold steps of every route";
  let description = [{
    From a recurrence in normal form, builds one `ladle.step` for each form of
    each route. The body stays what it was; a route replaces the reads of the
    state and decides what becomes of its writes:

    - `recurrent` loads the state, updates it and stores it;
    - `outer` rebuilds the state from checkpoint and entries and reads that;
    - `inner` reads checkpoint and entries apart, with every query;
    - `adjoint` carries each output's query back through the raw entries and
      reads the checkpoint once;
    - `kv_only` reads the entries alone.

    A `decode_fold` answers its token and stores the state that holds all
    entries and the token; a `fold` answers nothing.

    ```mlir
    %y = ladle.read %S, %q : ...
    ```
    becomes, for `inner`,
    ```mlir
    %gamma = ladle.decay_product %S_entries decay "decay" : ...
    %S = ladle.load_state %pool : ...
    %0 = ladle.read %S, %q : ...
    %1 = ladle.broadcast %gamma dims [0] : ...
    %2 = arith.mulf %0, %1 : ...
    %3 = ladle.read_buffer %S_entries[%q] key "k" value "u" decay "decay" : ...
    %y = arith.addf %2, %3 : ...
    ```
    A route that is not legal for the recurrence is an error that names the
    operation which prevents it.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
  let options = [
    ListOption<"routes", "routes", "std::string",
               "routes to build; none stands for every legal route">,
    Option<"capacity", "capacity", "int64_t", "16",
           "entries that a slot holds">,
    Option<"entryType", "entry-type", "std::string", "\"f32\"",
           "type in which a value that depends on the state is cached">,
    Option<"stateLayout", "state-layout", "std::string", "\"dv_dk\"",
           "how a head of a state lies in memory: dv_dk or dk_dv">,
    Option<"page", "page", "int64_t", "0",
           "entries of a page; 0: those of a slot lie "
           "side by side">,
    Option<"drafts", "drafts", "int64_t", "0",
           "the most drafts of a row that the program also verifies; buffers "
           "are indexed then">,
  ];
}

def BuildPrefill : Pass<"ladle-build-prefill", "::mlir::ModuleOp"> {
  let summary = "build the prefill steps of every route";
  let description = [{
    From a recurrence in normal form, builds the steps that answer a chunk of a
    prompt at once. A chunk is a chain of drafts (see `ladle-build-verify`): the
    written values come out of one triangular solve, the outputs out of masked
    products, and decays are only multiplied between two tokens of a chunk, so
    that nothing overflows.

    - `prefill_fold`, of every route but `kv_only`, reads the state with all
      vectors of the chunk and stores the state that holds the chunk. It takes
      no entries: those that a slot holds are folded before.
    - `prefill_entries`, of every route with a buffer, reads the committed
      history as the route does and appends an entry a token. Of `kv_only` it
      touches no state. With `carries-state`, that of `kv_only` rebuilds a state
      from the entries once, reads and updates it chunk by chunk like
      `prefill_fold`, and ends with both: rows that fold store the state, the
      others append their entries. With `folds-by-chunk`, that of the other
      routes does so, and there is no `prefill_fold`: the state that is stored
      is that where the last chunk of the sequence ends, and what follows is
      appended.
    - `prefill_scan`, with `scans-prompts`, takes the place of both where a chunk
      cannot be answered at once, or where nothing is gained by it, because the
      values of a head are one number: the step of `recurrent`, for a kernel that
      goes from token to token. Entries are folded before.

    ```mlir
    %p = ladle.read %S, %k : ...
    %u = arith.subf %v, %p : ...
    %0 = ladle.decay %S, %a : ...
    %1 = ladle.write %0, %k, %u : ...
    %y = ladle.read %S, %q : ...
    ```
    becomes, for `prefill_fold`,
    ```mlir
    %k, %v, %q, %a = ladle.each_draft %chunk { ... }
    %p = ladle.path_decay %a along %chunk : ...
    %x, %z = ladle.each_draft %chunk stacks(%k, %q, %p) { ... mul ... }
    %S = ladle.load_state %pool : ...
    %0 = ladle.read %S, %x : ...
    %1 = ladle.read %S, %z : ...
    %r = ladle.each_draft %chunk stacks(%0, %v) { ... sub ... }
    %A = ladle.path_gram %x, %k decay %a along %chunk : ...
    %u = ladle.path_solve [%r : ...] through [%A : ...] rows [0] columns [0]
         along %chunk : ...
    %G = ladle.path_gram %q, %k decay %a along %chunk : ...
    %2 = ladle.path_product [%G : ...] of [%u : ...] along %chunk : ...
    %y = ladle.each_draft %chunk stacks(%1, %2) { ... add ... }
    %3 = ladle.fold_drafts %S keys [%k : ...] values [%u : ...] decay %a : ...
         along %chunk : ...
    ladle.store_state %3, %pool : ...
    ```
    Where a decay, a key or a query depends on a read, or a written value is not
    affine in reads, or a carry depends on one, a token waits for the one before
    it: a remark says so, and without `scans-prompts` the runtime decodes the
    prompt token by token.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
  let options = [
    ListOption<"routes", "routes", "std::string",
               "routes to build; none stands for every legal route">,
    Option<"capacity", "capacity", "int64_t", "16",
           "entries that a slot holds">,
    Option<"entryType", "entry-type", "std::string", "\"f32\"",
           "type in which a value that depends on the state is cached">,
    Option<"stateLayout", "state-layout", "std::string", "\"dv_dk\"",
           "how a head of a state lies in memory: dv_dk or dk_dv">,
    Option<"page", "page", "int64_t", "0",
           "entries of a page; 0: those of a slot lie "
           "side by side">,
    Option<"drafts", "drafts", "int64_t", "0",
           "the most drafts of a row that the program also verifies; buffers "
           "are indexed then">,
    Option<"chunk", "chunk", "int64_t", "64", "tokens of a chunk, 1 to 256">,
    Option<"carriesState", "carries-state", "bool", "false",
           "whether prompts of kv_only carry their state along">,
    Option<"foldsByChunk", "folds-by-chunk", "bool", "false",
           "whether prompts of the other routes do instead, which then fold "
           "where chunks end and leave the rest as entries">,
    Option<"scansPrompts", "scans-prompts", "bool", "false",
           "whether prompts whose tokens wait for one another, and those of "
           "heads with one value, are answered token by token">,
  ];
}

def BuildVerify : Pass<"ladle-build-verify", "::mlir::ModuleOp"> {
  let summary = "build the verify steps of every route";
  let description = [{
    From a recurrence in normal form, builds for each route a `ladle.step` that
    answers the drafts of a row at once, and one that folds the committed
    entries in the same pass. Drafts are a tree; a value of all drafts is a
    stack.

    1. One `ladle.each_draft` computes what does not depend on a state, and the
       carries, parents first.
    2. The state after the committed entries is read with a vector for each
       written value and output of a draft, as the route reads it: `outer`
       rebuilds it, `inner` and `kv_only` read checkpoint and entries apart.
    3. `ladle.path_gram` multiplies those vectors with the keys of ancestors,
       `ladle.path_solve` finds the written values (if they depend on reads),
       `ladle.path_product` adds what they give to the outputs.
    4. Another `ladle.each_draft` computes the outputs; the entries of the drafts
       are appended. No state is written a draft.

    `adjoint` solves for the vectors in place of the values, so that it reads
    the state with one vector a draft and output.

    ```mlir
    %p = ladle.read %S, %k : ...
    %u = arith.subf %v, %p : ...
    %1 = ladle.write %S, %k, %u : ...
    %y = ladle.read %S, %q : ...
    ```
    becomes, for `inner`,
    ```mlir
    %k, %v, %q, %x = ladle.each_draft %drafts { ... }
    %S = ladle.load_state %pool : ...
    %0 = ladle.read %S, %x : ...
    %1 = ladle.read %S, %q : ...
    %2:2 = ladle.read_buffer %S_entries[%x, %q] key "k" value "u" : ...
    %r = ladle.each_draft %drafts stacks(%0, %2#0, %v) { ... add ... }
    %a = ladle.path_gram %x, %k along %drafts : ...
    %u = ladle.path_solve [%r : ...] through [%a : ...] rows [0] columns [0]
         along %drafts : ...
    %g = ladle.path_gram %q, %k along %drafts : ...
    %3 = ladle.path_product [%g : ...] of [%u : ...] along %drafts : ...
    %y = ladle.each_draft %drafts stacks(%1, %2#1, %3) { ... add ... }
    ladle.append_drafts %S_entries, %k, %u along %drafts : ...
    ```
    What reads are multiplied by is in their queries if it is a number a head or
    a rank, and a scale of the solve if it is one a channel. A written value that
    is no sum of reads times such numbers, or a carry that depends on a read,
    makes a draft wait for its parent: a remark says so, and the runtime decodes
    such drafts one after another.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect"];
  let options = [
    ListOption<"routes", "routes", "std::string",
               "routes to build; none stands for every legal route">,
    Option<"capacity", "capacity", "int64_t", "16",
           "entries that a slot holds; twice the drafts at least">,
    Option<"entryType", "entry-type", "std::string", "\"f32\"",
           "type in which a value that depends on the state is cached">,
    Option<"stateLayout", "state-layout", "std::string", "\"dv_dk\"",
           "how a head of a state lies in memory: dv_dk or dk_dv">,
    Option<"page", "page", "int64_t", "0",
           "entries of a page; 0: those of a slot lie "
           "side by side">,
    Option<"drafts", "drafts", "int64_t", "8", "the most drafts of a row">,
  ];
}

def ReadUpdates : Pass<"ladle-read-updates", "::ladle::StepOp"> {
  let summary = "read channels after they have been written";
  let description = [{
    In normal form a token reads the state that it finds, so that a state is read
    once where it comes from memory. Where it is in registers before and after,
    and a head is a channel, the products that stand for the write are half as
    much again as the rest, and this takes reads back behind it:

        read(S, a ∘ q) + (k · q) v = read(write(decay(S, a), k, v), q)

    in the steps `decode` of the route recurrent and `prefill_scan` whose heads
    have one value. What the pattern is not found in stays as it is, and so do
    steps of few channels: these wait, and a read that needs no write waits less.

    ```mlir
    %aq = arith.mulf %a, %q4 : tensor<4x8xf32>
    %r = ladle.read %S, %aq : ...
    %kq = arith.mulf %k2, %q : tensor<2x8xf32>
    %dot = ladle.sum %kq dim 1 : tensor<2x8xf32> to tensor<2xf32>
    %w = arith.mulf %dots4, %v : tensor<4x1xf32>
    %y = arith.addf %r, %w : tensor<4x1xf32>
    %S1 = ladle.decay %S, %a : ...
    %S2 = ladle.write %S1, %k, %v : ...
    ```
    becomes
    ```mlir
    %S1 = ladle.decay %S, %a : ...
    %S2 = ladle.write %S1, %k, %v : ...
    %y = ladle.read %S2, %q : ...
    ```
  }];
  let options = [
    Option<"batch", "batch", "int64_t", "0", "rows of the batch; 0 is many">,
  ];
}

#endif // LADLE_BUILD_PASSES
