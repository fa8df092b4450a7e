//===- NvtxRecorder.cpp - a profiler that keeps names ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libladle_nvtx_recorder, which NVTX_INJECTION64_PATH names, takes the place
// that a profiler has.
//
//===----------------------------------------------------------------------===//

#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

static std::vector<std::string> names;
static int depth = 0;

static int push(const char *name) {
  names.emplace_back(name);
  return depth++;
}
static int pop() { return --depth; }

// As those who look for them name them.
// NOLINTBEGIN(readability-identifier-naming)

/// The names since the last call, if all ranges have ended.
EXPORT void ladle_nvtx_take(std::vector<std::string> &taken) {
  taken.clear();
  if (depth == 0)
    taken.swap(names);
}

EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getTable) {
  const auto *callbacks = static_cast<const NvtxExportTableCallbacks *>(
      getTable(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size))
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] =
      reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
// NOLINTEND(readability-identifier-naming)
