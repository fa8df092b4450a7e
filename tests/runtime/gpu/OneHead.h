//===- OneHead.h - an attention of one head, a token at a time --*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_RUNTIME_GPU_ONEHEAD_H
#define LADLE_TESTS_RUNTIME_GPU_ONEHEAD_H

#include "ladle/attention.h"
#include "tests/runtime/gpu/Gpu.h"

namespace ladle::test {

/// `mac` with sinks, or `text`, of one head of 32, whose queries, keys and
/// values are each the same number 32 times, on the CPU or on a GPU. Two slots
/// have pages for 64 tokens.
class OneHead {
public:
  OneHead(const std::string &target, const AttentionSettings &settings,
          const std::string &text = "");

  AttentionDecoder decoderOf(const AttentionSettings &settings);
  /// The token that is matched, or -1.
  int64_t step(float query, int32_t slot = 0, float value = 1);
  int64_t stepBy(AttentionDecoder &by, float query, int32_t slot = 0,
                 float value = 1);
  /// What the next step is of.
  void fill(float query, int32_t slot = 0, float value = 1);
  /// Of rows that each have some tokens, of one number.
  Status prefill(const std::vector<int32_t> &slots,
                 const std::vector<int32_t> &starts, float query);
  void reset(int32_t slot = 0);
  /// Of the last step.
  float answer();
  bool isOnGpu() const { return program->device().kind != DeviceKind::Cpu; }

  std::unique_ptr<AttentionProgram> program;
  std::unique_ptr<AttentionPool> pool;
  std::unique_ptr<AttentionDecoder> decoder;
  AttentionArguments arguments;

private:
  std::map<std::string, DeviceTensor> memory;
};

/// The CPU, and a GPU if there is one: of a test that is run for each.
std::vector<std::string> targetsOfOneHead();

} // namespace ladle::test

#endif // LADLE_TESTS_RUNTIME_GPU_ONEHEAD_H
