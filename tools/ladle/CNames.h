//===- CNames.h - names that C has taken ------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_CNAMES_H
#define LADLE_TOOLS_LADLE_CNAMES_H

#include "llvm/ADT/StringRef.h"

namespace ladle::tool {

/// Whether a header for C and C++ cannot call a member of a struct `name`: a
/// keyword of either, a name that compilers keep to themselves, or a type of
/// the members.
bool isReservedInC(llvm::StringRef name);

/// The same for a type, which besides meets the functions of string.h.
bool isReservedAsTypeInC(llvm::StringRef name);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_CNAMES_H
