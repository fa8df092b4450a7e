//===- Passes.h - the passes of Ladle ---------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_PASSES_H
#define LADLE_PASSES_PASSES_H

#include "dialect/LadleOps.h"
#include "mlir/Pass/Pass.h"

namespace ladle {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

} // namespace ladle

#endif // LADLE_PASSES_PASSES_H
