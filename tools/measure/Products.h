//===- Products.h - what the tensor cores of a GPU give ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_MEASURE_PRODUCTS_H
#define LADLE_TOOLS_MEASURE_PRODUCTS_H

#include "tools/measure/Gpu.h"

namespace ladle::measure {

/// Flops a second of products of tiles of bf16 that come from registers and
/// stay there, by the instruction that kernels use (mma.sync, 16 x 8 x 16).
Result<double> measureProducts(const Gpu &gpu);

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_PRODUCTS_H
