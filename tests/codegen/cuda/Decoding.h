//===- Decoding.h - generated kernels against the oracle --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Decodes by the text that a GPU would run and compares with the float64
// interpreter of the source: rows at different fills, a padded row among them,
// strides larger than the shapes, folds decided by the kernels.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_CODEGEN_CUDA_DECODING_H
#define LADLE_TESTS_CODEGEN_CUDA_DECODING_H

#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "runtime/jit/GpuProgram.h"

#include <cstddef>
#include <optional>

namespace ladle::test {

using jit::GpuArgument;
using jit::GpuKernelInfo;
using jit::GpuProgram;
using jit::GpuRequest;

/// Memory of one argument, and the strides that the kernel is told.
struct Tensor {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;   ///< with the outer dimension, if there is one
  std::vector<int64_t> strides; ///< elements
  size_t dynamic = 0;           ///< how many of them the kernel is told
  std::vector<std::byte> bytes;
  void *pointer = nullptr;

  void allocate(DType type, std::vector<int64_t> sizes, size_t told,
                int64_t padding) {
    dtype = type;
    shape = std::move(sizes);
    dynamic = told;
    strides.assign(shape.size(), 1);
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      strides[i] = stride;
      stride *= shape[i];
      // What the kernel is told may be larger than it has to be.
      if (i > 0 && i <= told)
        stride += padding;
    }
    bytes.resize(stride * sizeInBytes(dtype) + 64);
    pointer = bytes.data() + (64 - uintptr_t(bytes.data()) % 64) % 64;
  }
  double get(int64_t at) const;
  void set(int64_t at, double value);
  /// The element `flat` of [inner...] below the outer index.
  int64_t offset(int64_t outer, int64_t flat, bool hasOuter) const {
    int64_t result = hasOuter ? outer * strides[0] : 0;
    for (size_t i = shape.size(); i-- > (hasOuter ? 1 : 0);) {
      result += flat % shape[i] * strides[i];
      flat /= shape[i];
    }
    return result;
  }
};

/// Where kernels run.
class Executor {
public:
  virtual ~Executor() = default;
  /// Compiles; returns what went wrong, or nothing.
  virtual std::string load(const GpuProgram &program) = 0;
  struct Launch {
    const GpuKernelInfo &kernel;
    int64_t rows;
    std::vector<int32_t> &readSlots, &writeSlots, &cursors;
    int32_t threshold, padSlot;
    std::vector<Tensor> &tensors;
  };
  virtual std::string run(const Launch &launch) = 0;
};

/// A program, its memory, and an oracle for each slot.
class Decoding {
public:
  Decoding(const GpuRequest &request, int threshold, Executor &executor);
  /// One token for each row: row r is slot r, of which one is padding.
  void step(int64_t token, int64_t padded);
  double worst = 0; ///< relative to the largest output of a row
  double bound() const;
  /// Of the fields of one entry that are a number a head.
  double numberBytes() const;
  /// Of the decays of one entry that are vectors over dk.
  double vectorDecayBytes() const;

private:
  void moveCursors(const std::vector<int32_t> &slots);
  void fill(Tensor &tensor, int64_t outer, bool hasOuter,
            const std::vector<double> &values);

  GpuProgram program;
  Executor &executor;
  std::optional<interpreter::SpecInterpreter> oracle;
  std::vector<interpreter::SpecInterpreter::Row> rows;
  std::vector<std::vector<double>> params;
  check::RandomInputs random{{}, 7};
  int64_t capacity;
  int32_t threshold;
  std::vector<Tensor> tensors; ///< as program.arguments
  std::vector<int32_t> readSlots, cursors;
};

/// The largest error of `tokens` steps, as a part of what is allowed: what f32
/// costs, and the rounding of outputs that are stored in 16 bits.
double decode(const GpuRequest &request, int threshold, int64_t tokens,
              Executor &executor);

} // namespace ladle::test

#endif // LADLE_TESTS_CODEGEN_CUDA_DECODING_H
