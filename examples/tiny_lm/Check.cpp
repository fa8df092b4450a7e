//===- Check.cpp - what an answer is compared with ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Check.h"

#include <algorithm>
#include <cmath>

using namespace tinylm;

bool Comparison::isGood() const {
  return std::all_of(divergences.begin(), divergences.end(),
                     [](const Divergence &each) { return each.isNearTie; });
}

Comparison tinylm::compare(const std::vector<Answer> &plain,
                           const std::vector<Answer> &speculative,
                           float tolerance) {
  Comparison result;
  result.closest = HUGE_VALF;
  for (size_t i = 0; i < plain.size(); ++i) {
    const std::string &first = plain[i].text, &second = speculative[i].text;
    size_t byte = 0, end = std::max(first.size(), second.size());
    while (byte < end && byte < first.size() && byte < second.size() &&
           first[byte] == second[byte]) {
      result.closest = std::min(result.closest, plain[i].margins[byte]);
      ++byte;
    }
    result.equalBytes += static_cast<int64_t>(byte);
    if (byte == end)
      continue;
    float margin = byte < first.size() ? plain[i].margins[byte] : HUGE_VALF;
    result.divergences.push_back({i, byte, margin, margin <= tolerance});
  }
  return result;
}

static double logSumExp(std::span<const float> logits) {
  double highest = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (float logit : logits)
    sum += std::exp(logit - highest);
  return highest + std::log(sum);
}

double tinylm::bitsOf(std::span<const float> logits, uint8_t next) {
  return (logSumExp(logits) - logits[next]) / std::log(2.0);
}

double tinylm::bitsPerByte(TinyLm &model, std::span<const uint8_t> text) {
  model.reset(std::vector<int32_t>{0});
  double bits = 0;
  for (size_t begin = 0, end; begin + 1 < text.size(); begin = end) {
    end = std::min(text.size() - 1, begin + static_cast<size_t>(model.room(0)));
    Batch batch;
    batch.addRow(0);
    Acceptance accepted;
    for (size_t i = begin; i < end; ++i)
      accepted.path.push_back(
          batch.addToken(text[i], static_cast<int32_t>(i - begin) - 1));
    accepted.counts.push_back(static_cast<int32_t>(end - begin));
    Vector logits = model.forward(batch);
    for (size_t i = begin; i < end; ++i)
      bits += bitsOf(rowOf(logits, static_cast<int64_t>(i - begin),
                           model.getConfig().vocabulary),
                     text[i + 1]);
    model.commit(batch, accepted);
  }
  return bits / static_cast<double>(text.size() - 1);
}
