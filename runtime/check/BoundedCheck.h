//===- BoundedCheck.h - a bounded cache against the oracle ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `ladle check` runs for an attention whose cache is bounded.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_BOUNDEDCHECK_H
#define LADLE_RUNTIME_CHECK_BOUNDEDCHECK_H

#include "codegen/interpreter/BoundedInterpreter.h"
#include "runtime/check/AttentionCheck.h"

namespace ladle::check {

/// The oracle of an attention with a bounded cache; nothing, and diagnostics in
/// `messages`, if the file does not compile.
std::optional<interpreter::BoundedInterpreter>
compileBoundedOracle(std::string_view path, std::string_view source,
                     frontend::ElaborationOptions options,
                     std::string &messages,
                     const std::optional<SegmentSettings> &segments = {});

/// Whether the attention that the options choose has a bounded cache; nothing
/// if it does not compile.
std::optional<bool>
hasBoundedCache(std::string_view path, std::string_view source,
                const frontend::ElaborationOptions &options);

/// One run of a batch whose slots begin, end and stand differently. As text it
/// is what `ladle check --case` takes, for instance
/// "type=bf16,prompt=20,segments=4:8:16,seed=7": keys in any order, those left
/// out as here.
struct BoundedCase {
  std::string type = "bf16"; ///< type: of the tokens
  int64_t tokens = 60;       ///< tokens: steps
  /// prompt: tokens of the prompt that two slots begin with.
  int64_t prompt = 0;
  /// later: tokens of a prompt that one of them is given among the steps.
  int64_t later = 0;
  /// segments: instead of the file's, as sinks:window:segment.
  std::optional<SegmentSettings> segments;
  /// lowered: of a cache that evicts, that of one slot falls to it among the
  /// steps; 0 leaves it.
  int64_t lowered = 0;
  /// forks: a slot that was empty becomes a branch of another among the steps,
  /// and another does by way of the host.
  bool forks = false;
  int threads = 1;                      ///< threads
  uint64_t seed = 1;                    ///< seed
  std::map<std::string, int64_t> sizes; ///< size.NAME: overrides

  /// What differs from a default case, the type always.
  std::string str() const;
  static Result<BoundedCase> parse(std::string_view text);
};

struct BoundedResult {
  BoundedCase config;
  int64_t folds = 0;   ///< segments, of all slots
  int64_t evicted = 0; ///< tokens that have left a head, of all slots
  double error = 0;    ///< the largest relative to the oracle's output
  double bound = 0;
  std::string failure; ///< empty if it passed

  bool passed() const { return failure.empty(); }
};

struct BoundedReport {
  std::string name;
  std::string reproducer; ///< the command that runs one of its cases
  std::vector<BoundedResult> cases;

  bool passed() const;
  std::string table() const;
  std::string json() const;
};

/// The cases of a file with a segmented cache: two with its own numbers, one of
/// which begins from nothing and one shortly behind a fold or, where segments
/// are long, shortly ahead of one; then every storage type, segments of one
/// token, no sinks, no window, and prompts that end at any place of a segment.
std::vector<BoundedCase>
planSegments(const interpreter::SegmentNumbers &numbers, uint64_t seed);

/// The cases of a file with a cache that evicts: every storage type, prompts
/// that fit and that do not, and budgets that fall.
std::vector<BoundedCase>
planEviction(const interpreter::EvictionNumbers &numbers, uint64_t seed);

/// Runs one case. Fails if the file does not compile.
Result<BoundedResult> checkBounded(const AttentionRequest &request,
                                   const BoundedCase &config);
Result<BoundedReport> checkBounded(const AttentionRequest &request);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_BOUNDEDCHECK_H
