//===- EmitObject.h - kernels as object files -------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_EMITOBJECT_H
#define LADLE_TOOLS_LADLE_EMITOBJECT_H

#include "tools/ladle/Commands.h"
#include "tools/ladle/Source.h"

namespace ladle::tool {

/// Writes the kernel of an attention and a header in C for it.
int emitObjectFile(Source &source, const EmitOptions &options);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_EMITOBJECT_H
