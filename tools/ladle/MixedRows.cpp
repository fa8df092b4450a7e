//===- MixedRows.cpp - rows of which each does something else -------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/MixedRows.h"

#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

MixedRows MixedRows::of(const DraftSpec &spec) {
  int64_t m = spec.threshold;
  // Fills of one draft that does not fold, from one entry on where m has room.
  auto fillOf = [&](int64_t number) {
    return m > 1 ? 1 + number % (m - 1) : 0;
  };
  auto buffered = [&](int64_t number) {
    return MixedRow{.drafts = 1, .fill = fillOf(number)};
  };
  auto withoutState = [&](int64_t number) {
    return MixedRow{.drafts = 1, .fill = fillOf(number), .hasState = false};
  };
  auto folding = [&](int64_t) {
    return MixedRow{.drafts = 1, .fill = m, .folds = true};
  };
  auto verifying = [&](int64_t number) {
    int64_t drafts = 1 + number % spec.drafts;
    int64_t fills = std::max<int64_t>(m - drafts + 1, 1);
    return MixedRow{.drafts = drafts, .fill = number / spec.drafts % fills};
  };
  auto padding = [](int64_t) { return MixedRow{}; };
  using Maker = std::function<MixedRow(int64_t)>;
  std::vector<std::pair<std::string, Maker>> makers;
  if (spec.page)
    makers.emplace_back("short, no state", withoutState);
  makers.emplace_back("buffered", buffered);
  makers.emplace_back("folding", folding);
  makers.emplace_back(spec.drafts == 1
                          ? "verifying 1"
                          : fmt::format("verifying 1 to {}", spec.drafts),
                      verifying);
  makers.emplace_back("padding", padding);
  MixedRows result;
  for (const auto &[name, maker] : makers)
    result.parts.push_back(name);
  for (int64_t row = 0; row < spec.batch; ++row) {
    size_t part = static_cast<size_t>(row) % makers.size();
    MixedRow made =
        makers[part].second(row / static_cast<int64_t>(makers.size()));
    made.part = part;
    result.rows.push_back(made);
  }
  return result;
}

std::vector<size_t> MixedRows::rowsOf(size_t part) const {
  std::vector<size_t> result;
  for (size_t row = 0; row < rows.size(); ++row)
    if (rows[row].part == part)
      result.push_back(row);
  return result;
}
