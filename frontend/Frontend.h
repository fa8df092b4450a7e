//===- Frontend.h - from a .ladle file to the spec stage ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_FRONTEND_H
#define LADLE_FRONTEND_FRONTEND_H

#include "frontend/Options.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/SourceMgr.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ladle::frontend {

/// Parses the main file of `sourceManager` and elaborates one recurrence into
/// a module that holds one `ladle.recurrence`, or an attention into one with a
/// `ladle.attention` if the options take it. Diagnostics go to the handler of
/// `sourceManager`; returns null if there was an error. The locations name the
/// buffer, so that an mlir::SourceMgrDiagnosticHandler over the same source
/// manager shows the source lines of what later passes report.
mlir::OwningOpRef<mlir::ModuleOp>
compileToSpec(mlir::MLIRContext &context, llvm::SourceMgr &sourceManager,
              const ElaborationOptions &options);

/// What a file offers, for lists and completions.
struct PresetInfo {
  std::string name;
  /// Sizes and options in the order in which the preset sets them.
  std::vector<std::pair<std::string, double>> values;
};

/// A token as it is declared; a dimension is its text, "D" or "D / 2".
struct TokenInfo {
  std::string name;
  std::vector<std::string> dims;
};

struct RecurrenceInfo {
  std::string name;
  bool isAttention = false;
  std::vector<std::string> sizes;
  std::vector<TokenInfo> tokens;
  std::vector<PresetInfo> presets;
};

/// Parses without elaborating; nothing after an error, which is reported.
std::optional<std::vector<RecurrenceInfo>>
listRecurrences(llvm::SourceMgr &sourceManager);

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_FRONTEND_H
