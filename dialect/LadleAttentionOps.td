//===- LadleAttentionOps.td - attention over a cache -------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_ATTENTION_OPS
#define LADLE_ATTENTION_OPS

include "dialect/LadleStepOps.td"

def Ladle_SummaryResource : Resource<"::ladle::SummaryResource">;

// What of a match and of what follows it is a number that can be chosen. A
// count of 0 stands for no limit.
defvar matchNumbers = (ins I64Attr:$window, F64Attr:$tau,
                       DefaultValuedAttr<I64Attr, "0">:$max_gap,
                       DefaultValuedAttr<I64Attr, "0">:$max_chain,
                       DefaultValuedAttr<I64Attr, "0">:$skip,
                       OptionalAttr<F64Attr>:$drift);
defvar bandNumbers = (ins I64Attr:$band,
                      DefaultValuedAttr<I64Attr, "0">:$sinks,
                      OptionalAttr<I64Attr>:$wide_band,
                      OptionalAttr<I64Attr>:$wide_gap);

//===----------------------------------------------------------------------===//
// Spec stage: one token as it is written
//===----------------------------------------------------------------------===//

def Ladle_AttentionOp : Ladle_Op<"attention", [
    IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one token of an attention over a cache, as its author wrote it";
  let description = [{
    The region computes the outputs of one token. Arguments are `param`, `token`,
    one `buffer`, the cache, and perhaps a `memory` of what leaves it. These two
    are values here as a state is in a `ladle.recurrence`: the terminator yields
    the outputs, then the cache with the token in it, and the memory.

    ```mlir
    ladle.attention @exact(
        token %q: tensor<8x64xf32>, token %k: tensor<2x64xf32>,
        token %v: tensor<2x64xf32>,
        buffer %KV: !ladle.buffer<[k : 2x64xf32 @dk, v : 2x64xf32 @dv],
                    capacity = 0, order = paged, weight = exp>)
        -> (o: tensor<8x64xf32>) attributes {page_size = 16 : i64} {
      %next = ladle.cache_token %KV, %k, %v : ...
      %all = ladle.softmax %q, %next scale 1.250000e-01 : ...
      %o = ladle.normalize %all : !ladle.summary<8x64xf32> to tensor<8x64xf32>
      ladle.yield %o, %next : ...
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$page_size,
                       StrArrayAttr:$argument_names,
                       TypedArrayAttrBase<Ladle_ArgumentKind,
                         "argument kinds">:$argument_kinds,
                       StrArrayAttr:$output_names,
                       TypeArrayAttr:$output_types);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::StringRef getArgumentName(unsigned index);
    ::ladle::ArgumentKind getArgumentKind(unsigned index);
    ::llvm::SmallVector<::mlir::BlockArgument>
    getArgumentsOfKind(::ladle::ArgumentKind kind);
    ::ladle::YieldOp getYield();
    ::mlir::BlockArgument getCache() {
      return getArgumentsOfKind(::ladle::ArgumentKind::Buffer).front();
    }
    /// Whether tokens leave the cache.
    bool isBounded() {
      return ::llvm::cast<::ladle::BufferType>(getCache().getType())
                 .getOrder() == ::ladle::BufferOrder::Bounded;
    }
    /// Null if what leaves the cache is lost.
    ::mlir::Value getMemory() {
      auto memories = getArgumentsOfKind(::ladle::ArgumentKind::Memory);
      return memories.empty() ? ::mlir::Value()
                              : ::mlir::Value(memories.front());
    }
    /// Other numbers for a segmented cache, which gets room for them. Returns
    /// whether it is one.
    bool setSegments(int64_t sinks, int64_t window, int64_t segment);
  }];
}

def Ladle_CacheTokenOp : Ladle_Op<"cache_token", [
    Pure, AllTypesMatch<["cache", "result"]>]> {
  let summary = "the cache with this token in it";
  let description = "One value for each field, as `ladle.append` takes them.";
  let arguments = (ins Ladle_BufferType:$cache,
                       Variadic<Ladle_Value>:$values);
  let results = (outs Ladle_BufferType:$result);
  let assemblyFormat = [{
    $cache `,` $values attr-dict `:` type($cache) `,` type($values)
  }];
  let hasVerifier = 1;
}

def Ladle_SoftmaxOp : Ladle_Op<"softmax", [Pure]> {
  let summary = "the summary of all that is cached, for one query";
  let description = [{
    Σ_j exp(scale q·k_j) and Σ_j exp(scale q·k_j) v_j over the tokens of the
    cache. The first field of the cache holds keys, the second values; their
    heads divide those of the query.
  }];
  let arguments = (ins Ladle_Value:$query, Ladle_BufferType:$cache,
                       F64Attr:$scale);
  let results = (outs Ladle_SummaryType:$result);
  let assemblyFormat = [{
    $query `,` $cache `scale` $scale attr-dict `:`
    type($query) `,` type($cache) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Ladle_MatchOp : Ladle_Op<"match", [
    MemoryEffects<[MemRead<Ladle_SummaryResource>]>]> {
  let summary = "what an earlier token with a query like this one left, or nothing";
  let description = [{
    For each head, the nearest by L2 of the queries of the last `window` tokens,
    ties to the newest, if its distance is less than √(2d) (1 − tau) in units in
    which E‖q‖² = d. E‖q‖² is `moment`, or estimated as the mean over the tokens
    of the sequence so far. A query whose square is NaN or overflows in f32 is
    in no mean, near nothing, and nothing is near it.

    A match further back than `max_gap` tokens, one that skips fewer than `skip`
    tokens, or one whose summary is the `max_chain`-th made from another is
    none; neither is one with `drift`, if the queries that are attended with
    are not nearer than √(2d) (1 − drift), too.
  }];
  let arguments = !con((ins Ladle_Value:$query, Optional<Ladle_Value>:$moment),
                       matchNumbers);
  let results = (outs Ladle_SummaryType:$result);
  let assemblyFormat = [{
    $query (`moment` $moment^)? attr-dict `:` type($query) (`,` type($moment)^)?
    `->` type($result)
  }];
  let hasVerifier = 1;
}

def Ladle_CompleteOp : Ladle_Op<"complete", [
    AllTypesMatch<["prefix", "all", "result"]>,
    MemoryEffects<[MemWrite<Ladle_SummaryResource>]>]> {
  let summary = "a summary, of which the distant part is taken from a match";
  let description = [{
    With p the token that was matched and r = `band`: the tokens up to p − r are
    those of `prefix`, the ones after it those of `all`. Without a match it is
    `all`. The first `sinks` tokens are always of `all`. What the result holds
    up to m − r is left for later tokens.

    With `wide_band`, two summaries are left, up to m − `wide_band` and from
    there to m − r, and a match that lies more than `wide_gap` tokens back takes
    the first of them alone.
  }];
  let arguments = !con((ins Ladle_SummaryType:$prefix, Ladle_SummaryType:$all),
                       bandNumbers);
  let results = (outs Ladle_SummaryType:$result);
  let assemblyFormat = "$prefix `,` $all attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Ladle_MergeOp : Ladle_Op<"merge", [
    Pure, Commutative, SameOperandsAndResultType]> {
  let summary = "the summary of two disjoint pieces of history";
  let description = [{
    m = max(m₁, m₂), Z = Z₁ e^(m₁−m) + Z₂ e^(m₂−m), A likewise. An empty summary
    changes nothing.
  }];
  let arguments = (ins Ladle_SummaryType:$lhs, Ladle_SummaryType:$rhs);
  let results = (outs Ladle_SummaryType:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def Ladle_NormalizeOp : Ladle_Op<"normalize", [Pure]> {
  let summary = "A / Z: what the attention answers; 0 for an empty summary";
  let arguments = (ins Ladle_SummaryType:$summary);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $summary attr-dict `:` type($summary) `to` type($result)
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Step stage: one token on stores
//===----------------------------------------------------------------------===//

def Ladle_AttentionStepOp : Ladle_Op<"attention_step", [
    IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one form of an attention, for one token of one batch row";
  let description = [{
    Arguments are those of the attention with the cache as a store, and a ring
    of summaries if it matches. Bounds between pieces of the history are
    `#ladle.bound`s: which token each is depends on the row and on `band`,
    `sinks` and `wide_band`, which are data when the step runs, and here what
    the attention says.
  }];
  let arguments = !con((ins SymbolNameAttr:$sym_name,
                       FlatSymbolRefAttr:$attention,
                       Ladle_AttentionFormAttr:$form, I64Attr:$page_size,
                       StrArrayAttr:$argument_names,
                       TypedArrayAttrBase<Ladle_ArgumentKind,
                         "argument kinds">:$argument_kinds,
                       StrArrayAttr:$output_names,
                       TypeArrayAttr:$output_types),
                       (ins OptionalAttr<I64Attr>:$band,
                       OptionalAttr<I64Attr>:$sinks,
                       OptionalAttr<I64Attr>:$wide_band,
                       OptionalAttr<I64Attr>:$wide_gap));
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::llvm::StringRef getArgumentName(unsigned index);
    ::ladle::ArgumentKind getArgumentKind(unsigned index);
    ::llvm::SmallVector<::mlir::BlockArgument>
    getArgumentsOfKind(::ladle::ArgumentKind kind);
    ::ladle::YieldOp getYield();
    ::mlir::BlockArgument getCache() {
      return getArgumentsOfKind(::ladle::ArgumentKind::Buffer).front();
    }
    /// Whether tokens leave the cache.
    bool isBounded() {
      return ::llvm::cast<::ladle::BufferType>(getCache().getType())
                 .getOrder() == ::ladle::BufferOrder::Bounded;
    }
    /// Null if what leaves the cache is lost.
    ::mlir::Value getMemory() {
      auto memories = getArgumentsOfKind(::ladle::ArgumentKind::Memory);
      return memories.empty() ? ::mlir::Value()
                              : ::mlir::Value(memories.front());
    }
    /// Null if the step keeps no summaries.
    ::mlir::Value getRing() {
      auto rings = getArgumentsOfKind(::ladle::ArgumentKind::Ring);
      return rings.empty() ? ::mlir::Value() : ::mlir::Value(rings.front());
    }
  }];
}

class Ladle_RingReader<string mnemonic, list<Trait> traits = []>
    : Ladle_Op<mnemonic, traits> {
  dag ring = (ins Arg<Ladle_RingType, "",
                  [MemRead<Ladle_SummaryResource>]>:$ring);
}

def Ladle_FindOp : Ladle_RingReader<"find", [AttrSizedOperandSegments]> {
  let summary = "the entry of a ring whose query is like this one, for each head";
  let description = [{
    `ladle.match` says which. `rotated` is what the attention is computed with:
    it is given if there is a `drift`.
  }];
  let arguments = !con((ins Ladle_Value:$query), ring,
                       (ins Optional<Ladle_Value>:$rotated,
                            Optional<Ladle_Value>:$moment), matchNumbers);
  let results = (outs Ladle_MatchType:$match);
  let assemblyFormat = [{
    $query `,` $ring (`rotated` $rotated^)? (`moment` $moment^)? attr-dict `:`
    type($query) `,` type($ring) (`rotated` type($rotated)^)?
    (`moment` type($moment)^)? `->` type($match)
  }];
  let hasVerifier = 1;
}

def Ladle_ReuseOp : Ladle_RingReader<"reuse"> {
  let summary = "what a matched token left; empty where there is no match";
  let description = [{
    Of a ring with one part, part 0 is the summary up to p − r. Of a ring with
    two, part 0 is what the first summary of this token begins with and part 1
    what its second begins with: a match that lies near gives both parts of p;
    where p − r is already within the wide band of this token, they are parts 0
    and 1 of p as they are, and else part 0 is both of them and part 1 is empty.
  }];
  let arguments = !con(ring, (ins Ladle_MatchType:$match,
                              DefaultValuedAttr<I64Attr, "0">:$part));
  let results = (outs Ladle_SummaryType:$result);
  let assemblyFormat = [{
    $ring `,` $match `part` $part attr-dict `:`
    type($ring) `,` type($match) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Ladle_AttendOp : Ladle_Op<"attend"> {
  let summary = "the summary of a piece of the cache";
  let description = [{
    Of the tokens from one bound to another; with `after`, from the end of what
    the match gives, if that is later.
  }];
  let arguments = (ins Ladle_Value:$query,
                       Arg<Ladle_BufferType, "",
                           [MemRead<Ladle_BufferResource>]>:$cache,
                       Ladle_BoundAttr:$begin, Ladle_BoundAttr:$end,
                       Optional<Ladle_MatchType>:$after, F64Attr:$scale);
  let results = (outs Ladle_SummaryType:$result);
  let assemblyFormat = [{
    $query `,` $cache `from` custom<Bound>($begin) `to` custom<Bound>($end)
    (`after` $after^)? `scale` $scale
    attr-dict `:` type($query) `,` type($cache) (`after` type($after)^)?
    `->` type($result)
  }];
  let hasVerifier = 1;
}

def Ladle_StoreSummaryOp : Ladle_Op<"store_summary", [
    AttrSizedOperandSegments]> {
  let summary = "leave the query and its summaries for later tokens";
  let description = [{
    One summary for each part of the ring. The chain depth that is stored is one
    more than that of the match, or 0 without one.
  }];
  let arguments = (ins Ladle_Value:$query, Variadic<Ladle_SummaryType>:$parts,
                       Arg<Ladle_RingType, "",
                           [MemWrite<Ladle_SummaryResource>]>:$ring,
                       Optional<Ladle_Value>:$rotated,
                       Optional<Ladle_MatchType>:$after);
  let assemblyFormat = [{
    $query `,` $parts `in` $ring (`rotated` $rotated^)? (`after` $after^)?
    attr-dict `:` type($query) `,` type($parts) `in` type($ring)
    (`rotated` type($rotated)^)? (`after` type($after)^)?
  }];
  let hasVerifier = 1;
}

#endif // LADLE_ATTENTION_OPS
