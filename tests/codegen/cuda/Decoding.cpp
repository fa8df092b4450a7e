//===- Decoding.cpp - generated kernels against the oracle ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/codegen/cuda/Decoding.h"
#include "tests/numerics/Examples.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

using namespace ladle;
using namespace ladle::jit;
using namespace ladle::test;
using Kind = GpuArgument::Kind;

static constexpr int64_t kSlots = 4;
static constexpr float kUntouched = 12345;

static float bitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

static uint32_t floatToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double Tensor::get(int64_t at) const {
  if (dtype == DType::F32)
    return static_cast<const float *>(pointer)[at];
  uint16_t bits = static_cast<const uint16_t *>(pointer)[at];
  if (dtype == DType::BF16)
    return bitsToFloat(uint32_t(bits) << 16);
  return static_cast<double>(__builtin_bit_cast(_Float16, bits));
}

void Tensor::set(int64_t at, double value) {
  if (dtype == DType::F32) {
    static_cast<float *>(pointer)[at] = static_cast<float>(value);
  } else if (dtype == DType::BF16) {
    // Inputs are drawn in their type: nothing is rounded here.
    static_cast<uint16_t *>(pointer)[at] =
        static_cast<uint16_t>(floatToBits(static_cast<float>(value)) >> 16);
  } else {
    static_cast<uint16_t *>(pointer)[at] = __builtin_bit_cast(
        uint16_t, static_cast<_Float16>(static_cast<float>(value)));
  }
}

static size_t product(const std::vector<int64_t> &shape) {
  size_t size = 1;
  for (int64_t extent : shape)
    size *= extent;
  return size;
}

Decoding::Decoding(const GpuRequest &request, int threshold, Executor &executor)
    : executor(executor), capacity(request.capacity), threshold(threshold) {
  std::string messages;
  std::optional<GpuProgram> compiled = compileForGpu(request, messages);
  INFO(messages);
  REQUIRE(compiled);
  program = std::move(*compiled);
  std::string problem = executor.load(program);
  INFO(problem);
  REQUIRE(problem.empty());
  frontend::ElaborationOptions elaboration = request.elaboration;
  if (!request.stateType.empty())
    elaboration.stateTypes["*"] = request.stateType;
  std::ifstream file(request.path);
  std::ostringstream text;
  text << file.rdbuf();
  oracle =
      check::compileOracle(request.path, text.str(), elaboration, messages);
  REQUIRE(oracle);
  for (int64_t slot = 0; slot < kSlots; ++slot)
    rows.push_back(oracle->makeRow());
  params = random.draw(oracle->getParams(), 0, check::RandomInputs::params);

  for (const GpuArgument &argument : program.arguments) {
    Tensor &tensor = tensors.emplace_back();
    auto withOuter = [&](const TensorSpec &spec, size_t told, int64_t padding) {
      std::vector<int64_t> shape{kSlots};
      shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
      tensor.allocate(spec.dtype, shape, told, padding);
    };
    const Signature &signature = program.signature;
    switch (argument.kind) {
    case Kind::Param: {
      const TensorSpec &spec = signature.params[argument.index];
      size_t rank = spec.shape.size();
      tensor.allocate(spec.dtype, spec.shape, rank - (rank > 1), 8);
      fill(tensor, 0, false, params[argument.index]);
      break;
    }
    case Kind::Token:
    case Kind::Output: {
      const TensorSpec &spec = argument.kind == Kind::Token
                                   ? signature.tokens[argument.index]
                                   : signature.outputs[argument.index];
      size_t rank = spec.shape.size();
      withOuter(spec, 1 + rank - (rank > 1), 8);
      break;
    }
    case Kind::Carry:
      withOuter(signature.carries[argument.index], 1, 8);
      break;
    case Kind::State: {
      const StateSpec &spec = signature.states[argument.index];
      std::vector<int64_t> shape = spec.shape();
      shape.insert(shape.begin(), kSlots);
      tensor.allocate(spec.dtype, shape, 1, 64);
      break;
    }
    case Kind::Field: {
      TensorSpec spec = program.fields[argument.index];
      spec.shape.insert(spec.shape.begin() + 1, capacity);
      withOuter(spec, 1, 64);
      // Entries that were never written must not matter.
      std::memset(tensor.pointer, 0xff,
                  tensor.strides[0] * kSlots * sizeInBytes(spec.dtype));
      break;
    }
    }
  }
  cursors.assign(2 * kSlots, 0);
}

void Decoding::fill(Tensor &tensor, int64_t outer, bool hasOuter,
                    const std::vector<double> &values) {
  for (size_t i = 0; i < values.size(); ++i)
    tensor.set(tensor.offset(outer, static_cast<int64_t>(i), hasOuter),
               values[i]);
}

void Decoding::moveCursors(const std::vector<int32_t> &slots) {
  for (int32_t slot : slots) {
    if (slot < 0 || program.fields.empty())
      continue;
    int32_t &base = cursors[2 * slot], &length = cursors[2 * slot + 1];
    if (program.folds && length + 1 >= threshold) {
      base = static_cast<int32_t>((base + length) % capacity);
      length = 0;
    } else {
      ++length;
    }
  }
}

void Decoding::step(int64_t token, int64_t padded) {
  readSlots.clear();
  std::vector<std::vector<std::vector<double>>> expected(kSlots);
  for (int64_t row = 0; row < kSlots; ++row) {
    readSlots.push_back(row == padded ? -1 : static_cast<int32_t>(row));
    auto inputs = random.draw(oracle->getTokens(), row, token);
    for (size_t i = 0; i < program.arguments.size(); ++i) {
      const GpuArgument &argument = program.arguments[i];
      if (argument.kind == Kind::Token)
        fill(tensors[i], row, true, inputs[argument.index]);
      if (argument.kind == Kind::Output)
        fill(tensors[i], row, true,
             std::vector<double>(
                 product(program.signature.outputs[argument.index].shape),
                 kUntouched));
    }
    expected[row].resize(oracle->getOutputs().size());
    if (row == padded)
      continue;
    std::vector<llvm::ArrayRef<double>> paramRefs(params.begin(), params.end());
    std::vector<llvm::ArrayRef<double>> refs(inputs.begin(), inputs.end());
    oracle->step(rows[row], paramRefs, refs, expected[row]);
  }
  std::vector<int32_t> writeSlots = readSlots;
  auto launch = [&](const GpuKernelInfo &kernel) {
    std::string problem =
        executor.run({kernel, kSlots, readSlots, writeSlots, cursors, threshold,
                      /*padSlot=*/-1, tensors});
    INFO(problem);
    REQUIRE(problem.empty());
  };
  launch(program.decode);
  moveCursors(readSlots);

  for (size_t i = 0; i < program.arguments.size(); ++i) {
    const GpuArgument &argument = program.arguments[i];
    if (argument.kind != Kind::Output)
      continue;
    size_t size = product(program.signature.outputs[argument.index].shape);
    for (int64_t row = 0; row < kSlots; ++row) {
      double largest = 1e-2, error = 0;
      for (size_t k = 0; k < size; ++k) {
        double got = tensors[i].get(
            tensors[i].offset(row, static_cast<int64_t>(k), true));
        if (row == padded) {
          CHECK(got == 0);
          continue;
        }
        double wanted = expected[row][argument.index][k];
        largest = std::max(largest, std::abs(wanted));
        // Catches NaN too.
        error =
            std::abs(got - wanted) <= error ? error : std::abs(got - wanted);
      }
      if (row != padded && !(error / largest <= worst))
        worst = error / largest;
    }
  }
}

/// Decodes tokens with slots at different fills.
double test::decode(const GpuRequest &request, int threshold, int64_t tokens,
                    Executor &executor) {
  Decoding decoding(request, threshold, executor);
  for (int64_t token = 0; token < tokens; ++token)
    decoding.step(token, token % (kSlots + 1));
  return decoding.worst / decoding.bound();
}

double Decoding::bound() const {
  for (const TensorSpec &output : program.signature.outputs)
    if (output.dtype != DType::F32)
      return 2e-5 + 0x1p-8; // rounding to 8 significant bits of bf16
  return 2e-5;
}

double Decoding::vectorDecayBytes() const {
  double bytes = 0;
  for (const TensorSpec &field : program.fields)
    if (field.shape.size() > 1 && field.name.ends_with("decay"))
      bytes += static_cast<double>(field.shape[0] * field.shape[1] *
                                   sizeInBytes(field.dtype));
  return bytes;
}

double Decoding::numberBytes() const {
  double bytes = 0;
  for (const TensorSpec &field : program.fields)
    if (field.shape.size() == 1)
      bytes += static_cast<double>(field.shape[0] * sizeInBytes(field.dtype));
  return bytes;
}
