//===- Feeder.h - the inputs of a step, row by row --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_FEEDER_H
#define LADLE_TOOLS_LADLE_FEEDER_H

#include "runtime/check/Batch.h"
#include "runtime/check/TraceCheck.h"

namespace ladle::tool {

/// Gathers what the rows of a batch read at a step of a trace.
class Feeder {
public:
  Feeder(const Signature &signature, const check::Trace &trace, int64_t rows);

  /// The token of the trace that `row` reads at `step`.
  int64_t tokenOf(int64_t row, int64_t step) const {
    return (row * stride + step) % length;
  }
  void gather(int64_t step);
  check::Batch &getBatch() { return batch; }

private:
  /// A token of the trace in its storage type, and where it goes.
  struct Copy {
    const std::byte *from;
    std::byte *to;
    int64_t fromStride, toStride, bytes;
  };

  int64_t rows, length, stride;
  check::Batch source, batch;
  std::vector<Copy> copies;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_FEEDER_H
