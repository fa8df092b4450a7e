//===- MacTrace.h - a trace of softmax attention ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_MACTRACE_H
#define LADLE_TOOLS_LADLE_MACTRACE_H

#include "ladle/attention.h"
#include "ladle/safetensors.h"

#include <optional>

namespace ladle::tool {

struct MacTraceOptions {
  int64_t tokens = 0; ///< of the trace; 0: all
  /// Of queries that the trace holds before their rotation alone: pair
  /// (i, i + D / 2) turns by position · base^(−2i / D). 0: there are none.
  double ropeBase = 0;
};

/// What a layer took and gave: q_pre, q_post [tokens, heads, D], k_post and v
/// [tokens, heads of the cache, D] in bf16; exact outputs `o` in f32 at
/// `positions`, if it has them.
class MacTrace {
public:
  static Result<MacTrace> open(const std::string &path,
                               const MacTraceOptions &options);

  const std::string &getPath() const { return path; }
  int64_t tokens() const { return tokenCount; }
  /// What a program calls `name`: 'q' is 'q_post' here. Null if there is none.
  const TensorView *find(const std::string &name) const;
  /// Outputs at some positions, if the trace has them.
  struct Outputs {
    std::vector<int32_t> positions;
    std::vector<float> values; ///< [positions, heads, Dv]
  };
  const std::optional<Outputs> &outputs() const { return stored; }
  /// E‖q_pre‖² of each head.
  const std::vector<double> &moments() const { return squares; }
  /// ‖a − b‖² of q_pre of two tokens.
  double squaredDistance(int64_t a, int64_t b, int64_t head) const;
  /// The same of q_post.
  double rotatedDistance(int64_t a, int64_t b, int64_t head) const;
  /// 16 hexadecimal digits of what it holds.
  std::string fingerprint() const;

private:
  Status rotateQueries(double base);
  Status readOutputs();
  void takeMoments();
  double distance(const std::string &name, int64_t a, int64_t b,
                  int64_t head) const;

  std::string path;
  std::optional<Safetensors> file;
  std::map<std::string, TensorView> tensors;
  std::vector<uint16_t> rotated;
  std::vector<float> queries; ///< q_pre [tokens, heads, D]
  std::vector<double> squares;
  std::optional<Outputs> stored;
  int64_t tokenCount = 0;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_MACTRACE_H
