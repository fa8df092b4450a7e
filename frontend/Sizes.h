//===- Sizes.h - which recurrence, at which sizes -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_SIZES_H
#define LADLE_FRONTEND_SIZES_H

#include "frontend/Ast.h"
#include "frontend/Diagnostics.h"
#include "frontend/Options.h"

#include "llvm/ADT/StringMap.h"

namespace ladle::frontend {

/// A larger head count or head size is a mistake.
inline constexpr int64_t maxSize = 1 << 16;
/// Elements of one declared value: 1 GiB of f32.
inline constexpr int64_t maxElements = int64_t(1) << 28;

/// The numbers that a recurrence is elaborated with.
struct Configuration {
  llvm::StringMap<int64_t> sizes;
  /// Those that a preset or the caller sets; the others keep their default.
  llvm::StringMap<double> options;
};

/// The recurrence that the caller asks for; null after an error.
Recurrence *selectRecurrence(SourceFile &file,
                             const ElaborationOptions &options,
                             Diagnostics &diagnostics);

/// Checks all presets of a recurrence, then takes the numbers of the chosen one
/// and of the caller.
std::optional<Configuration> configure(Recurrence &recurrence,
                                       const ElaborationOptions &options,
                                       Diagnostics &diagnostics);

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_SIZES_H
