//===- TuneAttention.h - ladle tune of an attention -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_TUNEATTENTION_H
#define LADLE_TOOLS_LADLE_TUNEATTENTION_H

#include "tools/ladle/Commands.h"

namespace ladle::tool {

/// `ladle tune FILE --trace ...`: for each layer the cheapest tau, K and r that
/// hold a bound of the error on its traces.
int tuneAttention(const TuneRequest &request);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_TUNEATTENTION_H
