//===- MacFigures.cpp - what reuse saves and costs ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/MacFigures.h"

#include <bit>
#include <map>

using namespace ladle;
using namespace ladle::tool;

namespace {

/// Means in ranges 1, 2, 3 to 4, 5 to 8, ...: `step` doublings to a range.
class Ranges {
public:
  explicit Ranges(int step) : step(step) {}

  void addSingle(int64_t value, double error) {
    Sums &sums = of(value);
    sums.singleCount += 1;
    sums.single += error;
  }
  void addClosed(int64_t value, double error) {
    Sums &sums = of(value);
    sums.closedCount += 1;
    sums.closed += error;
  }
  std::vector<MacRange> report() const {
    std::vector<MacRange> result;
    for (const auto &[bin, sums] : all)
      result.push_back(
          {bin ? (int64_t(1) << (bin - 1) * step) + 1 : 1,
           int64_t(1) << bin * step, sums.closedCount,
           sums.singleCount > 0 ? sums.single / sums.singleCount : 0,
           sums.closedCount > 0 ? sums.closed / sums.closedCount : 0});
    return result;
  }

private:
  struct Sums {
    double singleCount = 0, single = 0, closedCount = 0, closed = 0;
  };
  Sums &of(int64_t value) {
    int doublings = std::bit_width(static_cast<uint64_t>(value - 1));
    return all[(doublings + step - 1) / step];
  }
  int step;
  std::map<int, Sums> all;
};

} // namespace

MacBytes tool::bytesOfRun(const MacReplay &replay, const AttentionBytes &bytes,
                          const AttentionSettings &settings,
                          const MacRun &run) {
  AttentionBytes cache = bytes;
  cache.candidate = cache.stored = cache.left = 0;
  MacBytes sums;
  auto heads = static_cast<size_t>(replay.heads());
  for (size_t at = 0; at < run.matches.size(); at += heads) {
    int64_t position = replay.first() + static_cast<int64_t>(at / heads);
    auto matches = std::span(run.matches).subspan(at, heads);
    sums.bytes += bytes.answer(position, matches, settings);
    sums.cache += cache.answer(position, matches, settings);
    sums.exact += static_cast<double>(position + 1) * bytes.token;
  }
  return sums;
}

MacFigure tool::figureOf(const MacTrace &trace, const MacReplay &replay,
                         const AttentionBytes &bytes,
                         const AttentionSettings &settings,
                         const MacRun &single, const MacRun &closed) {
  MacFigure figure;
  figure.tau = settings.tau;
  figure.window = settings.window;
  figure.band = settings.band;
  figure.maxChain = settings.maxChain;
  figure.heads = closed.diagnostics;
  figure.closed = closed.meanError();
  MacBytes sums = bytesOfRun(replay, bytes, settings, closed);
  figure.cache = sums.cache / sums.exact;
  figure.bytes = sums.bytes / sums.exact;

  Ranges gaps(/*step=*/2), chains(/*step=*/1);
  int64_t heads = replay.heads(), first = replay.first();
  auto count = static_cast<int64_t>(closed.matches.size());
  double cached = 0, allowed = 2 * (1 - settings.tau) * (1 - settings.tau);
  std::vector<int64_t> depths(closed.matches.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t position = first + i / heads, head = i % heads;
    cached += static_cast<double>(position + 1);
    if (int64_t match = closed.matches[i]; match >= 0) {
      figure.hits += 1;
      figure.skipped += static_cast<double>(std::max<int64_t>(
          0, match + 1 - settings.sinks - bandOf(settings, position - match)));
      depths[i] =
          1 + (match >= first ? depths[(match - first) * heads + head] : 0);
      gaps.addClosed(position - match, closed.errors[i]);
      chains.addClosed(depths[i], closed.errors[i]);
    }
    int64_t match = single.matches[i];
    if (match < 0 || !(trace.squaredDistance(position, match, head) <
                       allowed * trace.moments()[head]))
      continue;
    figure.singleHits += 1;
    figure.single += single.errors[i];
    gaps.addSingle(position - match, single.errors[i]);
  }
  auto all = static_cast<double>(count);
  figure.hits /= all;
  figure.skipped /= cached;
  figure.singleHits /= all;
  figure.single /= all;
  figure.gaps = gaps.report();
  figure.chains = chains.report();
  return figure;
}

//===----------------------------------------------------------------------===//
// Several traces
//===----------------------------------------------------------------------===//

/// Means weighted by how many hits they are of.
static std::vector<MacRange>
meanOfRanges(const std::vector<const std::vector<MacRange> *> &all) {
  std::map<int64_t, MacRange> sums;
  for (const std::vector<MacRange> *ranges : all)
    for (const MacRange &range : *ranges) {
      MacRange &sum =
          sums.try_emplace(range.from, MacRange{range.from, range.to, 0, 0, 0})
              .first->second;
      sum.count += range.count;
      sum.single += range.count * range.single;
      sum.closed += range.count * range.closed;
    }
  std::vector<MacRange> result;
  for (auto &[from, sum] : sums) {
    if (sum.count > 0) {
      sum.single /= sum.count;
      sum.closed /= sum.count;
    }
    result.push_back(sum);
  }
  return result;
}

std::vector<MacFigure>
tool::meanOf(const std::vector<std::vector<MacFigure>> &figures) {
  std::vector<MacFigure> result;
  auto count = static_cast<double>(figures.size());
  for (size_t i = 0; i < figures.front().size(); ++i) {
    MacFigure mean = figures.front()[i];
    mean.heads.clear();
    for (double MacFigure::*each :
         {&MacFigure::hits, &MacFigure::skipped, &MacFigure::cache,
          &MacFigure::bytes, &MacFigure::single, &MacFigure::singleHits,
          &MacFigure::closed}) {
      mean.*each = 0;
      for (const auto &of : figures)
        mean.*each += of[i].*each / count;
    }
    std::vector<const std::vector<MacRange> *> gaps, chains;
    for (const auto &of : figures) {
      gaps.push_back(&of[i].gaps);
      chains.push_back(&of[i].chains);
    }
    mean.gaps = meanOfRanges(gaps);
    mean.chains = meanOfRanges(chains);
    result.push_back(std::move(mean));
  }
  markKnees(result);
  return result;
}

void tool::markKnees(std::vector<MacFigure> &figures) {
  std::map<std::pair<int64_t, int64_t>, std::vector<MacFigure *>> curves;
  for (MacFigure &figure : figures) {
    figure.isKnee = false;
    curves[{figure.window, figure.band}].push_back(&figure);
  }
  for (auto &[key, curve] : curves) {
    // Of as much that is read the one with the least error stands first.
    std::sort(curve.begin(), curve.end(),
              [](const MacFigure *a, const MacFigure *b) {
                return std::pair(a->cache, a->closed) <
                       std::pair(b->cache, b->closed);
              });
    const MacFigure &least = *curve.front(), &most = *curve.back();
    double width = most.cache - least.cache,
           height = least.closed - most.closed;
    if (curve.size() < 3 || !(width > 0) || !(height > 0))
      continue;
    MacFigure *knee = nullptr;
    double farthest = 0;
    for (MacFigure *figure : curve) {
      double x = (figure->cache - least.cache) / width;
      double y = (figure->closed - most.closed) / height;
      if (1 - x - y > farthest) {
        farthest = 1 - x - y;
        knee = figure;
      }
    }
    if (knee)
      knee->isKnee = true;
  }
}
