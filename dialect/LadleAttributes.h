//===- LadleAttributes.h - routes, forms, fields ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_DIALECT_LADLEATTRIBUTES_H
#define LADLE_DIALECT_LADLEATTRIBUTES_H

#include "mlir/IR/Attributes.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Types.h"

#include "dialect/LadleEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/LadleAttributes.h.inc"

#endif // LADLE_DIALECT_LADLEATTRIBUTES_H
