//===- Prompts.h - a layer that takes prompts on a GPU ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_GPU_PROMPTS_H
#define LADLE_TESTS_RUNTIME_GPU_PROMPTS_H

#include "tests/runtime/gpu/Numbers.h"

namespace ladle::test {

inline constexpr int64_t mostTokens = 60;

/// Two rows of prompts, wherever a program runs.
struct Prompt {
  explicit Prompt(const Program &program, const PoolOptions &options = {},
                  int64_t tokens = mostTokens)
      : program(program), pool(makePool(program, 3, options)),
        decoder(need(Decoder::create(program, pool))), tensors(program, tokens),
        slots(program, 2), starts(program, 3), tokens(tokens) {
    std::vector<int32_t> sequences(static_cast<size_t>(tokens)), positions;
    for (int32_t token = 0; token < tokens; ++token)
      positions.push_back(token);
    tensors.fill(sequences, positions);
  }
  void set(std::vector<int32_t> list, std::vector<int32_t> begins) {
    slots.set(std::move(list));
    starts.set(std::move(begins));
  }
  PrefillArguments arguments() const {
    PrefillArguments result;
    result.rows = 2;
    result.slots = slots.all();
    result.cuSeqlens = starts.all();
    result.tokens = tokens;
    result.tensors = tensors.arguments.tensors;
    return result;
  }
  std::vector<float> answers(int64_t count) const {
    std::vector<float> result;
    for (int64_t token = 0; token < count; ++token)
      for (float value : tensors.output(token))
        result.push_back(value);
    return result;
  }

  Program program;
  Pool pool;
  Decoder decoder;
  Tensors tensors;
  Numbers slots, starts;
  int64_t tokens;
};

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_GPU_PROMPTS_H
