//===- AttentionDiagnostics.h - what attentions do --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_ATTENTIONDIAGNOSTICS_H
#define LADLE_RUNTIME_ATTENTIONDIAGNOSTICS_H

#include "runtime/AttentionPool.h"

namespace ladle {

class NormHistogram;

/// Weights of `totals` are sums; heads of the query share `value`.
AttentionHeadDiagnostics reportHead(AttentionHeadDiagnostics totals,
                                    const NormHistogram &query,
                                    const NormHistogram &value);

/// Counts of norms, 32 to an octave: memory that does not grow with tokens.
class NormHistogram {
public:
  static constexpr int binsOfOctave = 32;
  static constexpr int lowestOctave = -24, octaves = 48;
  static constexpr int bins = binsOfOctave * octaves;

  NormHistogram();
  /// What a device has counted, [bins].
  NormHistogram(std::span<const int64_t> counts, double most);
  /// NaN is left out.
  void add(double norm);
  AttentionHeadDiagnostics::Norms report() const;

private:
  double quantile(double share) const;
  std::vector<int64_t> counts;
  int64_t all = 0;
  double most = 0;
};

/// Looks at what the kernels of a step have left; they do nothing for it.
class AttentionDiagnostics {
public:
  explicit AttentionDiagnostics(const AttentionProgramImpl &program);

  /// After a step has answered the tokens of `ends`, one task a token and head
  /// of the cache, and before the cursors of rings move. `sums` are (m, Z)
  /// [pieces, group], hits and starts [rows, heads].
  void record(const AttentionPoolImpl &pool,
              std::span<const AttentionTask> ends, std::span<const float> sums,
              std::span<const int32_t> hits, std::span<const int64_t> starts);
  std::vector<AttentionHeadDiagnostics> report() const;

private:
  struct Head {
    AttentionHeadDiagnostics totals; ///< weights are sums, norms are empty
    NormHistogram norms;
  };
  void recordHead(const AttentionPoolImpl &pool, const AttentionTask &task,
                  int64_t head, std::span<const float> sums, bool isHit,
                  int64_t start);
  void recordValue(const AttentionPoolImpl &pool, const AttentionTask &task);

  const AttentionProgramImpl &program;
  std::vector<Head> heads;
  std::vector<NormHistogram> values; ///< [heads of the cache]
};

} // namespace ladle

#endif // LADLE_RUNTIME_ATTENTIONDIAGNOSTICS_H
