//===- LadleDialect.td - the ladle dialect -----------------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DIALECT
#define LADLE_DIALECT

include "mlir/IR/OpBase.td"

def Ladle_Dialect : Dialect {
  let name = "ladle";
  let cppNamespace = "::ladle";
  let summary = "Decoding of linear attention: states, buffers, summaries";
  let description = [{
    The history of a sequence is held in three kinds of store: a *state* (the
    folded history, of fixed size), a *buffer* of entries (the recent history,
    unfolded) and a *summary* (an evaluated piece of history, for one query).

    The dialect serves two stages. At the **spec** stage a `ladle.recurrence`
    holds one token of a recurrence as its author wrote it; a state is a pure
    value that is only decayed, written and read. At the **step** stage a
    `ladle.step` holds one form (decode, fold, verify …) of one route;
    pools and buffers are stores with effects, so that a reader sees what is
    loaded and what is stored.

    Values are ranked tensors whose dimension 0 counts heads; 1 means that all
    heads share the value. Elementwise arithmetic is upstream `arith` and
    `math` on f32 tensors of equal shape; a broadcast is always explicit.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect",
  ];
  let hasConstantMaterializer = 1;
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = [{
    void registerTypes();
    void registerAttributes();
  }];
}

#endif // LADLE_DIALECT
