//===- Locations.h - names that locations carry -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_BUILD_LOCATIONS_H
#define LADLE_PASSES_BUILD_LOCATIONS_H

#include "mlir/IR/Location.h"

namespace ladle {

/// Of an operation that helps to compute a value of the source: the name stays
/// with the operation that gives the value.
inline mlir::Location unnamed(mlir::Location location) {
  while (auto named = llvm::dyn_cast<mlir::NameLoc>(location))
    location = named.getChildLoc();
  return location;
}

} // namespace ladle

#endif // LADLE_PASSES_BUILD_LOCATIONS_H
