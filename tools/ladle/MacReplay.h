//===- MacReplay.h - an attention decodes a trace ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_MACREPLAY_H
#define LADLE_TOOLS_LADLE_MACREPLAY_H

#include "tools/ladle/MacTrace.h"

#include <cmath>

namespace ladle::tool {

/// What became of the tokens after the prompt, [tokens, heads].
struct MacRun {
  std::vector<int64_t> matches; ///< the token that was matched, or −1
  std::vector<float> errors;    ///< ‖o − exact‖ / ‖exact‖
  /// The run ended because the error was too large whatever followed.
  bool isCutShort = false;
  std::vector<AttentionHeadDiagnostics> diagnostics; ///< where they are asked

  double meanError() const;
};

struct MacReplayOptions {
  int64_t prompt = 0; ///< tokens; 0: half of the trace
  int64_t window = 1; ///< the most that will be asked for
};

/// Decodes what follows the prompt, again and again. The trace must outlive it.
class MacReplay {
public:
  static Result<MacReplay> create(const MacTrace &trace,
                                  const AttentionProgram &program,
                                  const MacReplayOptions &options);

  int64_t heads() const { return program.signature().heads; }
  int64_t first() const { return prompt; } ///< token that is decoded
  int64_t tokens() const { return trace->tokens() - prompt; }

  /// As programs decode: what is reused may have been made by reuse. Ends early
  /// if the mean error is sure to exceed `mostError`.
  Result<MacRun> closedLoop(const AttentionSettings &settings,
                            double mostError = HUGE_VAL,
                            bool diagnoses = false);
  /// A run for each window, in which each summary that is reused was made by
  /// exact attention. `settings` says the rest.
  Result<std::vector<MacRun>> singleStep(const AttentionSettings &settings,
                                         const std::vector<int64_t> &windows);

  /// Of exact attention against outputs that the trace holds, relative to the
  /// largest; nothing if it holds none after the prompt.
  std::optional<double> traceError() const { return worstOfTrace; }
  /// Says on stderr if that is more than rounding can make.
  void warnOfTraceError() const;

private:
  MacReplay(const MacTrace &trace, AttentionProgram program, AttentionPool pool)
      : trace(&trace), program(std::move(program)), pool(std::move(pool)) {}
  std::map<std::string, TensorView, std::less<>> part(int64_t begin,
                                                      int64_t end);
  Result<AttentionDecoder> decoderOf(const AttentionSettings &settings,
                                     bool diagnoses = false);
  Status prefill(AttentionDecoder &decoder, int64_t begin, int64_t end);
  /// Leaves what the end of the prompt leaves with these settings.
  Status rewind(AttentionDecoder &decoder);
  Status step(AttentionDecoder &decoder, int64_t token, MacRun &run);
  void compareWithTrace();

  const MacTrace *trace;
  AttentionProgram program;
  AttentionPool pool;
  int64_t prompt = 0, window = 1;
  std::vector<float> exact;   ///< [tokens, heads, Dv]
  std::vector<float> outputs; ///< of the last call
  std::optional<double> worstOfTrace;
};

/// An attention of the shape of the trace, with sinks; with a second gate where
/// `hasDrift`, and with two bands where `settings` have a wide one.
Result<AttentionProgram> programOf(const MacTrace &trace,
                                   const AttentionSettings &settings,
                                   bool hasDrift);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_MACREPLAY_H
