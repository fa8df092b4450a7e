//===- AttentionSteps.h - a sequence by an attention ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_NUMERICS_ATTENTIONSTEPS_H
#define LADLE_TESTS_NUMERICS_ATTENTIONSTEPS_H

#include "ladle/attention.h"
#include "ladle/device.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace ladle::test {

/// The outputs of `count` tokens of one sequence, wherever a program runs. The
/// tokens come back after a while, so that there is something to match.
inline std::vector<float> attend(const AttentionProgram &program,
                                 int64_t count) {
  auto must = [](auto result) {
    INFO(result.message());
    REQUIRE(result.ok());
    return std::move(*result);
  };
  auto succeed = [](const Status &status) {
    INFO(status.message());
    REQUIRE(status.ok());
  };
  AttentionPoolOptions room;
  room.slots = 1;
  if (!program.isBounded())
    room.pages = count / program.pageSize() + 1;
  AttentionPool pool = must(AttentionPool::create(program, room));
  AttentionDecoder decoder = must(AttentionDecoder::create(program, pool));
  std::map<std::string, DeviceTensor> memory;
  AttentionArguments step;
  step.rows = 1;
  auto fill = [&](const TensorView &view, int64_t position) {
    std::vector<float> values(static_cast<size_t>(view.count()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(0.37F * static_cast<float>(i) +
                           1.3F * static_cast<float>(position % 7));
    succeed(copy(TensorView::dense(values, DType::F32, view.shape), view));
  };
  auto add = [&](const TensorSpec &spec, bool hasRows) {
    std::vector<int64_t> shape = spec.shape;
    if (hasRows)
      shape.insert(shape.begin(), 1);
    DeviceTensor tensor =
        must(DeviceTensor::allocate(program.device(), spec.dtype, shape));
    step.tensors[spec.name] = tensor.view();
    memory.emplace(spec.name, std::move(tensor));
  };
  const Signature &signature = program.signature();
  for (const TensorSpec &spec : signature.params) {
    add(spec, /*hasRows=*/false);
    fill(step.tensors[spec.name], 3);
  }
  for (const TensorSpec &spec : signature.tokens)
    add(spec, /*hasRows=*/true);
  add(signature.outputs[0], /*hasRows=*/true);
  // Zero, which is the slot.
  DeviceTensor slots =
      must(DeviceTensor::allocate(program.device(), DType::I32, {1}));
  step.slots = {slots.as<int32_t>(), 1};
  std::vector<int32_t> slot{0};
  succeed(pool.reserve(slot, program.isBounded() ? 0 : count));

  std::vector<float> answers;
  for (int64_t position = 0; position < count; ++position) {
    for (const TensorSpec &spec : signature.tokens)
      fill(step.tensors[spec.name], position);
    succeed(decoder.step(step));
    if (program.device().kind != DeviceKind::Cpu)
      succeed(synchronize(program.device()));
    std::vector<float> output =
        must(toFloats(step.tensors[signature.outputs[0].name]));
    answers.insert(answers.end(), output.begin(), output.end());
  }
  return answers;
}

} // namespace ladle::test

#endif // LADLE_TESTS_NUMERICS_ATTENTIONSTEPS_H
