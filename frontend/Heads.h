//===- Heads.h - the heads of declared values ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_HEADS_H
#define LADLE_FRONTEND_HEADS_H

#include "frontend/Ast.h"
#include "frontend/Scope.h"

namespace ladle::frontend {

/// Reports what a recurrence declares with heads that do not divide those of
/// its states. A kernel goes through the heads of the states once, so that
/// nothing has more.
void checkHeads(const Recurrence &recurrence, const Scope &scope,
                Diagnostics &diagnostics);

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_HEADS_H
