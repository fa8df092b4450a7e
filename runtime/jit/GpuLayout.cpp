//===- GpuLayout.cpp - how kernels of a GPU are laid out ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/GpuLayout.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/KernelInfo.h"
#include "runtime/jit/BuildGpuProgram.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>

using namespace ladle;
using namespace ladle::jit;

namespace {
struct Row {
  GpuParameter parameter;
  int64_t ConvertLadleToGPUOptions::*option;
};
} // namespace

/// An option of convert-ladle-to-gpu is a row here, and no more.
static const std::vector<Row> &rows() {
  using Options = ConvertLadleToGPUOptions;
  static const auto &table = *new std::vector<Row>{
      // The first vary last: what the model ranks alike is tried in this order.
      {{"pieces", "bulk copies of a tile that warps wait for apart", {0, 2, 4}},
       &Options::pieces},
      {{"stages",
        "stages in which the rows of a warp are copied and read",
        {0, 2}},
       &Options::stages},
      {{"threads", "threads of a block", {0, 64, 128, 256, 512}},
       &Options::threads},
      {{"tile_rows", "rows of dv in a block", {0, 8, 16, 32, 64, 128}},
       &Options::tileRows},
      {{"verify_threads",
        "threads of a block that verifies drafts",
        {0, 64, 128, 256, 512},
        /*verifies=*/true},
       &Options::verifyThreads},
      {{"verify_tile_rows",
        "rows of dv in a block that verifies drafts",
        {0, 16, 32, 64, 128},
        /*verifies=*/true},
       &Options::verifyTileRows},
      {{"verify_heads",
        "heads that a block verifies one after the other",
        {},
        /*verifies=*/true},
       &Options::verifyHeads},
      {{"batch", "rows that blocks are to fill a GPU with", {}},
       &Options::batch},
      {{"shared", "bytes of shared memory that a block may have", {}},
       &Options::shared},
      {{"cluster", "blocks of a cluster at the most", {}}, &Options::cluster},
      {{"product_warps", "warps that tensor cores multiply for together", {}},
       &Options::productWarps},
      {{"forms",
        "forms that kernels hold: 1 decode, 2 decode_fold, 4 fold, 8 "
        "prefill_fold, 16 verify, which is never left out, or sums",
        {}},
       &Options::forms},
  };
  return table;
}

const std::vector<GpuParameter> &jit::gpuParameters() {
  static const auto &parameters = *[] {
    auto *list = new std::vector<GpuParameter>;
    for (const Row &row : rows())
      list->push_back(row.parameter);
    return list;
  }();
  return parameters;
}

std::string jit::GpuParameter::flag() const {
  std::string flag = "--" + name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string jit::checkLayout(const GpuLayout &layout) {
  std::string names;
  for (const Row &row : rows())
    names.append(names.empty() ? "" : ", ").append(row.parameter.name);
  for (const auto &[name, value] : layout)
    if (llvm::none_of(rows(), [&, &wanted = name](const Row &row) {
          return row.parameter.name == wanted;
        }))
      return llvm::formatv("kernels have no parameter '{0}'\n"
                           "note: they have {1}",
                           name, names);
  return "";
}

int64_t jit::sharedBytesOf(llvm::StringRef arch) {
  // CUDA C++ Programming Guide, technical specifications: the most of a block.
  arch.consume_front("sm_");
  return llvm::StringSwitch<int64_t>(arch.take_while(llvm::isDigit))
      .Cases({"86", "89", "120", "121"}, 99 << 10)
      .Cases({"80", "87"}, 163 << 10)
      .Default(0);
}

int64_t jit::clusterBlocksOf(llvm::StringRef arch) {
  constexpr int firstWithClusters = 90;
  int number = 0;
  arch.consume_front("sm_");
  if (arch.take_while(llvm::isDigit).getAsInteger(10, number))
    return kMostBlocks;
  return number < firstWithClusters ? 1 : kMostBlocks;
}

GpuLayout jit::fittingLayout(GpuLayout layout, llvm::StringRef arch) {
  // Of Hopper alone, whose instructions no later architecture has.
  std::pair<const char *, int64_t> known[] = {
      {"shared", sharedBytesOf(arch)},
      {"cluster", clusterBlocksOf(arch)},
      {"product_warps", arch == "sm_90a" ? 4 : 1}};
  for (auto [name, value] : known)
    if (int64_t &chosen = layout[name]; chosen == 0)
      chosen = value;
  return layout;
}

Result<int64_t> jit::formsOf(const std::vector<std::string> &names) {
  int64_t forms = 0;
  for (const std::string &name : names) {
    std::optional<Form> form = symbolizeForm(name);
    if (form == Form::Decode)
      forms |= kDecodeForm;
    else if (form == Form::DecodeFold)
      forms |= kDecodeFoldForm;
    else if (form == Form::Fold)
      forms |= kFoldForm;
    else if (form == Form::PrefillFold || form == Form::PrefillEntries ||
             form == Form::PrefillScan)
      forms |= kPrefillForm;
    else
      return Status(
          ErrorCode::InvalidArgument,
          "kernels of a GPU have no form '" + name +
              "'\nnote: they have decode, decode_fold, fold, prefill_fold, "
              "prefill_scan and, of kv_only in pages, prefill_entries");
  }
  return forms;
}

ConvertLadleToGPUOptions jit::optionsOf(const GpuLayout &layout) {
  ConvertLadleToGPUOptions options;
  for (const Row &row : rows())
    if (auto found = layout.find(row.parameter.name); found != layout.end())
      options.*row.option = found->second;
  return options;
}
