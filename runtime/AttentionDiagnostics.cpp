//===- AttentionDiagnostics.cpp - what attentions do ----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionDiagnostics.h"
#include "runtime/Convert.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace ladle;

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

NormHistogram::NormHistogram() : counts(bins) {}

NormHistogram::NormHistogram(std::span<const int64_t> given, double most)
    : counts(given.begin(), given.end()),
      all(std::accumulate(given.begin(), given.end(), int64_t(0))), most(most) {
}

void NormHistogram::add(double norm) {
  if (std::isnan(norm))
    return;
  double bin = norm > 0
                   ? std::floor(binsOfOctave * (std::log2(norm) - lowestOctave))
                   : 0;
  auto last = static_cast<double>(counts.size() - 1);
  ++counts[static_cast<size_t>(std::clamp(bin, 0.0, last))];
  ++all;
  most = std::max(most, norm);
}

/// The middle of the bin in which so many are below.
double NormHistogram::quantile(double share) const {
  auto wanted =
      static_cast<int64_t>(std::ceil(share * static_cast<double>(all)));
  int64_t below = 0;
  for (size_t bin = 0; bin < counts.size(); ++bin) {
    below += counts[bin];
    if (below >= std::max<int64_t>(wanted, 1))
      return std::min(
          most, std::exp2((static_cast<double>(bin) + 0.5) / binsOfOctave +
                          lowestOctave));
  }
  return 0;
}

AttentionHeadDiagnostics::Norms NormHistogram::report() const {
  return {quantile(0.5), quantile(0.9), quantile(0.99), most};
}

static double normOf(const AttentionPoolImpl::Array &array, DType type,
                     int64_t first, int64_t size) {
  const auto *from = static_cast<const char *>(array.memory.data()) +
                     first * array.elementBytes;
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    double value = loadFloat(type, from + i * array.elementBytes);
    sum += value * value;
  }
  return std::sqrt(sum);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

namespace {
/// The log of a sum of exponentials.
struct LogSum {
  double log = -INFINITY;
  void add(double other) {
    double most = std::max(log, other);
    if (most > -INFINITY)
      log = most + std::log(std::exp(log - most) + std::exp(other - most));
  }
};
} // namespace

AttentionDiagnostics::AttentionDiagnostics(const AttentionProgramImpl &program)
    : program(program), heads(static_cast<size_t>(program.signature.heads)),
      values(static_cast<size_t>(program.cacheHeads)) {}

void AttentionDiagnostics::recordHead(const AttentionPoolImpl &pool,
                                      const AttentionTask &task, int64_t head,
                                      std::span<const float> sums, bool isHit,
                                      int64_t start) {
  int64_t group = program.signature.heads / program.cacheHeads;
  AttentionHeadDiagnostics &totals = heads[head].totals;
  ++totals.tokens;
  totals.cached += task.position + 1;
  if (!program.hasRing)
    return;
  int64_t entry =
      (task.slot * program.signature.heads + head) * pool.window + task.entry;
  heads[head].norms.add(normOf(pool.rings[0], program.queryType,
                               entry * program.keySize, program.keySize));
  if (isHit) {
    ++totals.hits;
    totals.skipped += std::max<int64_t>(0, start - task.sinks);
  }

  // What was left of the tokens before the band is reused and attended to; the
  // other pieces are not in it.
  LogSum band, attended, answer;
  const auto &pieces = program.decode.pieces;
  for (size_t i = 0; i < pieces.size(); ++i)
    for (int64_t at = task.bounds[i]; at < task.bounds[i + 1]; ++at) {
      const float *sum = &sums[(at * group + head % group) * 2];
      if (!(sum[1] > 0))
        continue;
      double log = sum[0] + std::log(static_cast<double>(sum[1]));
      attended.add(log);
      if (pieces[i].begin == BoundKind::Band)
        band.add(log);
      if (pieces[i].begin == BoundKind::Band ||
          pieces[i].begin == BoundKind::Start)
        answer.add(log);
    }
  const AttentionPoolImpl::Array &logSums =
      pool.rings[program.isRotated ? 3 : 2];
  for (int64_t part = 0; part < program.parts; ++part)
    answer.add(static_cast<const float *>(
        logSums.memory.data())[((task.slot * program.signature.heads + head) *
                                    program.parts +
                                part) *
                                   pool.window +
                               task.entry]);
  if (!std::isfinite(answer.log))
    return;
  totals.bandWeight += std::exp(band.log - answer.log);
  if (isHit)
    totals.reusedWeight +=
        std::max(0.0, 1 - std::exp(attended.log - answer.log));
}

void AttentionDiagnostics::recordValue(const AttentionPoolImpl &pool,
                                       const AttentionTask &task) {
  int64_t page = pool.table[task.slot * pool.pagesOfSlot +
                            task.position / program.pageSize];
  int64_t token =
      (page * program.cacheHeads + task.headBegin) * program.pageSize +
      task.position % program.pageSize;
  values[task.headBegin].add(normOf(pool.values, program.valueType,
                                    token * program.valueSize,
                                    program.valueSize));
}

void AttentionDiagnostics::record(const AttentionPoolImpl &pool,
                                  std::span<const AttentionTask> ends,
                                  std::span<const float> sums,
                                  std::span<const int32_t> hits,
                                  std::span<const int64_t> starts) {
  int64_t group = program.signature.heads / program.cacheHeads;
  for (const AttentionTask &task : ends) {
    recordValue(pool, task);
    for (int64_t g = 0; g < group; ++g) {
      int64_t head = task.headBegin * group + g;
      int64_t at = task.row * program.signature.heads + head;
      recordHead(pool, task, head, sums, program.hasRing && hits[at] >= 0,
                 starts[at]);
    }
  }
}

AttentionHeadDiagnostics ladle::reportHead(AttentionHeadDiagnostics totals,
                                           const NormHistogram &query,
                                           const NormHistogram &value) {
  if (totals.tokens > 0) {
    totals.bandWeight /= static_cast<double>(totals.tokens);
    totals.reusedWeight /= static_cast<double>(totals.tokens);
  }
  totals.query = query.report();
  totals.value = value.report();
  return totals;
}

std::vector<AttentionHeadDiagnostics> AttentionDiagnostics::report() const {
  std::vector<AttentionHeadDiagnostics> result;
  auto group = heads.size() / values.size();
  for (size_t head = 0; head < heads.size(); ++head) {
    const Head &one = heads[head];
    result.push_back(reportHead(one.totals, one.norms, values[head / group]));
  }
  return result;
}
