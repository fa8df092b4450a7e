//===- Sema.h - what a recurrence means ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_SEMA_H
#define LADLE_FRONTEND_SEMA_H

#include "frontend/Scope.h"
#include "frontend/Sizes.h"

namespace ladle::frontend {

/// Checks the declarations and statements of a recurrence at the sizes of
/// `configuration`, fills in the tree, and gives its names. A null result
/// follows on errors; all of them are reported.
std::optional<Scope> checkRecurrence(Recurrence &recurrence,
                                     const Configuration &configuration,
                                     const ElaborationOptions &options,
                                     Diagnostics &diagnostics);

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_SEMA_H
