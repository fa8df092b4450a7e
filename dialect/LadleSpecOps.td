//===- LadleSpecOps.td - one token of a recurrence ---------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_SPEC_OPS
#define LADLE_SPEC_OPS

include "dialect/LadleOpBase.td"

def Ladle_RecurrenceOp : Ladle_Op<"recurrence", [
    IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one token of a recurrence, as its author wrote it";
  let description = [{
    The region computes the outputs and the next carries and states of one
    token from its arguments. Arguments are `param` (constants of the layer),
    `token` (inputs), `carry` (small values kept from token to token, zero at
    first) and `state`, in this order. The terminator yields the outputs, then
    the next carries, then the next states, in declaration order.

    ```mlir
    ladle.recurrence @linear_attention(
        token %q: tensor<4x64xf32>, token %k: tensor<4x64xf32>,
        token %v: tensor<4x64xf32>, state %S: !ladle.state<4x64x64xf32>)
        -> (y: tensor<4x64xf32>) {
      %next = ladle.write %S, %k, %v : !ladle.state<4x64x64xf32>,
              tensor<4x64xf32>, tensor<4x64xf32>
      %y = ladle.read %next, %q : !ladle.state<4x64x64xf32>, tensor<4x64xf32>
           -> tensor<4x64xf32>
      ladle.yield %y, %next : tensor<4x64xf32>, !ladle.state<4x64x64xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       StrArrayAttr:$argument_names,
                       TypedArrayAttrBase<Ladle_ArgumentKind,
                         "argument kinds">:$argument_kinds,
                       StrArrayAttr:$output_names,
                       TypeArrayAttr:$output_types);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    unsigned getNumArguments() { return getBody().getNumArguments(); }
    ::llvm::StringRef getArgumentName(unsigned index);
    ::ladle::ArgumentKind getArgumentKind(unsigned index);
    /// The block arguments of one kind, in declaration order.
    ::llvm::SmallVector<::mlir::BlockArgument>
    getArgumentsOfKind(::ladle::ArgumentKind kind);
    ::ladle::YieldOp getYield();
    /// Operands of the terminator, by group.
    ::mlir::ValueRange getYieldedOutputs();
    ::mlir::ValueRange getYieldedCarries();
    ::mlir::ValueRange getYieldedStates();
  }];
}

def Ladle_YieldOp : Ladle_Op<"yield", [
    Pure, Terminator,
    ParentOneOf<["RecurrenceOp", "StepOp", "AttentionOp", "AttentionStepOp",
                 "FoldSegmentOp", "FoldFromOp"]>]> {
  let summary = "the outputs, next carries and next states of a token";
  let description = [{
    In a `ladle.step` the states are in their pools, so that only outputs and
    carries are yielded. An attention yields its outputs, its cache and its
    memory, and a `ladle.attention_step` its outputs. The features of a fold
    yield those of a key.
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

def Ladle_DecayOp : Ladle_Op<"decay", [
    Pure, AllTypesMatch<["state", "result"]>]> {
  let summary = "S ← diag(a) S";
  let description = [{
    `factor` is [heads] (a scalar a head) or [heads, dk] (one a key channel);
    its head count divides that of the state.
  }];
  let arguments = (ins Ladle_StateType:$state, Ladle_Value:$factor);
  let results = (outs Ladle_StateType:$result);
  let assemblyFormat = [{
    $state `,` $factor attr-dict `:` type($state) `,` type($factor)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    /// True if the decay is one number a head.
    bool isScalar() { return getFactor().getType().getRank() == 1; }
  }];
}

def Ladle_WriteOp : Ladle_Op<"write", [
    Pure, AllTypesMatch<["state", "result"]>]> {
  let summary = "S ← S + k uᵀ";
  let description = [{
    `key` is [heads, dk] and `value` [heads, dv]; with a rank R, [heads, R, dk]
    and [heads, R, dv], and the R products are added. Head counts divide that
    of the state.
  }];
  let arguments = (ins Ladle_StateType:$state, Ladle_Value:$key,
                       Ladle_Value:$value);
  let results = (outs Ladle_StateType:$result);
  let assemblyFormat = [{
    $state `,` $key `,` $value attr-dict `:`
    type($state) `,` type($key) `,` type($value)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Ladle_ReadOp : Ladle_Op<"read", [Pure]> {
  let summary = "Sᵀ q";
  let description = [{
    `query` is [heads, dk] or [heads, R, dk]; the result has the heads of the
    state, and dv in place of dk.
  }];
  let arguments = (ins Ladle_StateType:$state, Ladle_Value:$query);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $state `,` $query attr-dict `:` type($state) `,` type($query)
    `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif // LADLE_SPEC_OPS
