//===- LadleVerifyOps.td - the drafts of a row at once -----*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a verify step does with the tree of its drafts. Values are stacked:
// [heads, T, ...] for a tree of T drafts. The ancestors of a draft are its
// parent, the parent of that, and so on; a draft is none of its own.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_VERIFY_OPS
#define LADLE_VERIFY_OPS

include "dialect/LadleOpBase.td"
include "dialect/LadleStepOps.td"

def Ladle_EachDraftOp : Ladle_Op<"each_draft", [
    Pure, SingleBlock, AttrSizedOperandSegments]> {
  let summary = "the arithmetic of each draft, parents first";
  let description = [{
    The region computes the values of one draft. Its arguments are the draft's
    part of each of `stacks`, and then, for each of `carries`, what the parent
    of the draft left behind, or the carry itself for a draft without a parent.
    The terminator yields the values that are stacked, and then the carries that
    the draft leaves behind, which are stacked too.

    Tokens of the step that occur in the region are those of the draft.

    ```mlir
    %k, %next = ladle.each_draft %drafts : !ladle.drafts<8> stacks(%s : tensor<4x8x64xf32>)
                carries(%z : tensor<4x64xf32>) {
    ^bb0(%a: tensor<4x64xf32>, %before: tensor<4x64xf32>):
      %0 = arith.addf %before, %a : tensor<4x64xf32>
      %1 = arith.mulf %0, %token : tensor<4x64xf32>
      ladle.yield_draft %1, %0 : tensor<4x64xf32>, tensor<4x64xf32>
    } -> tensor<4x8x64xf32>, tensor<4x8x64xf32>
    ```
  }];
  let arguments = (ins Ladle_DraftsType:$drafts, Variadic<AnyRankedTensor>:$stacks,
                       Variadic<AnyRankedTensor>:$carries);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $drafts `:` type($drafts) (`stacks` `(` $stacks^ `:` type($stacks) `)`)?
    (`carries` `(` $carries^ `:` type($carries) `)`)? attr-dict-with-keyword
    $body `->` type($results)
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::ladle::YieldDraftOp getYield();
    /// The part of a stack, and the carry, that an argument stands for.
    unsigned getNumStacks() { return getStacks().size(); }
    /// The results that are carries, last.
    ::mlir::ResultRange getNextCarries() {
      return getResults().take_back(getCarries().size());
    }
  }];
}

def Ladle_YieldDraftOp : Ladle_Op<"yield_draft", [
    Pure, Terminator, HasParent<"EachDraftOp">]> {
  let summary = "the values of one draft";
  let arguments = (ins Variadic<AnyRankedTensor>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

def Ladle_PathDecayOp : Ladle_Op<"path_decay", [
    Pure, AllTypesMatch<["decays", "result"]>]> {
  let summary = "the product of the decays of a draft's ancestors";
  let description = [{
    `decays` is [heads, T] or [heads, T, dk]. A draft without a parent gets 1.
    With cumulative log decays G this is e^{G_s} before the decay of s itself.
  }];
  let arguments = (ins Ladle_DraftsType:$drafts, Ladle_Value:$decays);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $decays `along` $drafts attr-dict `:` type($drafts) `,` type($decays)
  }];
  let hasVerifier = 1;
}

def Ladle_PathGramOp : Ladle_Op<"path_gram", [Pure]> {
  let summary = "products of queries with the keys of ancestors";
  let description = [{
    `queries` is [heads, T, (R,) dk] and `keys` [heads, T, (K,) dk]; the result
    is [heads, T, R, T, K], where R and K are 1 for values without a rank:

        g[s, r, a, i] = Σ_c q[s, r, c] w[s, a, c] k[a, i, c]

    for each ancestor a of s, and 0 elsewhere. w[s, a] is the product of the
    decays of the drafts between a and s: those of a and s do not count. That is
    e^{G_s − G_a}, of differences along a path only, so that nothing overflows.
    `decays` is [heads, T] or [heads, T, dk], absent for a state that is never
    decayed.

    A schedule is free to take products or differences of logarithms, and to
    block them for tensor cores.
  }];
  let arguments = (ins Ladle_DraftsType:$drafts, Ladle_Value:$queries,
                       Ladle_Value:$keys, Optional<Ladle_Value>:$decays);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $queries `,` $keys (`decay` $decays^)? `along` $drafts attr-dict `:`
    type($drafts) `,` type($queries) `,` type($keys) (`,` type($decays)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

class Ladle_PathSum<string mnemonic, list<Trait> traits = []>
    : Ladle_Op<mnemonic, [Pure, AttrSizedOperandSegments] # traits>;

def Ladle_PathProductOp : Ladle_PathSum<"path_product"> {
  let summary = "values of ancestors, weighted by Gram products";
  let description = [{
    y[s, r] = Σ_g Σ_a Σ_i grams_g[s, r, a, i] values_g[a, i] over the ancestors
    a of s: a masked matrix product. `values` are [heads, T, (K,) D], the result
    is [heads, T, (R,) D].
  }];
  let arguments = (ins Ladle_DraftsType:$drafts, Variadic<Ladle_Value>:$grams,
                       Variadic<Ladle_Value>:$values);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    `[` $grams `:` type($grams) `]` `of` `[` $values `:` type($values) `]`
    `along` $drafts attr-dict `:` type($drafts) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Ladle_PathSolveOp : Ladle_PathSum<"path_solve"> {
  let summary = "U = (I − A)⁻¹ R, strictly lower triangular along ancestors";
  let description = [{
    Solves for all of `results` together, which have the types of `rhs`:

        u_i[s, r] = rhs_i[s, r]
                    + scale_i[s, r] ∘ Σ_g Σ_a Σ_j grams_g[s, r, a, j] u_c(g)[a, j]

    over the Gram products g with `rows[g]` = i and the ancestors a of s, where
    c(g) = `columns[g]`. Ancestors come first, so that one substitution suffices.
    A write whose reads are multiplied by one number a channel has a scale, of
    the type of its right-hand side: scale k belongs to i = `scaled[k]`. Other
    numbers are in the Gram products.
  }];
  let arguments = (ins Ladle_DraftsType:$drafts, Variadic<Ladle_Value>:$rhs,
                       Variadic<Ladle_Value>:$grams,
                       Variadic<Ladle_Value>:$scales,
                       DenseI64ArrayAttr:$rows, DenseI64ArrayAttr:$columns,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$scaled);
  let results = (outs Variadic<Ladle_Value>:$results);
  let assemblyFormat = [{
    `[` $rhs `:` type($rhs) `]` `through` `[` $grams `:` type($grams) `]`
    `rows` $rows `columns` $columns
    (`scales` `[` $scales^ `:` type($scales) `]` `of` $scaled)?
    `along` $drafts attr-dict `:` type($drafts) `->` type($results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Of unknown `row`, or null.
    ::mlir::Value getScale(size_t row);
  }];
}

def Ladle_FoldDraftsOp : Ladle_Op<"fold_drafts", [
    Pure, AttrSizedOperandSegments, AllTypesMatch<["state", "result"]>]> {
  let summary = "the state after all drafts of a chain";
  let description = [{
    With the products w[a] of the decays of the drafts after a, and W that of
    all decays,

        S' = diag(W) S + Σ_i Σ_a Σ_r (w[a] ∘ k_i[a, r]) u_i[a, r]ᵀ

    for the writes i, whose `keys` are [heads, T, (R,) dk] and `values`
    [heads, T, (R,) dv]. `decays` is [heads, T] or [heads, T, dk], absent for a
    state that is never decayed.
  }];
  let arguments = (ins Ladle_StateType:$state, Ladle_DraftsType:$drafts,
                       Variadic<Ladle_Value>:$keys, Variadic<Ladle_Value>:$values,
                       Optional<Ladle_Value>:$decays);
  let results = (outs Ladle_StateType:$result);
  let assemblyFormat = [{
    $state (`keys` `[` $keys^ `:` type($keys) `]`)?
    (`values` `[` $values^ `:` type($values) `]`)?
    (`decay` $decays^ `:` type($decays))? `along` $drafts attr-dict `:`
    type($state) `,` type($drafts)
  }];
  let hasVerifier = 1;
}

def Ladle_AppendDraftsOp : Ladle_Op<"append_drafts"> {
  let summary = "append an entry for each draft";
  let description = [{
    One stack for each field, in the order of the buffer's type. Draft s becomes
    the s-th entry after the committed ones; which of them stay is decided
    later.
  }];
  let arguments = (ins Arg<Ladle_BufferType, "",
                       [MemWrite<Ladle_BufferResource>]>:$buffer,
                       Ladle_DraftsType:$drafts, Variadic<Ladle_Value>:$values);
  let assemblyFormat = [{
    $buffer `,` $values `along` $drafts attr-dict `:` type($buffer) `,`
    type($drafts) `,` type($values)
  }];
  let hasVerifier = 1;
}

#endif // LADLE_VERIFY_OPS
