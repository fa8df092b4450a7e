//===- SourceChoices.h - what a command compiles ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_SOURCECHOICES_H
#define LADLE_TOOLS_LADLE_SOURCECHOICES_H

#include "frontend/Options.h"
#include "ladle/compile.h"
#include "tools/ladle/Commands.h"

namespace ladle::tool {

/// Which recurrence or attention of a file, and its sizes and options. Types of
/// states are as declared.
frontend::ElaborationOptions elaborationOf(const SourceOptions &source);

/// The same of a recurrence for a program, with the storage of states and
/// entries.
CompileOptions compileOptionsOf(const SourceOptions &source);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_SOURCECHOICES_H
