//===- AttentionMatrix.cpp - the shapes of `ladle check --full` -----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/AttentionCheck.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::check;

std::vector<AttentionCase>
check::multiplyShapes(const std::vector<AttentionCase> &numbers,
                      const AttentionSizeNames &names, uint64_t seed) {
  // Heads, and those of the cache: 1 to 8 that share one, and none that does.
  std::vector<std::pair<int64_t, int64_t>> heads{{4, 4}};
  for (int64_t group = 1; group <= 8; ++group)
    heads.emplace_back(group, 1);
  std::vector<AttentionCase> cases;
  for (int64_t size : {64, 96, 128, 256})
    for (auto [all, ofCache] : heads)
      for (int64_t page : {1, 16, 64})
        for (const char *type : {"bf16", "f16"}) {
          // Each shape meets other numbers.
          size_t count = cases.size();
          AttentionCase one =
              numbers[(count + count / numbers.size()) % numbers.size()];
          one.type = type;
          one.pageSize = page;
          one.tokens = 20;
          one.seed = seed++;
          for (const auto &[name, value] : {std::pair(names.heads, all),
                                            {names.cacheHeads, ofCache},
                                            {names.keySize, size},
                                            {names.valueSize, size}})
            if (!name.empty())
              one.sizes[name] = value;
          cases.push_back(one);
        }
  return cases;
}
