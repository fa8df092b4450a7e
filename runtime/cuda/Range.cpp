//===- Range.cpp - ranges that profilers show -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/Range.h"

#if LADLE_HAS_NVTX
#include <nvtx3/nvToolsExt.h>

ladle::cuda::Range::Range(const char *name) { nvtxRangePushA(name); }
ladle::cuda::Range::~Range() { nvtxRangePop(); }
#else
ladle::cuda::Range::Range(const char *) {}
ladle::cuda::Range::~Range() = default;
#endif
