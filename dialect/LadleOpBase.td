//===- LadleOpBase.td - what the operations share ----------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_OP_BASE
#define LADLE_OP_BASE

include "dialect/LadleTypes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Ladle_Op<string mnemonic, list<Trait> traits = []>
    : Op<Ladle_Dialect, mnemonic, traits>;

// Values of a token: f32 tensors, heads first.
def Ladle_Value : Type<And<[
    F32Tensor.predicate,
    CPred<"::llvm::cast<::mlir::ShapedType>($_self).hasStaticShape()">,
    CPred<"::llvm::cast<::mlir::ShapedType>($_self).getRank() >= 1">,
    CPred<"!::llvm::is_contained("
          "::llvm::cast<::mlir::ShapedType>($_self).getShape(), 0)">]>,
  "f32 tensor of positive static shape, heads first",
  "::mlir::RankedTensorType">;

#endif // LADLE_OP_BASE
