//===- LadleOps.h - operations of the ladle dialect -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DIALECT_LADLEOPS_H
#define LADLE_DIALECT_LADLEOPS_H

#include "dialect/LadleDialect.h"
#include "dialect/LadleTypes.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace ladle {

/// The pool of states, as a side-effect resource.
struct StateResource : mlir::SideEffects::Resource::Base<StateResource> {
  llvm::StringRef getName() final { return "ladle.state"; }
};

/// The entry buffers and their cursors, as a side-effect resource.
struct BufferResource : mlir::SideEffects::Resource::Base<BufferResource> {
  llvm::StringRef getName() final { return "ladle.buffer"; }
};

/// The rings of summaries, as a side-effect resource.
struct SummaryResource : mlir::SideEffects::Resource::Base<SummaryResource> {
  llvm::StringRef getName() final { return "ladle.summary"; }
};

/// What memories hold of tokens that left a cache, as a side-effect resource.
struct MemoryResource : mlir::SideEffects::Resource::Base<MemoryResource> {
  llvm::StringRef getName() final { return "ladle.memory"; }
};

/// A bound as it stands in an operation: a word.
mlir::ParseResult parseBound(mlir::OpAsmParser &parser, BoundAttr &bound);
void printBound(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                BoundAttr bound);

class YieldOp;

/// The type of a value of all of `most` drafts, of which each has `type`.
mlir::RankedTensorType stackType(mlir::RankedTensorType type, int64_t most);
/// The type of one draft's value in a stack.
mlir::RankedTensorType unstackType(mlir::RankedTensorType type);

} // namespace ladle

#define GET_OP_CLASSES
#include "dialect/LadleOps.h.inc"

#endif // LADLE_DIALECT_LADLEOPS_H
