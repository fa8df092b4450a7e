//===- LadleStepOps.td - a step on stores ------------------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_STEP_OPS
#define LADLE_STEP_OPS

include "dialect/LadleOpBase.td"

def Ladle_StateResource : Resource<"::ladle::StateResource">;
def Ladle_BufferResource : Resource<"::ladle::BufferResource">;

def Ladle_StepOp : Ladle_Op<"step", [
    IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "one form of one route of a recurrence, for one batch row";
  let description = [{
    Arguments are those of the recurrence with a `!ladle.pool` in place of each
    state, and one `buffer` for each state whose history is cached. Token,
    parameter and carry arguments are loaded by whoever schedules the step;
    the terminator yields the outputs and the next carries.

    A verify step has a `drafts` argument besides. Its tokens are those of the
    draft at hand, so that only the region of a `ladle.each_draft` uses them; it
    yields outputs and carries stacked. So does a prefill step, whose drafts are
    the tokens of a chunk, a chain.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       FlatSymbolRefAttr:$recurrence,
                       Ladle_RouteAttr:$route, Ladle_FormAttr:$form,
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
    ::llvm::SmallVector<::mlir::BlockArgument>
    getArgumentsOfKind(::ladle::ArgumentKind kind);
    ::ladle::YieldOp getYield();
    ::mlir::ValueRange getYieldedOutputs();
    ::mlir::ValueRange getYieldedCarries();
    /// Whether it answers drafts.
    bool verifies() {
      return getForm() == ::ladle::Form::Verify ||
             getForm() == ::ladle::Form::VerifyFold;
    }
    /// Whether it answers a chunk of a prompt at once.
    bool prefills() {
      return getForm() == ::ladle::Form::PrefillFold ||
             getForm() == ::ladle::Form::PrefillEntries;
    }
    /// Whether it answers several tokens of a row, whose values are stacked.
    bool isStacked() { return verifies() || prefills(); }
    /// The drafts of a step that is stacked.
    ::mlir::BlockArgument getDrafts() {
      return getArgumentsOfKind(::ladle::ArgumentKind::Drafts).front();
    }
  }];
}

//===----------------------------------------------------------------------===//
// State pool
//===----------------------------------------------------------------------===//

def Ladle_LoadStateOp : Ladle_Op<"load_state"> {
  let summary = "the state of this row's read slot";
  let description = [{
    The value is f32 whatever the pool stores. Nothing says that it is ever
    materialised: a read of it streams the pool.
  }];
  let arguments = (ins Arg<Ladle_PoolType, "",
                       [MemRead<Ladle_StateResource>]>:$pool);
  let results = (outs Ladle_StateType:$state);
  let assemblyFormat = "$pool attr-dict `:` type($pool) `to` type($state)";
  let hasVerifier = 1;
}

def Ladle_StoreStateOp : Ladle_Op<"store_state"> {
  let summary = "replace the state of this row's write slot";
  let arguments = (ins Ladle_StateType:$state,
                       Arg<Ladle_PoolType, "",
                       [MemWrite<Ladle_StateResource>]>:$pool);
  let assemblyFormat = [{
    $state `,` $pool attr-dict `:` type($state) `,` type($pool)
  }];
  let hasVerifier = 1;
}

def Ladle_ZeroStateOp : Ladle_Op<"zero_state", [Pure]> {
  let summary = "the state of an empty history";
  let results = (outs Ladle_StateType:$state);
  let assemblyFormat = "attr-dict `:` type($state)";
}

//===----------------------------------------------------------------------===//
// Entry buffer
//===----------------------------------------------------------------------===//

class Ladle_BufferReader<string mnemonic, list<Trait> traits = []>
    : Ladle_Op<mnemonic, traits> {
  dag buffer = (ins Arg<Ladle_BufferType, "",
                    [MemRead<Ladle_BufferResource>]>:$buffer);
}

def Ladle_DecayProductOp : Ladle_BufferReader<"decay_product"> {
  let summary = "γ: the product of the decays of all entries";
  let description = [{
    1 for an empty buffer. `decay` names the field that holds the decay of
    each entry's token, [heads] or [heads, dk].
  }];
  let arguments = !con(buffer, (ins StrAttr:$decay));
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $buffer `decay` $decay attr-dict `:` type($buffer) `to` type($result)
  }];
  let hasVerifier = 1;
}

def Ladle_ReadBufferOp : Ladle_BufferReader<"read_buffer"> {
  let summary = "Σ_j (w_j ∘ k_j · q) u_j over the entries, for each query";
  let description = [{
    Reads the unfolded history with each of `queries`. w_j is the product of
    the decays of the entries after j (1 without a `decay` field), so that it
    is never larger than the decays allow and needs no logarithm. The key of
    an entry is `key`, times the scalar `key_scale` if given; its value is
    `value`, times `value_scale` if given. With a rank R an entry has R keys
    and R values.
  }];
  let arguments = !con(buffer, (ins Variadic<Ladle_Value>:$queries,
                       StrAttr:$key, OptionalAttr<StrAttr>:$key_scale,
                       StrAttr:$value, OptionalAttr<StrAttr>:$value_scale,
                       OptionalAttr<StrAttr>:$decay));
  let results = (outs Variadic<Ladle_Value>:$results);
  let assemblyFormat = [{
    $buffer `[` $queries `]` `key` $key (`*` $key_scale^)?
    `value` $value (`*` $value_scale^)? (`decay` $decay^)?
    attr-dict `:` type($buffer) `,` type($queries) `->` type($results)
  }];
  let hasVerifier = 1;
}

def Ladle_FoldBufferOp : Ladle_BufferReader<"fold_buffer", [
    AllTypesMatch<["state", "result"]>]> {
  let summary = "S + Σ_j (w_j ∘ k_j) u_jᵀ over the entries";
  let description = [{
    The same sum as `ladle.read_buffer`, into a state that has already been
    decayed by `ladle.decay_product`.
  }];
  let arguments = !con((ins Ladle_StateType:$state), buffer, (ins
                       StrAttr:$key, OptionalAttr<StrAttr>:$key_scale,
                       StrAttr:$value, OptionalAttr<StrAttr>:$value_scale,
                       OptionalAttr<StrAttr>:$decay));
  let results = (outs Ladle_StateType:$result);
  let assemblyFormat = [{
    $state `,` $buffer `key` $key (`*` $key_scale^)?
    `value` $value (`*` $value_scale^)? (`decay` $decay^)?
    attr-dict `:` type($state) `,` type($buffer)
  }];
  let hasVerifier = 1;
}

def Ladle_TransportOp : Ladle_BufferReader<"transport", [
    SameVariadicResultSize]> {
  let summary = "carry queries back through the raw entries";
  let description = [{
    Walks from the newest entry to the oldest, for each query t:

        y += Σ_i (t·k_i) v_i ;  t ← Dᵀ t + Σ_ir c_ir (t·k_i) a_ir

    and gives t (`origins`), with which the checkpoint is to be read, and y
    (`partials`), the part of the answer that the entries hold.
  }];
  let arguments = !con(buffer, (ins Variadic<Ladle_Value>:$queries,
                       Ladle_TransitionAttr:$transition));
  let results = (outs Variadic<Ladle_Value>:$origins,
                      Variadic<Ladle_Value>:$partials);
  let assemblyFormat = [{
    $buffer `[` $queries `]` `through` $transition attr-dict `:`
    type($buffer) `,` type($queries) `->` type($origins) `and` type($partials)
  }];
  let hasVerifier = 1;
}

def Ladle_ReplayOp : Ladle_BufferReader<"replay", [
    AllTypesMatch<["state", "result"]>]> {
  let summary = "apply the raw entries to a state, oldest first";
  let arguments = !con((ins Ladle_StateType:$state), buffer, (ins
                       Ladle_TransitionAttr:$transition));
  let results = (outs Ladle_StateType:$result);
  let assemblyFormat = [{
    $state `,` $buffer `through` $transition attr-dict `:`
    type($state) `,` type($buffer)
  }];
  let hasVerifier = 1;
}

def Ladle_AppendOp : Ladle_Op<"append"> {
  let summary = "append one entry";
  let description = [{
    One value for each field, in the order of the buffer's type. A value whose
    field has a narrower element type is rounded to it. The row's length grows
    by one when the step ends.
  }];
  let arguments = (ins Arg<Ladle_BufferType, "",
                       [MemWrite<Ladle_BufferResource>]>:$buffer,
                       Variadic<Ladle_Value>:$values);
  let assemblyFormat = [{
    $buffer `,` $values attr-dict `:` type($buffer) `,` type($values)
  }];
  let hasVerifier = 1;
}

def Ladle_ClearOp : Ladle_Op<"clear"> {
  let summary = "drop all entries";
  let arguments = (ins Arg<Ladle_BufferType, "",
                       [MemWrite<Ladle_BufferResource>]>:$buffer);
  let assemblyFormat = "$buffer attr-dict `:` type($buffer)";
}

#endif // LADLE_STEP_OPS
