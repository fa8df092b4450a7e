//===- Batch.cpp - the memory of a step's arguments -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Batch.h"

#include <cassert>
#include <limits>

using namespace ladle;
using namespace ladle::check;

static int64_t countOf(const TensorSpec &spec) {
  int64_t count = 1;
  for (int64_t size : spec.shape)
    count *= size;
  return count;
}

Batch::Batch(const Signature &signature, int64_t rows, bool packed,
             int64_t alignment)
    : signature(signature), alignment(alignment) {
  add(signature.params, /*rows=*/0, /*packed=*/false);
  add(signature.tokens, rows, packed);
  add(signature.outputs, rows, packed);
}

/// `rows` is 0 for tensors without a dimension of the batch.
void Batch::add(const std::vector<TensorSpec> &specs, int64_t rows,
                bool packed) {
  std::vector<int64_t> offsets;
  int64_t total = 0;
  for (const TensorSpec &spec : specs) {
    offsets.push_back(total);
    int64_t bytes = countOf(spec) * sizeInBytes(spec.dtype);
    if (rows && !packed)
      bytes *= rows;
    total += (bytes + alignment - 1) / alignment * alignment;
  }
  memory.emplace_back(packed ? total * rows : total);

  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec &spec = specs[i];
    std::vector<int64_t> shape = spec.shape;
    if (rows)
      shape.insert(shape.begin(), rows);
    TensorView view =
        TensorView::dense(memory.back().data() + offsets[i], spec.dtype, shape);
    if (packed)
      view.strides[0] = total / sizeInBytes(spec.dtype);
    tensors[spec.name] = view;
  }
}

void Batch::write(const TensorView &view, const std::vector<double> &values) {
  std::vector<float> floats(values.begin(), values.end());
  [[maybe_unused]] Status status =
      copy(TensorView::dense(floats, DType::F32, view.shape), view);
  assert(status.ok());
}

void Batch::setParams(const std::vector<std::vector<double>> &values) {
  for (size_t i = 0; i < values.size(); ++i)
    write(tensors.at(signature.params[i].name), values[i]);
}

void Batch::setTokens(int64_t row,
                      const std::vector<std::vector<double>> &values) {
  for (size_t i = 0; i < values.size(); ++i)
    write(tensors.at(signature.tokens[i].name)[row], values[i]);
}

void Batch::clearOutputs() {
  for (const TensorSpec &spec : signature.outputs) {
    const TensorView &view = tensors.at(spec.name);
    std::vector<double> nans(view.count(),
                             std::numeric_limits<double>::quiet_NaN());
    write(view, nans);
  }
}

std::vector<double> Batch::getOutput(int64_t row, size_t index) const {
  return toDoubles(tensors.at(signature.outputs[index].name)[row]);
}

std::vector<double> ladle::check::toDoubles(const TensorView &view) {
  Result<std::vector<float>> floats = toFloats(view);
  assert(floats.ok());
  return {floats->begin(), floats->end()};
}

std::vector<double> ladle::check::toKeyMajor(const std::vector<double> &values,
                                             const StateSpec &spec) {
  std::vector<double> result(values.size());
  for (int64_t h = 0; h < spec.heads; ++h)
    for (int64_t v = 0; v < spec.valueSize; ++v)
      for (int64_t c = 0; c < spec.keySize; ++c)
        result[(h * spec.keySize + c) * spec.valueSize + v] =
            values[(h * spec.valueSize + v) * spec.keySize + c];
  return result;
}
