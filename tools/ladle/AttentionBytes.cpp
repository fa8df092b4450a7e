//===- AttentionBytes.cpp - what a step of attention moves ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/AttentionBytes.h"
#include "runtime/AttentionKernels.h"

using namespace ladle;
using namespace ladle::tool;

AttentionBytes tool::bytesOf(const AttentionProgram &program) {
  const AttentionProgramImpl &made = program.getImpl();
  auto bytes = [](DType type) {
    return static_cast<double>(sizeInBytes(type));
  };
  auto keySize = static_cast<double>(made.keySize);
  auto valueSize = static_cast<double>(made.valueSize);
  AttentionBytes result;
  result.heads = made.signature.heads;
  result.cacheHeads = made.cacheHeads;
  result.token =
      static_cast<double>(made.cacheHeads) *
      (keySize * bytes(made.keyType) + valueSize * bytes(made.valueType));
  if (!made.hasRing)
    return result;
  auto count = static_cast<double>(made.signature.heads);
  auto parts = static_cast<double>(made.parts);
  double query = keySize * bytes(made.queryType);
  result.hasRing = true;
  result.candidate = count * query;
  // A / Z and the log-sum-exp of each part, the depth, where the first ends.
  result.stored =
      count * (parts * (valueSize * bytes(made.summaryType) + 4) + 4 +
               (made.parts > 1 ? 8 : 0) + (made.isRotated ? query : 0));
  result.left = result.candidate + result.stored;
  const AttentionSettings &settings = made.settings;
  result.window = static_cast<double>(settings.window);
  result.band =
      static_cast<double>(made.parts == 2 ? settings.wideBand : settings.band);
  result.sinks = static_cast<double>(settings.sinks);
  result.ringBytes = static_cast<double>(program.ringBytes(settings.window));
  return result;
}

int64_t tool::bandOf(const AttentionSettings &settings, int64_t gap) {
  bool isFar = settings.wideBand > 0 && gap > settings.wideGap;
  return isFar ? settings.wideBand : settings.band;
}

double AttentionBytes::answer(int64_t position,
                              std::span<const int64_t> matches,
                              const AttentionSettings &settings) const {
  auto tokens = static_cast<double>(position + 1);
  if (!hasRing || settings.tau >= 1)
    return tokens * token;
  int64_t group = heads / cacheHeads, sinks = settings.sinks;
  double read = 0;
  int64_t hits = 0;
  for (int64_t head = 0; head < heads; head += group) {
    int64_t first = position + 1;
    for (int64_t match : matches.subspan(static_cast<size_t>(head),
                                         static_cast<size_t>(group))) {
      hits += match >= 0;
      int64_t band = bandOf(settings, position - match);
      first = std::min(first,
                       match < 0 ? sinks : std::max(match + 1 - band, sinks));
    }
    read += static_cast<double>(position + 1 - first + std::min(first, sinks));
  }
  double scanned = std::min(static_cast<double>(position),
                            static_cast<double>(settings.window));
  return read * token / static_cast<double>(cacheHeads) + scanned * candidate +
         stored * static_cast<double>(hits) / static_cast<double>(heads) + left;
}
