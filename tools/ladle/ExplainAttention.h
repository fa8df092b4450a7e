//===- ExplainAttention.h - ladle explain of an attention -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_EXPLAINATTENTION_H
#define LADLE_TOOLS_LADLE_EXPLAINATTENTION_H

#include "dialect/LadleOps.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Source.h"

namespace ladle::tool {

/// Prints what an attention moves, where reuse pays, and what it keeps.
int explainAttention(Source &source, const ExplainOptions &options);
/// The same of a step whose cache is bounded.
void explainBounded(AttentionStepOp step, bool json);

/// tau = 1 − √(F⁻¹(chance) / d), F of χ² with d degrees of freedom: at which
/// two random queries of d dimensions match with such a chance, at most 1/2.
double tauOfChance(double chance, int64_t size);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_EXPLAINATTENTION_H
