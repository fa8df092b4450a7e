//===- DeviceDiagnostics.cpp - what attentions do on a GPU ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DeviceDiagnostics.h"
#include "runtime/AttentionDiagnostics.h"

#include <span>

using namespace ladle;

/// Numbers of a head, as the kernel keeps them.
static constexpr int64_t countsOfHead = 4, sumsOfHead = 3;

// What the kernel calls types.
static_assert(int(DType::F32) == 0 && int(DType::BF16) == 1 &&
              int(DType::F16) == 2);

/// In the order of the kernel; what of them a step has is named as there.
static std::vector<std::string> argumentNames() {
  return {"row_plans",      "hits",          "starts",       "piece_bounds",
          "piece_sums",     "ring_queries",  "ring_sums",    "value_pages",
          "page_table",     "head_counts",   "head_sums",    "norm_bins",
          "rows",           "heads",         "cache_heads",  "share",
          "parts",          "capacity",      "sinks",        "key_size",
          "value_size",     "query_type",    "value_type",   "page_size",
          "spare_page",     "attends",       "band_attends", "front_attends",
          "bins_of_octave", "lowest_octave", "bins"};
}

Result<DeviceDiagnostics>
DeviceDiagnostics::create(const AttentionProgramImpl &made) {
  const GpuAttentionCode &code = *made.gpu;
  DeviceDiagnostics result(made);
  Result<cuda::Kernel> kernel = code.compileDiagnostics();
  if (!kernel)
    return kernel.status();
  result.watching = {std::move(*kernel), argumentNames()};
  int64_t heads = made.signature.heads, all = heads + made.cacheHeads;
  for (auto [memory, count] :
       {std::pair(&result.counts, heads * countsOfHead),
        std::pair(&result.sums, all * sumsOfHead),
        std::pair(&result.bins, all * NormHistogram::bins)}) {
    static_assert(sizeof(double) == sizeof(int64_t));
    Result<cuda::Memory> numbers = cuda::Memory::allocate(
        code.device, count * static_cast<int64_t>(sizeof(int64_t)));
    if (!numbers)
      return numbers.status();
    *memory = std::move(*numbers);
    if (Status status = memory->fill(0); !status)
      return status;
  }
  if (Status status = code.device.synchronize(); !status)
    return status;
  return result;
}

cuda::Kernel::Extent DeviceDiagnostics::grid() const {
  return {static_cast<unsigned>(made.signature.heads + made.cacheHeads), 1, 1};
}

std::map<std::string, uint64_t> DeviceDiagnostics::arguments() const {
  const GpuAttentionCode &code = *made.gpu;
  std::map<std::string, uint64_t> values{{"head_counts", counts.address()},
                                         {"head_sums", sums.address()},
                                         {"norm_bins", bins.address()}};
  uint64_t bands = 0, fronts = 0;
  const auto &pieces = made.decode.pieces;
  for (size_t i = 0; i < pieces.size(); ++i) {
    bands |= uint64_t(pieces[i].begin == BoundKind::Band) << i;
    fronts |= uint64_t(pieces[i].begin == BoundKind::Start) << i;
  }
  for (auto [name, value] :
       {std::pair<const char *, int64_t>("heads", made.signature.heads),
        {"cache_heads", made.cacheHeads},
        {"share", code.share},
        {"parts", made.parts},
        {"key_size", made.keySize},
        {"value_size", made.valueSize},
        {"query_type", static_cast<int64_t>(made.queryType)},
        {"value_type", static_cast<int64_t>(made.valueType)},
        {"page_size", made.pageSize},
        {"attends", static_cast<int64_t>(pieces.size())},
        {"band_attends", static_cast<int64_t>(bands)},
        {"front_attends", static_cast<int64_t>(fronts)},
        {"bins_of_octave", NormHistogram::binsOfOctave},
        {"lowest_octave", NormHistogram::lowestOctave},
        {"bins", NormHistogram::bins}})
    values[name] = static_cast<uint64_t>(value);
  if (made.hasRing)
    return values;
  // Then heads of the query are not looked at, but for their tokens.
  for (const char *name :
       {"hits", "starts", "ring_queries", "ring_sums", "capacity"})
    values[name] = 0;
  return values;
}

std::vector<AttentionHeadDiagnostics> DeviceDiagnostics::report() const {
  auto heads = static_cast<size_t>(made.signature.heads);
  size_t all = heads + static_cast<size_t>(made.cacheHeads);
  size_t group = heads / static_cast<size_t>(made.cacheHeads);
  std::vector<int64_t> ofHeads(heads * countsOfHead);
  std::vector<double> sumsOfAll(all * sumsOfHead);
  std::vector<int64_t> binsOfAll(all * NormHistogram::bins);
  if (!made.gpu->device.synchronize())
    return {};
  for (const Status &status : {counts.read(ofHeads.data(), counts.bytes()),
                               sums.read(sumsOfAll.data(), sums.bytes()),
                               bins.read(binsOfAll.data(), bins.bytes())})
    if (!status)
      return {};
  auto norms = [&](size_t head) {
    std::span<const int64_t> counted(binsOfAll);
    return NormHistogram(
        counted.subspan(head * NormHistogram::bins, NormHistogram::bins),
        sumsOfAll[head * sumsOfHead + 2]);
  };
  std::vector<AttentionHeadDiagnostics> result;
  for (size_t head = 0; head < heads; ++head) {
    const int64_t *numbers = &ofHeads[head * countsOfHead];
    AttentionHeadDiagnostics totals;
    totals.tokens = numbers[0];
    totals.hits = numbers[1];
    totals.cached = numbers[2];
    totals.skipped = numbers[3];
    totals.bandWeight = sumsOfAll[head * sumsOfHead];
    totals.reusedWeight = sumsOfAll[head * sumsOfHead + 1];
    result.push_back(
        reportHead(totals, norms(head), norms(heads + head / group)));
  }
  return result;
}
