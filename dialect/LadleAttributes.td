//===- LadleAttributes.td - routes, forms, argument kinds --*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_ATTRIBUTES
#define LADLE_ATTRIBUTES

include "dialect/LadleDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class Ladle_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Ladle_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

//===----------------------------------------------------------------------===//
// Routes and forms
//===----------------------------------------------------------------------===//

def Ladle_Route : I32EnumAttr<"Route", "how a decode step uses the history", [
  I32EnumAttrCase<"Recurrent", 0, "recurrent">,
  I32EnumAttrCase<"Outer", 1, "outer">,
  I32EnumAttrCase<"Inner", 2, "inner">,
  I32EnumAttrCase<"Adjoint", 3, "adjoint">,
  I32EnumAttrCase<"KvOnly", 4, "kv_only">,
]> {
  let cppNamespace = "::ladle";
  let genSpecializedAttr = 0;
}

def Ladle_RouteAttr : EnumAttr<Ladle_Dialect, Ladle_Route, "route"> {
  let summary = "the route of a step";
  let description = [{
    All routes give the same output from different bytes and flops.

    | route | reads the checkpoint with | materialises the state | caches |
    |---|---|---|---|
    | `recurrent` | nothing | every step, and stores it | nothing |
    | `outer` | nothing | in registers | key, value, decay |
    | `inner` | every read vector of the token | never | key, value, decay |
    | `adjoint` | one vector an output | never | raw inputs |
    | `kv_only` | nothing, there is no checkpoint | never | key, value, decay |
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Ladle_Form : I32EnumAttr<"Form", "what a step does", [
  I32EnumAttrCase<"Decode", 0, "decode">,
  I32EnumAttrCase<"DecodeFold", 1, "decode_fold">,
  I32EnumAttrCase<"Fold", 2, "fold">,
  I32EnumAttrCase<"Verify", 3, "verify">,
  I32EnumAttrCase<"VerifyFold", 4, "verify_fold">,
  I32EnumAttrCase<"PrefillFold", 5, "prefill_fold">,
  I32EnumAttrCase<"PrefillEntries", 6, "prefill_entries">,
  I32EnumAttrCase<"PrefillScan", 7, "prefill_scan">,
]> {
  let cppNamespace = "::ladle";
  let genSpecializedAttr = 0;
}

def Ladle_FormAttr : EnumAttr<Ladle_Dialect, Ladle_Form, "form"> {
  let summary = "the form of a step";
  let description = [{
    `decode` answers one token and appends it to the buffer; `decode_fold`
    answers one token and folds the buffer and the token into the state in one
    pass; `fold` folds the buffer and answers nothing. `verify` answers the
    drafts of a row and appends them as entries that are not committed yet;
    `verify_fold` folds the committed entries in the same pass, and its drafts
    read the state as it was stored: it is a fold and a verify.

    The others answer the tokens of a prompt, one chunk of them a step, and are
    repeated for the chunks of a row: `prefill_fold` folds each chunk into the
    state, `prefill_entries` appends its tokens as entries, and reads those of
    the chunks before it among the others. What a `prefill_fold` stores is what
    it loads for the next chunk, unrounded: the pool is read before the first
    chunk of a row and written after its last. `prefill_scan` is for prompts
    whose tokens wait for one another: it answers one of them and is repeated
    for those of a row, between which the state stays unrounded, too.
  }];
  let assemblyFormat = "`<` $value `>`";
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def Ladle_AttentionForm : I32EnumAttr<"AttentionForm",
    "what a step of an attention does", [
  I32EnumAttrCase<"Decode", 0, "decode">,
  I32EnumAttrCase<"PrefillAmend", 1, "prefill_amend">,
  I32EnumAttrCase<"PrefillSelect", 2, "prefill_select">,
]> {
  let cppNamespace = "::ladle";
  let genSpecializedAttr = 0;
}

def Ladle_AttentionFormAttr
    : EnumAttr<Ladle_Dialect, Ladle_AttentionForm, "attention_form"> {
  let summary = "the form of a step of an attention";
  let description = [{
    `decode` answers a token of a sequence that goes on. `prefill_amend` answers
    a token of a prompt, without looking for a match; it leaves summaries, so
    that decoding finds a ring that is full. `prefill_select` answers a token of
    a prompt by all tokens before it, of which the cache will keep the most
    salient.
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Ladle_Bound : I32EnumAttr<"Bound", "where a piece of a history ends", [
  I32EnumAttrCase<"Start", 0, "start">,
  I32EnumAttrCase<"Sinks", 1, "sinks">,
  I32EnumAttrCase<"Wide", 2, "wide">,
  I32EnumAttrCase<"Band", 3, "band">,
  I32EnumAttrCase<"End", 4, "end">,
]> {
  let cppNamespace = "::ladle";
  let genSpecializedAttr = 0;
}

def Ladle_BoundAttr : EnumAttr<Ladle_Dialect, Ladle_Bound, "bound"> {
  let summary = "a place between two tokens of a history";
  let description = [{
    Of a history of n tokens, the one that is answered among them: `start` is 0,
    `sinks` comes after the first sinks, `wide` n − wide_band and `band` n − band
    tokens after the start, but never before `sinks`; `end` is n.
  }];
  let assemblyFormat = "`<` $value `>`";
}

//===----------------------------------------------------------------------===//
// Arguments and buffer fields
//===----------------------------------------------------------------------===//

def Ladle_ArgumentKind : I32EnumAttr<"ArgumentKind", "what an argument is", [
  I32EnumAttrCase<"Param", 0, "param">,
  I32EnumAttrCase<"Token", 1, "token">,
  I32EnumAttrCase<"Carry", 2, "carry">,
  I32EnumAttrCase<"State", 3, "state">,
  I32EnumAttrCase<"Buffer", 4, "buffer">,
  I32EnumAttrCase<"Drafts", 5, "drafts">,
  I32EnumAttrCase<"Ring", 6, "ring">,
  I32EnumAttrCase<"Memory", 7, "memory">,
]> {
  let cppNamespace = "::ladle";
}

def Ladle_MemoryKind : I32EnumAttr<"MemoryKind",
    "what a memory keeps of the tokens that left a cache", [
  I32EnumAttrCase<"Linear", 0, "linear">,
  I32EnumAttrCase<"Taylor", 1, "taylor">,
]> {
  let cppNamespace = "::ladle";
  let genSpecializedAttr = 0;
}

def Ladle_OperandClass : I32EnumAttr<"OperandClass",
    "how an operand depends on the state", [
  I32EnumAttrCase<"TokenOnly", 0, "token_only">,
  I32EnumAttrCase<"Affine", 1, "affine">,
  I32EnumAttrCase<"Other", 2, "other">,
]> {
  let cppNamespace = "::ladle";
  let genSpecializedAttr = 0;
}

def Ladle_OperandClassAttr
    : EnumAttr<Ladle_Dialect, Ladle_OperandClass, "operand_class"> {
  let summary = "the class of an operand of a state operation";
  let description = [{
    `token_only`: computed from inputs and carries alone. `affine`: a linear
    combination of reads with token-only coefficients, plus a token-only term.
    `other`: anything else, for instance the tanh of a read.
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Ladle_Side : I32EnumAttr<"Side", "which axis of a state a field runs along", [
  I32EnumAttrCase<"Key", 0, "dk">,
  I32EnumAttrCase<"Value", 1, "dv">,
  I32EnumAttrCase<"Scalar", 2, "scalar">,
]> {
  let cppNamespace = "::ladle";
}

def Ladle_PoolLayout : I32EnumAttr<"PoolLayout", "how a state lies in memory", [
  I32EnumAttrCase<"DvDk", 0, "dv_dk">,
  I32EnumAttrCase<"DkDv", 1, "dk_dv">,
]> {
  let description = [{
    Which of a head's two dimensions is contiguous: in `dv_dk` a row is a vector
    over dk, in `dk_dv` a vector over dv.
  }];
  let cppNamespace = "::ladle";
}

def Ladle_BufferOrder : I32EnumAttr<"BufferOrder", "how entries are laid out", [
  I32EnumAttrCase<"Ring", 0, "ring">,
  I32EnumAttrCase<"Paged", 1, "paged">,
  I32EnumAttrCase<"Indexed", 2, "indexed">,
  I32EnumAttrCase<"Bounded", 3, "bounded">,
]> {
  let description = [{
    Where an entry of the history lies among those of its slot. In a `ring`
    they follow one another; a buffer that is `indexed` has a permutation
    beside it, so that the entries of an accepted path of drafts stay where
    they are. One that is `bounded` holds at most `capacity` tokens, which each
    of its heads may choose for itself.
  }];
  let cppNamespace = "::ladle";
}

def Ladle_BufferWeight : I32EnumAttr<"BufferWeight", "how an entry is weighted", [
  I32EnumAttrCase<"Linear", 0, "linear">,
  I32EnumAttrCase<"Exp", 1, "exp">,
]> {
  let cppNamespace = "::ladle";
}

def Ladle_FieldAttr : Ladle_Attr<"Field", "field"> {
  let summary = "a field of a buffer entry";
  let description = [{
    `shape` is the shape of the field in one entry, heads first. `side` says
    which axis of the state the last dimension runs along.

    ```mlir
    #ladle.field<k : 16x128xbf16 @dk>
    ```
  }];
  let parameters = (ins StringRefParameter<>:$name,
                        ArrayRefParameter<"int64_t">:$shape,
                        "::mlir::Type":$elementType,
                        "::ladle::Side":$side);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The text between the angle brackets, which a buffer type repeats.
    static FieldAttr parseBody(::mlir::AsmParser &parser);
    void printBody(::mlir::AsmPrinter &printer) const;
  }];
}

def Ladle_TransitionAttr : Ladle_Attr<"Transition", "transition"> {
  let summary = "how a raw entry changes the state";
  let description = [{
    One token of a recurrence whose operands do not depend on the state:

        S ← D S + Σ_i k_i (v_i + Σ_r c_ir (Sᵀ a_ir))ᵀ

    named by the fields of an entry. `decay` names D or is empty. For write i,
    `keys[i]`, `keyScales[i]` and `values[i]`, `valueScales[i]` name k_i and
    v_i (a value may be empty). Read r belongs to write `readOwners[r]`, has
    the coefficient field `coefficients[r]`, the vector `vectors[r]` times
    `vectorScales[r]`, and is taken from D S in place of S if
    `afterDecay[r]` is 1.
  }];
  let parameters = (ins StringRefParameter<>:$decay,
    OptionalArrayRefParameter<"::mlir::StringAttr">:$keys,
    OptionalArrayRefParameter<"::mlir::StringAttr">:$keyScales,
    OptionalArrayRefParameter<"::mlir::StringAttr">:$values,
    OptionalArrayRefParameter<"::mlir::StringAttr">:$valueScales,
    OptionalArrayRefParameter<"int64_t">:$readOwners,
    OptionalArrayRefParameter<"::mlir::StringAttr">:$coefficients,
    OptionalArrayRefParameter<"::mlir::StringAttr">:$vectors,
    OptionalArrayRefParameter<"::mlir::StringAttr">:$vectorScales,
    OptionalArrayRefParameter<"int64_t">:$afterDecay);
  let assemblyFormat = [{
    `<` `decay` `=` $decay
    `,` `keys` `=` `[` (`]`) : ($keys^ `]`)?
    `,` `key_scales` `=` `[` (`]`) : ($keyScales^ `]`)?
    `,` `values` `=` `[` (`]`) : ($values^ `]`)?
    `,` `value_scales` `=` `[` (`]`) : ($valueScales^ `]`)?
    `,` `owners` `=` `[` (`]`) : ($readOwners^ `]`)?
    `,` `coefficients` `=` `[` (`]`) : ($coefficients^ `]`)?
    `,` `vectors` `=` `[` (`]`) : ($vectors^ `]`)?
    `,` `vector_scales` `=` `[` (`]`) : ($vectorScales^ `]`)?
    `,` `after_decay` `=` `[` (`]`) : ($afterDecay^ `]`)? `>`
  }];
}

#endif // LADLE_ATTRIBUTES
