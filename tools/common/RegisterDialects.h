//===- RegisterDialects.h - the dialects of Ladle's IR ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_COMMON_REGISTERDIALECTS_H
#define LADLE_TOOLS_COMMON_REGISTERDIALECTS_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace ladle {

/// Registers every dialect that occurs in some stage of Ladle's IR, so that
/// all tools that read IR accept the same files.
void registerDialects(mlir::DialectRegistry &registry);

} // namespace ladle

#endif // LADLE_TOOLS_COMMON_REGISTERDIALECTS_H
