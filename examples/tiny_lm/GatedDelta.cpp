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
  for (const TensorSpec &spec : signature.tokens)
    windows[spec.name].resize(static_cast<size_t>(options.slots));
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

/// Behind what is verified again of each row.
void GatedDelta::send(const std::string &name, Vector values,
                      const Batch &batch, const DeviceBatch &held) {
  auto size = static_cast<int64_t>(values.size()) / batch.count();
  Vector all;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    const Vector &again = windows.at(name)[batch.slots[row]];
    all.insert(all.end(), again.begin(), again.end());
    all.insert(all.end(), values.begin() + batch.starts[row] * size,
               values.begin() + batch.starts[row + 1] * size);
  }
  TensorView view = memory.at(name).view().slice(0, 0, held.count());
  orThrow(copy(viewOf(all, view.shape), view));
  arguments[name] = view;
  latest[name] = std::move(values);
}

/// What the tokens of the batch were answered.
Vector GatedDelta::receive(const Batch &batch, const DeviceBatch &held) {
  Vector all = orThrow(toFloats(arguments.at("y"))), result;
  auto size = static_cast<int64_t>(all.size()) / held.count();
  auto next = all.begin();
  for (int64_t row = 0; row < batch.rows(); ++row) {
    next += held.repeated(row) * size;
    auto end = next + (batch.starts[row + 1] - batch.starts[row]) * size;
    result.insert(result.end(), next, end);
    next = end;
  }
  return result;
}

Vector GatedDelta::forward(const Batch &batch, const DeviceBatch &held,
                           Vector input) {
  inputs = std::move(input);
  auto project = [&](const char *name, const Matrix &matrix, const Vector &x) {
    send(name, multiply(matrix, x, order), batch, held);
  };
  project("q", weights.query, mix(batch, weights.mixQuery));
  project("k", weights.key, mix(batch, weights.mixKey));
  project("v", weights.value, mix(batch, weights.mixValue));
  project("a", weights.decay, inputs);
  project("b", weights.strength, inputs);
  arguments["y"] = memory.at("y").view().slice(0, 0, held.count());
  if (held.isStep()) {
    StepArguments step;
    step.rows = batch.rows();
    step.readSlots = held.slots;
    step.tensors = arguments;
    orThrow(decoder.step(step));
  } else if (held.isPrompt()) {
    PrefillArguments prompts;
    prompts.rows = batch.rows();
    prompts.slots = held.slots;
    prompts.cuSeqlens = held.starts;
    if (arguments["y"].device.kind != DeviceKind::Cpu)
      prompts.tokens = held.count();
    prompts.tensors = arguments;
    orThrow(decoder.prefill(prompts));
  } else {
    VerifyArguments verify;
    verify.rows = batch.rows();
    verify.slots = held.slots;
    verify.cuSeqlens = held.starts;
    verify.parents = held.parents;
    if (arguments["y"].device.kind != DeviceKind::Cpu)
      verify.drafts = held.count();
    verify.tensors = arguments;
    orThrow(decoder.verify(verify));
  }
  Vector gates = multiply(weights.gate, inputs, order);
  Vector normed = rmsNorm(receive(batch, held), weights.norm, config.epsilon);
  for (size_t i = 0; i < normed.size(); ++i)
    normed[i] *= silu(gates[i]);
  return multiply(weights.output, normed, order);
}

void GatedDelta::commit(const Batch &batch, const DeviceBatch &held,
                        const Acceptance &accepted) {
  auto append = [](Vector &to, std::span<const float> row) {
    to.insert(to.end(), row.begin(), row.end());
  };
  size_t next = 0;
  for (int64_t row = 0; row < batch.rows(); ++row) {
    int32_t slot = batch.slots[row], first = batch.starts[row];
    std::span<const int32_t> path(accepted.path.data() + next,
                                  accepted.counts[row]);
    next += path.size();
    if (path.empty())
      continue;
    std::span<const float> last =
        rowOf(inputs, first + path.back(), config.width);
    std::copy(last.begin(), last.end(),
              rowOf(lastInputs, slot, config.width).begin());
    for (auto &[name, slots] : windows) {
      if (held.isFilled(row)) {
        slots[slot].clear();
        continue;
      }
      const Vector &values = latest.at(name);
      auto size = static_cast<int64_t>(values.size()) / batch.count();
      for (int32_t token : held.hasWindow() ? path : path.first(0))
        append(slots[slot], rowOf(values, first + token, size));
    }
  }
}

void GatedDelta::reset(std::span<const int32_t> slots) {
  for (int32_t slot : slots) {
    std::span<float> last = rowOf(lastInputs, slot, config.width);
    std::fill(last.begin(), last.end(), 0.0f);
    for (auto &[name, each] : windows)
      each[slot].clear();
  }
}
