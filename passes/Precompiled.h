//===- Precompiled.h - headers that most passes include ---------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sources still include what they use; this only makes it cheap.
//
//===----------------------------------------------------------------------===//

#include "tools/cmake/Precompiled.h"

#include "dialect/LadleOps.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
