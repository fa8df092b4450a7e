//===- Feeder.cpp - the inputs of a step, row by row ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Feeder.h"
#include "runtime/ThreadPool.h"

#include <algorithm>
#include <cstring>

using namespace ladle;
using namespace ladle::tool;

Feeder::Feeder(const Signature &signature, const check::Trace &trace,
               int64_t rows)
    : rows(rows), length(static_cast<int64_t>(trace.tokens.size())),
      stride(std::max<int64_t>(1, length / rows)),
      source(signature, length, /*packed=*/true),
      batch(signature, rows, /*packed=*/false) {
  batch.setParams(trace.params);
  for (int64_t token = 0; token < length; ++token)
    source.setTokens(token, trace.tokens[token]);
  for (const TensorSpec &spec : signature.tokens) {
    const TensorView &from = source.getTensors().at(spec.name);
    const TensorView &to = batch.getTensors().at(spec.name);
    int64_t element = sizeInBytes(spec.dtype);
    copies.push_back({static_cast<const std::byte *>(from.data),
                      static_cast<std::byte *>(to.data),
                      from.strides[0] * element, to.strides[0] * element,
                      to.count() / rows * element});
  }
}

void Feeder::gather(int64_t step) {
  auto gatherRow = [&](int64_t row) {
    int64_t token = tokenOf(row, step);
    for (const Copy &copy : copies)
      std::memcpy(copy.to + row * copy.toStride,
                  copy.from + token * copy.fromStride,
                  static_cast<size_t>(copy.bytes));
  };
  constexpr int64_t block = 256;
  if (rows <= block) {
    for (int64_t row = 0; row < rows; ++row)
      gatherRow(row);
    return;
  }
  ThreadPool::shared().forEach(
      (rows + block - 1) / block, [&](int64_t index, int) {
        int64_t end = std::min(rows, (index + 1) * block);
        for (int64_t row = index * block; row < end; ++row)
          gatherRow(row);
      });
}
