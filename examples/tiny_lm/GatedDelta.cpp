//===- GatedDelta.cpp - linear attention by Ladle -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/GatedDelta.h"
#include "examples/tiny_lm/Errors.h"

#include <algorithm>

using namespace tinylm;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Numbers on the device
//===----------------------------------------------------------------------===//

DeviceNumbers::DeviceNumbers(DeviceId device, int64_t most)
    : memory(orThrow(DeviceTensor::allocate(device, DType::I32, {most}))) {}

std::span<const int32_t>
DeviceNumbers::hold(const std::vector<int32_t> &numbers) {
  auto count = static_cast<int64_t>(numbers.size());
  TensorView from;
  from.data = const_cast<int32_t *>(numbers.data()); // is only read
  from.dtype = DType::I32;
  from.shape = {count};
  from.strides = {1};
  orThrow(copy(from, memory.view().slice(0, 0, count)));
  return {memory.as<int32_t>(), numbers.size()};
}

DeviceBatch::DeviceBatch(DeviceId device, int64_t rows, int64_t tokens)
    : slotNumbers(device, rows), startNumbers(device, rows + 1),
      parentNumbers(device, tokens) {}

void DeviceBatch::hold(const Batch &batch) {
  isStep = batch.count() == batch.rows();
  slots = slotNumbers.hold(batch.slots);
  if (isStep)
    return;
  starts = startNumbers.hold(batch.starts);
  parents = parentNumbers.hold(batch.parents);
}

//===----------------------------------------------------------------------===//
// A layer
//===----------------------------------------------------------------------===//

static Pool makePool(const Program &program, const Cursors &cursors) {
  PoolOptions options;
  options.cursors = cursors;
  return orThrow(Pool::create(program, options));
}

static Decoder makeDecoder(const Program &program, Pool &pool, int threads) {
  DecoderOptions options;
  options.threads = threads;
  return orThrow(Decoder::create(program, pool, options));
}

static TensorView viewOf(const Vector &values, std::vector<int64_t> shape) {
  // What is sent is only read.
  return TensorView::dense(const_cast<float *>(values.data()), DType::F32,
                           std::move(shape));
}

GatedDelta::GatedDelta(const GatedDeltaWeights &weights, const Config &config,
                       const Program &program, const Cursors &cursors,
                       const GatedDeltaOptions &options)
    : weights(weights), config(config), order(options.order),
      pool(makePool(program, cursors)),
      decoder(makeDecoder(program, pool, options.threads)),
      lastInputs(static_cast<size_t>(options.slots * config.width)) {
  const Signature &signature = program.signature();
  std::map<std::string, const Vector *> params{{"A_log", &weights.logDecayRate},
                                               {"dt_bias", &weights.decayBias}};
  for (const TensorSpec &spec : signature.params) {
    DeviceTensor tensor = orThrow(DeviceTensor::copyOf(
        program.device(), viewOf(*params.at(spec.name), spec.shape)));
    arguments[spec.name] = tensor.view();
    memory.emplace(spec.name, std::move(tensor));
  }
  for (const auto *specs : {&signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      std::vector<int64_t> shape{options.tokens};
      shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
      memory.emplace(spec.name, orThrow(DeviceTensor::allocate(
                                    program.device(), spec.dtype, shape)));
    }
}

Vector GatedDelta::mix(const Batch &batch, const Vector &mu) const {
  int64_t width = config.width;
  Vector result(inputs.size());
  for (int64_t row = 0; row < batch.rows(); ++row)
    for (int32_t token = batch.starts[row]; token < batch.starts[row + 1];
         ++token) {
      int32_t parent = batch.parents[token];
      std::span<const float> x = rowOf(inputs, token, width),
                             before =
                                 parent < 0
                                     ? rowOf(lastInputs, batch.slots[row],
                                             width)
                                     : rowOf(inputs, batch.starts[row] + parent,
                                             width);
      for (int64_t i = 0; i < width; ++i)
        result[token * width + i] = x[i] + mu[i] * (before[i] - x[i]);
    }
  return result;
}

void GatedDelta::send(const std::string &name, const Vector &values,
                      int64_t tokens) {
  TensorView view = memory.at(name).view().slice(0, 0, tokens);
  orThrow(copy(viewOf(values, view.shape), view));
  arguments[name] = view;
}

Vector GatedDelta::forward(const Batch &batch, const DeviceBatch &held,
                           Vector input) {
  inputs = std::move(input);
  int64_t tokens = batch.count();
  send("q", multiply(weights.query, mix(batch, weights.mixQuery), order),
       tokens);
  send("k", multiply(weights.key, mix(batch, weights.mixKey), order), tokens);
  send("v", multiply(weights.value, mix(batch, weights.mixValue), order),
       tokens);
  send("a", multiply(weights.decay, inputs, order), tokens);
  send("b", multiply(weights.strength, inputs, order), tokens);
  TensorView result = memory.at("y").view().slice(0, 0, tokens);
  arguments["y"] = result;
  if (held.isStep) {
    StepArguments step;
    step.rows = batch.rows();
    step.readSlots = held.slots;
    step.tensors = arguments;
    orThrow(decoder.step(step));
  } else {
    VerifyArguments verify;
    verify.rows = batch.rows();
    verify.slots = held.slots;
    verify.cuSeqlens = held.starts;
    verify.parents = held.parents;
    verify.tensors = arguments;
    orThrow(decoder.verify(verify));
  }
  Vector gates = multiply(weights.gate, inputs, order);
  Vector normed =
      rmsNorm(orThrow(toFloats(result)), weights.norm, config.epsilon);
  for (size_t i = 0; i < normed.size(); ++i)
    normed[i] *= silu(gates[i]);
  return multiply(weights.output, normed, order);
}

void GatedDelta::commit(const Batch &batch, const Acceptance &accepted) {
  size_t next = 0;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    next += accepted.counts[row];
    if (accepted.counts[row] == 0)
      continue;
    int32_t last = batch.starts[row] + accepted.path[next - 1];
    std::span<const float> from = rowOf(inputs, last, config.width);
    std::copy(from.begin(), from.end(),
              rowOf(lastInputs, batch.slots[row], config.width).begin());
  }
}

void GatedDelta::reset(std::span<const int32_t> slots) {
  for (int32_t slot : slots) {
    std::span<float> last = rowOf(lastInputs, slot, config.width);
    std::fill(last.begin(), last.end(), 0.0f);
  }
}
