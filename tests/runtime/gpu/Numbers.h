//===- Numbers.h - lists in the memory of a device --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_GPU_NUMBERS_H
#define LADLE_TESTS_RUNTIME_GPU_NUMBERS_H

#include "tests/runtime/gpu/Gpu.h"

namespace ladle::test {

/// Numbers in the memory of a program, at one address.
class Numbers {
public:
  Numbers(const Program &program, int64_t count)
      : memory(need(
            DeviceTensor::allocate(program.device(), DType::I32, {count}))) {}
  void set(std::vector<int32_t> values) {
    values.resize(static_cast<size_t>(memory.view().count()));
    need(copy(TensorView::dense(values, DType::I32,
                                {static_cast<int64_t>(values.size())}),
              memory.view()));
  }
  std::span<const int32_t> all() const {
    return {memory.as<int32_t>(), static_cast<size_t>(memory.view().count())};
  }

private:
  DeviceTensor memory;
};

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_GPU_NUMBERS_H
