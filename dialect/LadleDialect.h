//===- LadleDialect.h - the ladle dialect -----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DIALECT_LADLEDIALECT_H
#define LADLE_DIALECT_LADLEDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Dialect.h"

#include "dialect/LadleDialect.h.inc"

#endif // LADLE_DIALECT_LADLEDIALECT_H
