//===- LadleTypes.td - states, pools, buffers, summaries ---*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TYPES
#define LADLE_TYPES

include "dialect/LadleAttributes.td"

class Ladle_Type<string name, string typeMnemonic>
    : TypeDef<Ladle_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Ladle_StateType : Ladle_Type<"State", "state"> {
  let summary = "the folded history of a sequence: heads × dk × dv";
  let description = [{
    A value. The element type is the type in which the state is stored between
    tokens; arithmetic on it is f32.

    ```mlir
    !ladle.state<32x128x128xf32>
    ```
  }];
  let parameters = (ins "int64_t":$heads, "int64_t":$keySize,
                        "int64_t":$valueSize, "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Ladle_PoolType : Ladle_Type<"Pool", "pool"> {
  let summary = "the place of a state in the pool: a store, not a value";
  let description = [{
    Exists at the step stage only. `ladle.load_state` gives its value,
    `ladle.store_state` replaces it. Dimensions are heads, dk, dv, as a state
    has them; `layout` says in which order they lie in memory, [heads, dv, dk]
    unless it is printed.

    ```mlir
    !ladle.pool<32x128x128xf32>
    !ladle.pool<32x128x128xf32, dk_dv>
    ```
  }];
  let parameters = (ins "int64_t":$heads, "int64_t":$keySize,
                        "int64_t":$valueSize, "::mlir::Type":$elementType,
                        "::ladle::PoolLayout":$layout);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Ladle_BufferType : Ladle_Type<"Buffer", "buffer"> {
  let summary = "a store of unfolded history entries";
  let description = [{
    The entry ring of a recurrence (`weight = linear`) and the KV cache of an
    attention (`weight = exp`) are both buffers. `capacity` is the number of
    entries that a slot holds; 0 stands for a buffer that grows.

    The entries of a slot lie side by side, [slots, heads, capacity, ...]. With
    a `page` they lie in pages of so many entries, [pages, heads, page, ...],
    the last of a slot with as many as the capacity leaves, and a table of the
    slot says in which: place i is entry i mod page of page table[i / page].
    Slots then hold as much memory as their entries fill, and may hold pages
    together.

    ```mlir
    !ladle.buffer<[k : 16x128xbf16 @dk, u : 32x128xf32 @dv], capacity = 16,
                  order = ring, weight = linear>
    !ladle.buffer<[k : 16x128xbf16 @dk, u : 32x128xf32 @dv], capacity = 512,
                  order = ring, page = 16, weight = linear>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"::ladle::FieldAttr">:$fields,
                        "int64_t":$capacity,
                        "::ladle::BufferOrder":$order,
                        "::ladle::BufferWeight":$weight,
                        "int64_t":$page);
  let builders = [TypeBuilder<(ins "::llvm::ArrayRef<::ladle::FieldAttr>":$fields,
                                   "int64_t":$capacity,
                                   "::ladle::BufferOrder":$order,
                                   "::ladle::BufferWeight":$weight), [{
    return $_get($_ctxt, fields, capacity, order, weight, /*page=*/0);
  }]>];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The field called `name`, or null.
    ::ladle::FieldAttr getField(::llvm::StringRef name) const;
    bool isPaged() const { return getPage() != 0; }
    /// Pages of a slot, the last of which may hold fewer entries.
    int64_t countPages() const {
      return isPaged() ? llvm::divideCeil(getCapacity(), getPage()) : 0;
    }
  }];
}

def Ladle_SummaryType : Ladle_Type<"Summary", "summary"> {
  let summary = "an evaluated piece of history for one query";
  let description = [{
    Holds (m, Z, A): running maximum, normaliser, accumulator, for each head.
    Two summaries of disjoint pieces of history merge into the summary of
    both; the merge is associative. What is stored is (A / Z, log-sum-exp).

    ```mlir
    !ladle.summary<32x128xf32>
    ```
  }];
  let parameters = (ins "int64_t":$heads, "int64_t":$size,
                        "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Ladle_DraftsType : Ladle_Type<"Drafts", "drafts"> {
  let summary = "the drafts of a row: a tree";
  let description = [{
    A row of a verify step has 1 to `most` drafts. Each has a parent among those
    before it, or none: then it follows the committed history. A chain is the
    tree in which every draft follows the one before it.

    A value of every draft is *stacked*: what has the shape [heads, D] for one
    draft is [heads, most, D] for all. Where a row has fewer drafts, the rest of
    a stack is undefined.

    A type can say that all drafts are a `chain`: then a step has no parents to
    look at, and there may be many more of them. So are the tokens of a chunk of
    a prompt, which are drafts that nobody will reject.

    ```mlir
    !ladle.drafts<8>
    !ladle.drafts<64, chain>
    ```
  }];
  let parameters = (ins "int64_t":$most, "bool":$isChain);
  let hasCustomAssemblyFormat = 1;
  let builders = [TypeBuilder<(ins "int64_t":$most), [{
    return $_get($_ctxt, most, /*isChain=*/false);
  }]>];
  let genVerifyDecl = 1;
}

def Ladle_RingType : Ladle_Type<"Ring", "ring"> {
  let summary = "a store of queries and the summaries that they left";
  let description = [{
    For each head and each of the last `capacity` tokens: the query, `parts`
    summaries as (A / Z, log-sum-exp) whose A / Z has `valueType`, and how many
    summaries were made from one another before it. A ring that is `rotated`
    holds the queries after their rotation, too. Where `estimates`, it holds the
    mean of ‖q‖² over the tokens so far.

    ```mlir
    !ladle.ring<32x128xbf16, values = 128xf32, capacity = 1024, parts = 1,
                rotated = false, estimates = true>
    ```
  }];
  let parameters = (ins "int64_t":$heads, "int64_t":$querySize,
                        "::mlir::Type":$queryType, "int64_t":$valueSize,
                        "::mlir::Type":$valueType, "int64_t":$capacity,
                        "int64_t":$parts, "bool":$rotated, "bool":$estimates);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Ladle_MatchType : Ladle_Type<"Match", "match"> {
  let summary = "for each head, an entry of a ring, or none";
  let parameters = (ins "int64_t":$heads);
  let assemblyFormat = "`<` $heads `>`";
}

def Ladle_MemoryType : Ladle_Type<"Memory", "memory"> {
  let summary = "what is left of tokens that left a cache, for each head";
  let description = [{
    A `linear` memory is M = Σ f(k) vᵀ and z = Σ f(k); a `taylor` memory is
    L = Σ k vᵀ, Σ k, Σ v, their number and the spread of the keys. The matrix has
    the type that is given, all else is f32.

    ```mlir
    !ladle.memory<linear, 8x128x128xf32>
    ```
  }];
  let parameters = (ins "::ladle::MemoryKind":$kind, "int64_t":$heads,
                        "int64_t":$keySize, "int64_t":$valueSize,
                        "::mlir::Type":$elementType);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

#endif // LADLE_TYPES
