//===- DevicePrompts.cpp - prompts of an attention on a GPU ---------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/cuda/DevicePrompts.h"

#include <algorithm>

using namespace ladle;

static unsigned narrow(int64_t value) { return static_cast<unsigned>(value); }

/// Blocks that attend. The last tile of a row may have less.
static int64_t attendBlocks(const AttentionProgramImpl &made,
                            const GpuAttentionForm &form, int64_t rows,
                            int64_t tokens) {
  constexpr int64_t warp = 32;
  int64_t group = made.signature.heads / made.cacheHeads;
  int64_t warps =
      static_cast<int64_t>(form.attend.kernel.info().threads) / warp;
  int64_t queries = warps * made.gpu->queriesOfWarp;
  int64_t tiles = tokens * group / queries + std::min(rows, tokens);
  return tiles * made.cacheHeads;
}

std::vector<cuda::Kernel::Extent>
ladle::promptGrids(const AttentionProgramImpl &made,
                   const GpuAttentionForm &form, int64_t rows, int64_t tokens) {
  constexpr int64_t warp = 32;
  int64_t appends =
      static_cast<int64_t>(form.first.kernel.info().threads) / warp;
  int64_t finishing = made.hasRing ? made.signature.heads : 1;
  return {{narrow((tokens + appends - 1) / appends), 1, 1},
          {narrow(attendBlocks(made, form, rows, tokens)), 1, 1},
          {narrow(finishing), narrow(rows), 1}};
}

//===----------------------------------------------------------------------===//
// Prompts of a cache that evicts
//===----------------------------------------------------------------------===//

static std::vector<const GpuAttentionKernel *>
thoseOf(std::initializer_list<const GpuAttentionKernel *> kernels) {
  std::vector<const GpuAttentionKernel *> all;
  for (const GpuAttentionKernel *kernel : kernels)
    if (!kernel->arguments.empty())
      all.push_back(kernel);
  return all;
}

std::vector<const GpuAttentionKernel *>
ladle::selectKernels(const GpuAttentionForm &form, int64_t queries) {
  if (!queries)
    return thoseOf(
        {&form.attend, &form.score, &form.select, &form.fold, &form.finish});
  return thoseOf({&form.attend, &form.score, &form.mark, &form.prefer,
                  &form.select, &form.fold, &form.finish});
}

std::vector<const GpuAttentionKernel *>
ladle::budgetKernels(const GpuAttentionForm &form) {
  return thoseOf({&form.lower, &form.fold, &form.pack});
}

/// Tiles of what a head keeps at the most, or of so many.
static int64_t tilesOf(const AttentionProgramImpl &made, int64_t count) {
  int64_t keys = made.gpu->keysOfTile;
  return (count + keys - 1) / keys;
}

/// Of the kernels that follow a choice: `_fold` if there is one, and another.
static void addFolding(std::vector<cuda::Kernel::Extent> &grids,
                       const AttentionProgramImpl &made,
                       const GpuAttentionForm &form, int64_t heads) {
  if (!form.fold.arguments.empty())
    grids.push_back(
        {narrow(heads), narrow(made.keySize / made.gpu->rowsOfFold), 1});
  grids.push_back(
      {narrow(heads), narrow(tilesOf(made, made.bounded->budget)), 1});
}

std::vector<cuda::Kernel::Extent>
ladle::selectGrids(const AttentionProgramImpl &made,
                   const GpuAttentionForm &form, int64_t rows, int64_t tokens,
                   int64_t queries) {
  int64_t heads = rows * made.cacheHeads;
  std::vector<cuda::Kernel::Extent> grids{
      {narrow(attendBlocks(made, form, rows, tokens)), 1, 1}};
  if (!form.score.arguments.empty()) {
    int64_t held = std::min(rows, tokens) * made.bounded->budget;
    int64_t tiles =
        (held + tokens) / made.gpu->keysOfTile + std::min(rows, tokens);
    grids.push_back({narrow(tiles * made.cacheHeads), 1, 1});
  }
  if (queries) {
    grids.push_back({narrow(heads), 1, 1});
    grids.push_back(
        {narrow(heads), narrow(preferenceBlocks(made, queries)), 1});
  }
  grids.push_back({narrow(heads), 1, 1});
  addFolding(grids, made, form, heads);
  return grids;
}

std::vector<cuda::Kernel::Extent>
ladle::budgetGrids(const AttentionProgramImpl &made,
                   const GpuAttentionForm &form, int64_t rows) {
  int64_t heads = rows * made.cacheHeads;
  std::vector<cuda::Kernel::Extent> grids{{narrow(heads), 1, 1}};
  addFolding(grids, made, form, heads);
  return grids;
}

int64_t ladle::preferenceBlocks(const AttentionProgramImpl &made,
                                int64_t queries) {
  int64_t each = made.gpu->tokensOfBlock;
  return (queries + each - 1) / each;
}

int64_t ladle::candidatesOf(const AttentionProgramImpl &made, int64_t rows,
                            int64_t tokens) {
  return rows * made.gpu->stride + tokens;
}

std::map<std::string, int64_t>
ladle::selectWorkspace(const AttentionProgramImpl &made, int64_t rows,
                       int64_t tokens, int64_t queries) {
  const GpuAttentionCode &code = *made.gpu;
  int64_t heads = rows * made.cacheHeads;
  std::map<std::string, int64_t> sizes{
      {"head_plans", heads * DeviceAttentionPool::cursorNumbers},
      {"kept_tokens", heads * code.stride},
      {"kept_entries", heads * code.stride},
      {"spread_parts", heads * code.spreadParts},
      {"query_sums", tokens * made.signature.heads}};
  for (const char *name : {"salience", "ranks", "leaving"})
    sizes[name] = made.cacheHeads * candidatesOf(made, rows, tokens);
  sizes["one_slot"] = sizes["one_budget"] = 1;
  if (!queries)
    return sizes;
  sizes["preference_spread"] = heads;
  sizes["preference_parts"] =
      heads * preferenceBlocks(made, queries) * code.preferenceNumbers;
  return sizes;
}

//===----------------------------------------------------------------------===//
// Prompts of a segmented cache
//===----------------------------------------------------------------------===//

std::vector<const GpuAttentionKernel *>
ladle::segmentKernels(const GpuAttentionForm &form) {
  return {&form.fold, &form.scan, &form.attend, &form.finish};
}

/// Segments that tokens fold at the most. Each row may complete one that was
/// begun before, and the one whose prompt goes on those of a window.
static int64_t foldsOf(const AttentionProgramImpl &made, int64_t rows,
                       int64_t tokens) {
  int64_t segment = made.bounded->segment;
  return tokens / segment + rows + made.bounded->window / segment + 2;
}

static int64_t elementsOfMemory(const AttentionProgramImpl &made) {
  return made.cacheHeads * made.keySize * (made.valueSize + 1);
}

std::vector<cuda::Kernel::Extent>
ladle::segmentGrids(const AttentionProgramImpl &made,
                    const GpuAttentionForm &form, int64_t rows,
                    int64_t tokens) {
  const GpuAttentionCode &code = *made.gpu;
  constexpr int64_t warp = 32;
  auto warps = [](const GpuAttentionKernel &kernel) {
    return static_cast<int64_t>(kernel.kernel.info().threads) / warp;
  };
  int64_t folds = foldsOf(made, std::min(rows, tokens), tokens);
  int64_t foldParts = made.keySize / (code.rowsOfSegment * warps(form.fold));
  int64_t scanParts = made.keySize * made.valueSize / code.elementsOfScan;
  int64_t keeping = warps(form.finish);
  return {{narrow(folds * made.cacheHeads), narrow(foldParts), 1},
          {narrow(rows * made.cacheHeads), narrow(scanParts), 1},
          {narrow(attendBlocks(made, form, rows, tokens)), 1, 1},
          {narrow((tokens + keeping - 1) / keeping), 1, 1}};
}

int64_t ladle::tokensOfRound(const AttentionProgramImpl &made, int64_t tokens) {
  constexpr int64_t mostElements = int64_t(1) << 26;
  int64_t segments =
      std::max<int64_t>(mostElements / elementsOfMemory(made), 1);
  return std::min(tokens, segments * made.bounded->segment);
}

std::map<std::string, int64_t>
ladle::segmentWorkspace(const AttentionProgramImpl &made, int64_t rows,
                        int64_t tokens) {
  int64_t rowsOfMemories =
      foldsOf(made, rows, tokens) * made.cacheHeads * made.keySize;
  return {{"prompt_plans", rows * DeviceAttentionPool::cursorNumbers},
          {"segment_memory", rowsOfMemories * made.valueSize},
          {"segment_keys", rowsOfMemories}};
}
