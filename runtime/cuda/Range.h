//===- Range.h - ranges that profilers show ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CUDA_RANGE_H
#define LADLE_RUNTIME_CUDA_RANGE_H

namespace ladle::cuda {

/// A range of NVTX for as long as it lives: what is launched meanwhile belongs
/// to it in a profiler. Costs a call where none is attached, and is nothing
/// where the headers of NVTX were not there to build with.
class Range {
public:
  explicit Range(const char *name);
  Range(const Range &) = delete;
  ~Range();
};

} // namespace ladle::cuda

#endif // LADLE_RUNTIME_CUDA_RANGE_H
