//===- host_decode.cpp - decode a batch from C++ --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a recurrence and decodes eight sequences.
//
//===----------------------------------------------------------------------===//

#include "ladle/compile.h"
#include "ladle/decode.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace ladle;

static void orExit(const Status &status) {
  if (!status) {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }
}

template <typename T> static T orExit(Result<T> result) {
  orExit(result.status());
  return std::move(*result);
}

/// Decays below one (g < 0), write strengths between zero and one.
static float makeInput(const std::string &name, int64_t index) {
  float wave = std::sin(0.7f * static_cast<float>(index));
  if (name == "g")
    return -0.1f * std::abs(wave);
  return name == "beta" ? 0.5f + 0.4f * wave : 0.2f * wave;
}

int main(int argc, char **argv) {
  const char *path = argc > 1 ? argv[1] : "examples/gated_delta_rule.ladle";
  Program program = orExit(compileFile(path));
  const Signature &signature = program.signature();
  const std::string &output = signature.outputs.front().name;

  // Row r of the batch is the sequence in slot r.
  std::vector<int32_t> slots{0, 1, 2, 3, 4, 5, 6, 7};
  PoolOptions options;
  options.slots = 8;
  Pool pool = orExit(Pool::create(program, options));
  Decoder decoder = orExit(Decoder::create(program, pool));

  // One dense array [rows, heads, ...] for each token and output.
  StepArguments arguments;
  arguments.rows = 8;
  arguments.readSlots = slots;
  std::vector<std::vector<std::byte>> memory;
  for (const auto *specs : {&signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      std::vector<int64_t> shape{arguments.rows};
      shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
      TensorView view = TensorView::dense(nullptr, spec.dtype, shape);
      view.data =
          memory.emplace_back(view.count() * sizeInBytes(spec.dtype)).data();
      arguments.tensors[spec.name] = view;
    }

  for (int64_t step = 0; step < 40; ++step) {
    for (const TensorSpec &token : signature.tokens) {
      const TensorView &view = arguments.tensors[token.name];
      std::vector<float> values(view.count());
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = makeInput(token.name, 97 * step + i);
      orExit(copy(TensorView::dense(values, DType::F32, view.shape), view));
    }
    orExit(decoder.step(arguments));
    double sum = 0;
    for (float value : orExit(toFloats(arguments.tensors[output])))
      sum += value;
    if (step % 8 == 7)
      std::printf("token %2d: sum of %s is %.6f\n", static_cast<int>(step),
                  output.c_str(), sum);
  }
}
