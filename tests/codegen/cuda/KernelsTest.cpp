//===- KernelsTest.cpp - generated kernels on the emulator ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The text that a GPU would run, run on the CPU and compared with the float64
// interpreter of the source: rows at different fills, a padded row among them,
// strides larger than the shapes, folds decided by the kernels.
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "tests/codegen/cuda/Emulator.h"
#include "tests/codegen/cuda/GpuProgram.h"
#include "tests/numerics/Examples.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

using namespace ladle;
using namespace ladle::test;
using interpreter::SpecInterpreter;
using Kind = GpuArgument::Kind;

namespace {

constexpr int64_t kSlots = 4;
constexpr float kUntouched = 12345;

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

float bitsToFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t floatToBits(float value) {
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

/// A program, its memory, and an oracle for each slot.
class Decoding {
public:
  Decoding(const GpuRequest &request, int threshold);
  /// One token for each row: row r is slot r, of which one is padding.
  void step(int64_t token, int64_t padded);
  double worst = 0;

private:
  void launch(const GpuKernelInfo &kernel);
  void moveCursors(const std::vector<int32_t> &slots);
  void fill(Tensor &tensor, int64_t outer, bool hasOuter,
            const std::vector<double> &values);

  GpuProgram program;
  std::optional<EmulatedModule> module;
  std::optional<SpecInterpreter> oracle;
  std::vector<SpecInterpreter::Row> rows;
  std::vector<std::vector<double>> params;
  check::RandomInputs random{{}, 7};
  int64_t capacity;
  int32_t threshold;
  std::vector<Tensor> tensors; ///< as program.arguments
  std::vector<int32_t> readSlots, cursors;
};

} // namespace

static size_t product(const std::vector<int64_t> &shape) {
  size_t size = 1;
  for (int64_t extent : shape)
    size *= extent;
  return size;
}

Decoding::Decoding(const GpuRequest &request, int threshold)
    : capacity(request.capacity), threshold(threshold) {
  std::string messages;
  std::optional<GpuProgram> compiled = compileForGpu(request, messages);
  INFO(messages);
  REQUIRE(compiled);
  program = std::move(*compiled);
  auto emulated = EmulatedModule::compile(program.text);
  if (!emulated) {
    FAIL(llvm::toString(emulated.takeError()));
    return;
  }
  module = std::move(*emulated);
  frontend::ElaborationOptions elaboration;
  elaboration.preset = request.preset;
  elaboration.sizes = request.sizes;
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
      tensor.allocate(spec.dtype, spec.shape, rank - (rank > 1), 3);
      fill(tensor, 0, false, params[argument.index]);
      break;
    }
    case Kind::Token:
    case Kind::Output: {
      const TensorSpec &spec = argument.kind == Kind::Token
                                   ? signature.tokens[argument.index]
                                   : signature.outputs[argument.index];
      size_t rank = spec.shape.size();
      withOuter(spec, 1 + rank - (rank > 1), 5);
      break;
    }
    case Kind::Carry:
      withOuter(signature.carries[argument.index], 1, 8);
      break;
    case Kind::State: {
      const StateSpec &spec = signature.states[argument.index];
      tensor.allocate(spec.dtype,
                      {kSlots, spec.heads, spec.valueSize, spec.keySize}, 1,
                      64);
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

void Decoding::launch(const GpuKernelInfo &kernel) {
  const int32_t *slots = readSlots.data(), *others = readSlots.data();
  const int32_t *cursor = cursors.data(), *m = &threshold;
  int32_t pad = -1;
  std::vector<void *> arguments{&slots, &others, &cursor, &m, &pad};
  std::vector<Allocation> memory{{slots, readSlots.size() * sizeof(int32_t)},
                                 {cursor, cursors.size() * sizeof(int32_t)},
                                 {m, sizeof(int32_t)}};
  for (Tensor &tensor : tensors) {
    arguments.push_back(&tensor.pointer);
    for (size_t i = 0; i < tensor.dynamic; ++i)
      arguments.push_back(&tensor.strides[i]);
    memory.push_back({tensor.bytes.data(), tensor.bytes.size()});
  }
  llvm::Error error = module->launch(
      kernel.name, {kernel.gridBlocks, static_cast<unsigned>(kSlots), 1},
      {kernel.threads, 1, 1}, arguments.data(), memory);
  if (error)
    FAIL(llvm::toString(std::move(error)));
}

void Decoding::moveCursors(const std::vector<int32_t> &slots) {
  for (int32_t slot : slots) {
    if (slot < 0 || program.fields.empty())
      continue;
    int32_t &base = cursors[2 * slot], &length = cursors[2 * slot + 1];
    if (program.decodeFold && length + 1 >= threshold) {
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
  launch(program.decode);
  if (program.decodeFold)
    launch(*program.decodeFold);
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
static double decode(const GpuRequest &request, int threshold, int64_t tokens) {
  Decoding decoding(request, threshold);
  for (int64_t token = 0; token < tokens; ++token)
    decoding.step(token, token % (kSlots + 1));
  return decoding.worst;
}

/// Outputs may be stored in 16 bits.
static double boundOf(const std::string &model) {
  return readExample(model).find("out ") != std::string::npos &&
                 readExample(model).find(": bf16 =") != std::string::npos
             ? 8e-3
             : 2e-5;
}

TEST_CASE("kernels agree with the oracle on every example", "[cuda]") {
  auto model =
      GENERATE(as<std::string>(), "linear_attention", "retnet", "lightning",
               "mamba2", "gla", "delta_net", "gated_delta_rule",
               "gated_delta_net", "kda", "kda_lower_bound", "gdn2", "rwkv6",
               "rwkv7", "mamba3", "mamba3_mimo", "short_conv");
  auto route = GENERATE(as<std::string>(), "recurrent", "outer", "inner",
                        "adjoint", "kv_only");
  CAPTURE(model, route);
  GpuRequest request;
  request.path = examplePath(model);
  request.route = route;
  int64_t tokens = route == "recurrent" ? 3 : 6;
  // The entries of kv_only are all there is.
  int threshold = route == "kv_only" ? 100 : 3;
  if (route == "kv_only")
    request.capacity = 8;
  CHECK(decode(request, threshold, tokens) <= boundOf(model));
}
