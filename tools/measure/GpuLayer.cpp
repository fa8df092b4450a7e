//===- GpuLayer.cpp - the memory that kernels take ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/measure/GpuLayer.h"
#include "runtime/Convert.h"
#include "runtime/cuda/DeviceMemory.h"

#include <numeric>

using namespace ladle;
using namespace ladle::measure;
using jit::GpuArgument;
using jit::GpuProgram;
using Kind = GpuArgument::Kind;

static int64_t product(const std::vector<int64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                         std::multiplies<>());
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

int64_t GpuTensor::elements() const {
  return product(shape) / (hasRows() ? shape.front() : 1);
}

Status GpuTensor::write(int64_t row, const std::vector<double> &values) {
  int64_t size = sizeInBytes(dtype), count = elements();
  std::vector<std::byte> bytes(count * size);
  for (int64_t i = 0; i < count; ++i)
    storeFloat(dtype, static_cast<float>(values[i]), bytes.data() + i * size);
  return memory.write(bytes.data(), count * size, row * count * size);
}

Result<std::vector<double>> GpuTensor::read(int64_t row) const {
  int64_t size = sizeInBytes(dtype), count = elements();
  std::vector<std::byte> bytes(count * size);
  if (Status status =
          memory.read(bytes.data(), count * size, row * count * size);
      !status)
    return status;
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = loadFloat(dtype, bytes.data() + i * size);
  return values;
}

/// Sets the shape, and how many strides the kernel is told: those of rows, and
/// where callers may hand in views, all but the innermost.
static void describe(GpuTensor &tensor, const GpuProgram &program, int64_t rows,
                     int64_t capacity) {
  const Signature &signature = program.signature;
  size_t index = tensor.argument.index, told = 1;
  auto set = [&](const TensorSpec &spec) {
    tensor.dtype = spec.dtype;
    tensor.shape = spec.shape;
  };
  switch (tensor.argument.kind) {
  case Kind::Param:
    set(signature.params[index]);
    told = tensor.shape.size() - (tensor.shape.size() > 1);
    break;
  case Kind::Token:
  case Kind::Output:
    set(tensor.argument.kind == Kind::Token ? signature.tokens[index]
                                            : signature.outputs[index]);
    told = 1 + tensor.shape.size() - (tensor.shape.size() > 1);
    break;
  case Kind::Carry:
    set(signature.carries[index]);
    break;
  case Kind::State: {
    const StateSpec &spec = signature.states[index];
    tensor.dtype = spec.dtype;
    tensor.shape = spec.shape();
    break;
  }
  case Kind::Field:
    set(program.fields[index]);
    tensor.shape.insert(tensor.shape.begin(), capacity);
    break;
  }
  if (tensor.hasRows())
    tensor.shape.insert(tensor.shape.begin(), rows);
  std::vector<int64_t> strides(tensor.shape.size());
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0; stride *= tensor.shape[i])
    strides[i] = stride;
  strides.resize(told);
  tensor.told = std::move(strides);
}

Result<GpuLayer> GpuLayer::allocate(const cuda::Device &device,
                                    const GpuProgram &program, int64_t rows,
                                    int64_t capacity,
                                    const GpuLayer *activations) {
  GpuLayer layer;
  for (const GpuArgument &argument : program.arguments) {
    GpuTensor &tensor = layer.tensors.emplace_back();
    tensor.argument = argument;
    describe(tensor, program, rows, capacity);
    if (activations &&
        (argument.kind == Kind::Token || argument.kind == Kind::Output)) {
      tensor.address = activations->tensors[layer.tensors.size() - 1].address;
      continue;
    }
    Result<cuda::Memory> memory = cuda::Memory::allocate(
        device, product(tensor.shape) * sizeInBytes(tensor.dtype));
    if (!memory)
      return memory.status();
    tensor.memory = std::move(*memory);
    tensor.address = tensor.memory.address();
    // A sequence starts with nothing; the rest is written before it is read.
    if (Status status = tensor.memory.fill(0); !status)
      return status;
  }
  return layer;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

static Result<cuda::Memory> upload(const cuda::Device &device,
                                   const std::vector<int32_t> &values) {
  auto size = static_cast<int64_t>(values.size() * sizeof(int32_t));
  Result<cuda::Memory> memory = cuda::Memory::allocate(device, size);
  if (!memory)
    return memory.status();
  if (Status status = memory->write(values.data(), size); !status)
    return status;
  return std::move(*memory);
}

Result<cuda::Memory> GpuStep::makeCursors(const cuda::Device &device,
                                          int64_t rows, int64_t fill) {
  std::vector<int32_t> values(2 * rows);
  for (int64_t row = 0; row < rows; ++row)
    values[2 * row + 1] = static_cast<int32_t>(fill);
  return upload(device, values);
}

Result<GpuStep> GpuStep::create(const cuda::Device &device,
                                const GpuProgram &program,
                                const LoadedKernels &kernels, int64_t rows,
                                int32_t threshold) {
  GpuStep step;
  step.rows = rows;
  step.stream = device.stream();
  for (const jit::GpuKernelInfo &info : {program.decode}) {
    Result<cuda::Kernel> kernel = kernels.module.kernel(info);
    if (!kernel)
      return kernel.status();
    step.forms.push_back(std::move(*kernel));
  }
  std::vector<int32_t> numbers(rows);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (const auto &[to, values] :
       {std::pair{&step.slots, numbers},
        std::pair{&step.threshold, std::vector<int32_t>{threshold}}}) {
    Result<cuda::Memory> memory = upload(device, values);
    if (!memory)
      return memory.status();
    *to = std::move(*memory);
  }
  return step;
}

std::span<const int32_t> GpuStep::slotsOfRows() const {
  return {static_cast<const int32_t *>(pointerTo(slots.address())),
          static_cast<size_t>(rows)};
}

Status GpuStep::launch(GpuLayer &layer, const cuda::Memory &cursors,
                       bool early) const {
  uint64_t slotAddress = slots.address(), cursorAddress = cursors.address(),
           thresholdAddress = threshold.address();
  int32_t pad = -1;
  std::vector<void *> values{&slotAddress, &slotAddress, &cursorAddress,
                             &thresholdAddress, &pad};
  for (GpuTensor &tensor : layer.tensors) {
    values.push_back(&tensor.address);
    for (int64_t &stride : tensor.told)
      values.push_back(&stride);
  }
  for (const cuda::Kernel &form : forms) {
    if (Status status =
            form.launchRows(rows, values.data(), stream, /*blocks=*/0, early);
        !status)
      return status;
    early = false; // The others are of the same pool.
  }
  return Status();
}
