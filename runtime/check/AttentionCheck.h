//===- AttentionCheck.h - an attention against the oracle -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `ladle check` runs for an attention, and the tests of its shapes.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_ATTENTIONCHECK_H
#define LADLE_RUNTIME_CHECK_ATTENTIONCHECK_H

#include "codegen/interpreter/AttentionInterpreter.h"
#include "frontend/Options.h"
#include "ladle/attention.h"

#include <functional>

namespace ladle::check {

/// The oracle of an attention; nothing, and diagnostics in `messages`, if the
/// file does not compile.
std::optional<interpreter::AttentionInterpreter> compileAttentionOracle(
    std::string_view path, std::string_view source,
    frontend::ElaborationOptions options, std::string &messages,
    interpreter::Precision precision = interpreter::Precision::Float64);

/// What is wrong with a text before anything is chosen of it; empty if it
/// parses.
std::string parseErrors(std::string_view path, std::string_view source);

/// Whether the declaration that the options choose is an attention.
bool choosesAttention(std::string_view path, std::string_view source,
                      const frontend::ElaborationOptions &options);

/// One run of a batch whose slots begin, end and stand differently. As text it
/// is what `ladle check --case` takes, for instance
/// "type=bf16,page=64,tau=0.3,window=24,band=3,seed=7": keys in any order,
/// those left out as here.
struct AttentionCase {
  std::string type = "bf16";       ///< type: of the tokens
  std::string summaryType = "f32"; ///< summaries: of stored ones
  int64_t pageSize = 16;           ///< page
  int64_t tokens = 60;             ///< tokens: steps
  /// prompt: tokens of the prompt that two slots begin with.
  int64_t prompt = 0;
  /// guesses: so many tokens more, which are dropped, after every third step.
  int64_t guesses = 0;
  /// forks: after so many steps each, a slot becomes a branch of another, the
  /// first half of it every other time; 0 is never.
  int64_t forks = 0;
  /// Instead of the file's, where it matches: tau, window, band, sinks,
  /// max_gap, max_chain, skip, drift, wide_band, wide_gap.
  AttentionSettings settings;
  int threads = 1;                      ///< threads
  bool batchInvariant = false;          ///< batch_invariant: of a GPU
  uint64_t seed = 1;                    ///< seed
  std::string target = "cpu";           ///< or "cuda"; no key
  std::map<std::string, int64_t> sizes; ///< size.NAME: overrides

  /// What differs from a default case, the type always.
  std::string str() const;
  static Result<AttentionCase> parse(std::string_view text);
};

struct AttentionResult {
  AttentionCase config;
  int64_t hits = 0, misses = 0; ///< heads of tokens, prompts left out
  double error = 0;             ///< the largest relative to the oracle's output
  double bound = 0;
  std::string failure; ///< empty if it passed

  bool passed() const { return failure.empty(); }
};

struct AttentionReport {
  std::string name;
  std::string reproducer; ///< the command that runs one of its cases
  std::vector<AttentionResult> cases;

  bool passed() const;
  std::string table() const;
  std::string json() const;
};

struct AttentionRequest {
  std::string path, source;
  /// Attention, preset, sizes and options; types are up to the cases.
  frontend::ElaborationOptions elaboration;
  uint64_t seed = 1;
  bool full = false;          ///< the matrix of shapes, too
  std::string only;           ///< one case alone, as a report names it
  std::string target = "cpu"; ///< what decodes, or "cuda"
  std::function<void(size_t done, size_t total)> progress;
};

/// Makes a slot what another is, by way of the host.
Status copyByContents(AttentionPool &pool, int32_t from, int32_t to);

/// Whether it matches: what can never match is exact attention, whatever
/// settings say.
bool canMatch(const interpreter::AttentionInterpreter &oracle);

/// A case with the numbers and pages of the file itself, whose prompt is long
/// enough for matches to leave something out, but for some hundreds of tokens.
AttentionCase planOwn(const interpreter::AttentionInterpreter &oracle,
                      uint64_t seed);

/// The cases of every file: every page size, storage type and kind of number
/// once at least.
std::vector<AttentionCase> planAttention(bool reuses, bool hasWideBand,
                                         uint64_t seed);

/// What a file calls the sizes of its tokens; empty where it has a number or an
/// expression.
struct AttentionSizeNames {
  std::string heads, cacheHeads, keySize, valueSize;
};
AttentionSizeNames
attentionSizeNames(std::string_view path, std::string_view source,
                   const interpreter::AttentionInterpreter &oracle);

/// Head sizes 64, 96, 128 and 256, groups of 1 to 8 heads and heads of their
/// own, pages of 1, 16 and 64, bf16 and f16, each with numbers of one of some
/// cases.
std::vector<AttentionCase>
multiplyShapes(const std::vector<AttentionCase> &numbers,
               const AttentionSizeNames &names, uint64_t seed);

/// Runs one case. Matches that the oracle would not have chosen are failures
/// unless they are within rounding; outputs are compared given the matches.
/// Fails if the file does not compile.
Result<AttentionResult> checkAttention(const AttentionRequest &request,
                                       const AttentionCase &config);
Result<AttentionReport> checkAttention(const AttentionRequest &request);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_ATTENTIONCHECK_H
