//===- TokenInterface.h - arguments and outputs of a token ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A `ladle.recurrence` and a `ladle.step` are both a list of named arguments
// with kinds, named outputs, and a region of one block.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DIALECT_TOKENINTERFACE_H
#define LADLE_DIALECT_TOKENINTERFACE_H

#include "dialect/LadleOps.h"

namespace ladle {

/// Parses `(kind %name: type, ...) -> (name: type, ...) attributes {region}`.
mlir::ParseResult parseTokenInterface(mlir::OpAsmParser &parser,
                                      mlir::OperationState &result);

/// Prints what `parseTokenInterface` parses. `elided` names the attributes
/// that the operation has printed itself.
void printTokenInterface(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                         mlir::ArrayAttr kinds, mlir::ArrayAttr outputNames,
                         mlir::ArrayAttr outputTypes,
                         llvm::ArrayRef<llvm::StringRef> elided);

/// Names and kinds match the block arguments; names are unique; values other
/// than stores are tensors, heads first.
mlir::LogicalResult verifyTokenInterface(mlir::Operation *op,
                                         mlir::ArrayAttr names,
                                         mlir::ArrayAttr kinds,
                                         mlir::ArrayAttr outputNames,
                                         mlir::ArrayAttr outputTypes);

/// The yielded values have exactly the `expected` types.
mlir::LogicalResult verifyYieldTypes(YieldOp yield,
                                     llvm::ArrayRef<mlir::Type> expected);

llvm::SmallVector<mlir::BlockArgument>
argumentsOfKind(mlir::Region &body, mlir::ArrayAttr kinds, ArgumentKind kind);

void setTokenArgumentNames(mlir::ArrayAttr names, mlir::Region &region,
                           mlir::OpAsmSetValueNameFn setName);

} // namespace ladle

#endif // LADLE_DIALECT_TOKENINTERFACE_H
