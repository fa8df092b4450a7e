//===- LadleBoundedOps.td - caches that forget, memories ---*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bounded cache holds so many tokens at the most. What leaves it is lost, or
// folded into a memory of constant size.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_BOUNDED_OPS
#define LADLE_BOUNDED_OPS

include "dialect/LadleAttentionOps.td"

def Ladle_MemoryResource : Resource<"::ladle::MemoryResource">;

// Which token a head of the cache gives up. A count of 0 queries stands for
// all since the token came.
defvar evictionNumbers = (ins I64Attr:$budget, I64Attr:$sinks, I64Attr:$recent,
                              I64Attr:$queries, F64Attr:$variance,
                              I64Attr:$pool);
// When and how much of the cache is folded.
defvar segmentNumbers = (ins I64Attr:$sinks, I64Attr:$window, I64Attr:$segment,
                             DefaultValuedAttr<F64Attr, "1.0">:$decay);

//===----------------------------------------------------------------------===//
// Spec stage
//===----------------------------------------------------------------------===//

def Ladle_EvictOp : Ladle_Op<"evict", [Pure, AllTypesMatch<["cache", "kept"]>]> {
  let summary = "the cache without the token that its queries miss least";
  let description = [{
    If a head of the cache holds more than `budget` tokens, it gives up one:
    the least salient of those that are neither among the first `sinks` of the
    sequence nor among the `recent` newest, and of several the oldest. It is
    folded into `memory`, if there is one.

    With w_t the weights that the last `queries` queries gave a token, summed
    over the heads of the query that share the head of the cache
    (`ladle.observe`), its salience is mean w + `variance` · var w, averaged
    over the `pool` tokens around it in the order of the sequence, as far as
    they are there (CAKE, Qin et al., 2025, Eq. 11; SLAKE). A token that has seen
    fewer queries has the mean and the variance over these. With 0 `queries` it
    is the sum over all queries since the token came (H2O, Zhang et al., 2023).
  }];
  let arguments = !con((ins Ladle_BufferType:$cache,
                            Optional<Ladle_MemoryType>:$memory),
                       evictionNumbers);
  let results = (outs Ladle_BufferType:$kept, Optional<Ladle_MemoryType>:$folded);
  let assemblyFormat = [{
    $cache (`into` $memory^)? attr-dict `:` type($cache)
    (`,` type($memory)^ `->` type($folded))?
  }];
  let hasVerifier = 1;
}

def Ladle_ObserveOp : Ladle_Op<"observe", [
    Pure, AllTypesMatch<["cache", "result"]>]> {
  let summary = "the cache, in which each token remembers what a query gave it";
  let description = [{
    The softmax weights over the tokens of the cache, by which `ladle.evict`
    will choose.
  }];
  let arguments = (ins Ladle_Value:$query, Ladle_BufferType:$cache,
                       F64Attr:$scale);
  let results = (outs Ladle_BufferType:$result);
  let assemblyFormat = [{
    $query `,` $cache `scale` $scale attr-dict `:` type($query) `,` type($cache)
  }];
  let hasVerifier = 1;
}

def Ladle_FoldSegmentOp : Ladle_Op<"fold_segment", [
    Pure, IsolatedFromAbove, SingleBlock, AllTypesMatch<["cache", "kept"]>,
    AllTypesMatch<["memory", "folded"]>]> {
  let summary = "the cache without a segment that has become full";
  let description = [{
    In the order of the cache: the first `sinks` tokens, the residual, the
    newest `window` tokens. Where the residual has reached `segment` tokens, it
    leaves the cache for the memory:

        M ← γ M + Σ f(k) vᵀ,  z ← γ z + Σ f(k)

    with γ = `decay`, and f the region, from a key of each head to its features
    (EdgeInfinite, Chen et al., 2025, Algorithm 1).

    ```mlir
    %kept, %folded = ladle.fold_segment %cache into %M
        {sinks = 4 : i64, window = 8 : i64, segment = 16 : i64} : ... {
    ^bb0(%key: tensor<2x64xf32>):
      %feature = ...
      ladle.yield %feature : tensor<2x64xf32>
    }
    ```
  }];
  let arguments = !con((ins Ladle_BufferType:$cache, Ladle_MemoryType:$memory),
                       segmentNumbers);
  let results = (outs Ladle_BufferType:$kept, Ladle_MemoryType:$folded);
  let regions = (region SizedRegion<1>:$feature);
  let assemblyFormat = [{
    $cache `into` $memory attr-dict `:` type($cache) `,` type($memory) $feature
  }];
  let hasRegionVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Reads of a memory, at both stages
//===----------------------------------------------------------------------===//

class Ladle_MemoryReader<string mnemonic, list<Trait> traits = []>
    : Ladle_Op<mnemonic, traits> {
  dag memory = (ins Arg<Ladle_MemoryType, "",
                    [MemRead<Ladle_MemoryResource>]>:$memory);
}

def Ladle_RecallOp : Ladle_MemoryReader<"recall"> {
  let summary = "what a linear memory answers to the features of a query";
  let description = [{
    f Mᵀ / (f·z): [heads, dk] to [heads, dv]; the heads of the memory divide
    those of the query. 0 if nothing has been folded.
  }];
  let arguments = !con((ins Ladle_Value:$query), memory);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $query `,` $memory attr-dict `:` type($query) `,` type($memory) `->`
    type($result)
  }];
  let hasVerifier = 1;
}

def Ladle_TaylorOp : Ladle_MemoryReader<"taylor"> {
  let summary = "the summary of evicted tokens, to first order";
  let description = [{
    Of n tokens with Σ k, Σ v and L = Σ k vᵀ, for a query q (SLAKE, Algorithm 1):
    with μ = scale q·Σk / n,

        Z = n e^μ,  A = e^μ ((1 − μ) Σ v + scale Lᵀ q)

    Where scale |q| ρ exceeds `limit`, with ρ² = Σ |k − k̄|² / n the spread of the
    keys, the first order is out of its range, and A = e^μ Σ v. A limit of 0 is
    none. Empty if nothing was evicted.
  }];
  let arguments = !con((ins Ladle_Value:$query), memory,
                       (ins F64Attr:$scale, F64Attr:$limit));
  let results = (outs Ladle_SummaryType:$result);
  let assemblyFormat = [{
    $query `,` $memory `scale` $scale `limit` $limit attr-dict `:`
    type($query) `,` type($memory) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Ladle_OnceOp : Ladle_MemoryReader<"once", [
    AllTypesMatch<["value", "otherwise", "result"]>]> {
  let summary = "a value once a memory holds something, another one before";
  let arguments = !con(memory, (ins Ladle_Value:$value,
                                    Ladle_Value:$otherwise));
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $memory `,` $value `,` $otherwise attr-dict `:` type($memory) `,`
    type($value)
  }];
}

//===----------------------------------------------------------------------===//
// Step stage
//===----------------------------------------------------------------------===//

class Ladle_CacheWriter<string mnemonic, list<Trait> traits = []>
    : Ladle_Op<mnemonic, traits> {
  dag cache = (ins Arg<Ladle_BufferType, "",
                   [MemRead<Ladle_BufferResource>,
                    MemWrite<Ladle_BufferResource>]>:$cache);
}

def Ladle_EvictFromOp : Ladle_CacheWriter<"evict_from"> {
  let summary = "make room in a cache, as `ladle.evict` says";
  let arguments = !con(cache,
      (ins Arg<Optional<Ladle_MemoryType>, "",
               [MemRead<Ladle_MemoryResource>,
                MemWrite<Ladle_MemoryResource>]>:$memory),
      evictionNumbers);
  let assemblyFormat = [{
    $cache (`into` $memory^)? attr-dict `:` type($cache)
    (`,` type($memory)^)?
  }];
  let hasVerifier = 1;
}

def Ladle_NoteWeightsOp : Ladle_CacheWriter<"note_weights"> {
  let summary = "let cached tokens remember what a query gave them";
  let arguments = !con((ins Ladle_Value:$query), cache, (ins F64Attr:$scale));
  let assemblyFormat = [{
    $query `,` $cache `scale` $scale attr-dict `:` type($query) `,` type($cache)
  }];
  let hasVerifier = 1;
}

def Ladle_FoldFromOp : Ladle_CacheWriter<"fold_from", [
    IsolatedFromAbove, SingleBlock]> {
  let summary = "fold a full segment, as `ladle.fold_segment` says";
  let description = [{
    The window is data when the step runs: a prompt is answered with the tokens
    of a segment before it is folded, with a window of one token.
  }];
  let arguments = !con(cache,
      (ins Arg<Ladle_MemoryType, "",
               [MemRead<Ladle_MemoryResource>,
                MemWrite<Ladle_MemoryResource>]>:$memory),
      segmentNumbers);
  let regions = (region SizedRegion<1>:$feature);
  let assemblyFormat = [{
    $cache `into` $memory attr-dict `:` type($cache) `,` type($memory) $feature
  }];
  let hasRegionVerifier = 1;
}

#endif // LADLE_BOUNDED_OPS
