//===- LadleDialect.cpp - registration of the dialect ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleDialect.h"
#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include "dialect/LadleDialect.cpp.inc"

void ladle::LadleDialect::initialize() {
  registerAttributes();
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "dialect/LadleOps.cpp.inc"
      >();
}

mlir::Operation *
ladle::LadleDialect::materializeConstant(mlir::OpBuilder &builder,
                                         mlir::Attribute value, mlir::Type type,
                                         mlir::Location loc) {
  return mlir::arith::ConstantOp::materialize(builder, value, type, loc);
}
