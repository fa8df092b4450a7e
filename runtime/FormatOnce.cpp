//===- FormatOnce.cpp - fmt, compiled once --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/FormatOnce.h"

#ifdef LADLE_FORMAT_ONCE
LADLE_FORMAT_ONCE;
#endif
