//===- LadleOps.td - all operations of the dialect ---------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_OPS
#define LADLE_OPS

include "dialect/LadleSpecOps.td"
include "dialect/LadleTokenOps.td"
include "dialect/LadleStepOps.td"
include "dialect/LadleAttentionOps.td"
include "dialect/LadleBoundedOps.td"
include "dialect/LadleKernelOps.td"
include "dialect/LadleVerifyOps.td"

#endif // LADLE_OPS
