//===- CpuTarget.cpp - the processor to compile for -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/CpuTarget.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/AArch64TargetParser.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/TargetParser/X86TargetParser.h"

#include <algorithm>

using namespace ladle;

static CpuTarget detectHost() {
  std::vector<std::string> features;
  for (const auto &[name, enabled] : llvm::sys::getHostCPUFeatures())
    features.push_back(((enabled ? "+" : "-") + name).str());
  // The order of a hash table is no part of a cache key.
  llvm::sort(features);
  // Kernels stream: the clock that vectors of 512 bits cost on older cores is
  // repaid by half as many loads in flight.
  if (llvm::is_contained(features, "+avx512f"))
    features.push_back("-prefer-256-bit");
  return {llvm::sys::getProcessTriple(), llvm::sys::getHostCPUName().str(),
          llvm::join(features, ",")};
}

const CpuTarget &CpuTarget::host() {
  static const CpuTarget target = detectHost();
  return target;
}

std::vector<llvm::StringRef> CpuTarget::names() {
  llvm::Triple triple(host().triple);
  llvm::SmallVector<llvm::StringRef> all;
  if (triple.isX86())
    llvm::X86::fillValidCPUArchList(all, /*Only64Bit=*/triple.isX86_64());
  else if (triple.isAArch64())
    llvm::AArch64::fillValidCPUArchList(all);
  return {all.begin(), all.end()};
}

std::string CpuTarget::architecture() {
  std::string name = llvm::Triple(host().triple).getArchName().str();
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::optional<CpuTarget> CpuTarget::named(llvm::StringRef cpu) {
  if (std::vector<llvm::StringRef> all = names();
      !all.empty() && !llvm::is_contained(all, cpu))
    return std::nullopt;
  CpuTarget target{host().triple, cpu.str(), ""};
  if (!llvm::Triple(target.triple).isX86())
    return target;
  llvm::SmallVector<llvm::StringRef> names;
  llvm::X86::getFeaturesForCPU(cpu, names, /*NeedPlus=*/false);
  std::vector<std::string> features;
  for (llvm::StringRef name : names)
    features.push_back(("+" + name).str());
  if (llvm::is_contained(names, "avx512f"))
    features.push_back("-prefer-256-bit");
  target.features = llvm::join(features, ",");
  return target;
}

bool CpuTarget::has(llvm::StringRef feature) const {
  for (llvm::StringRef item : llvm::split(features, ','))
    if (item.consume_front("+") && item == feature)
      return true;
  return false;
}

bool CpuTarget::fusesProducts() const {
  return !llvm::Triple(triple).isX86() || has("fma") || has("fma4");
}

static bool isZen(const CpuTarget &target) {
  return llvm::StringRef(target.cpu).starts_with("znver");
}

bool CpuTarget::dotsBF16() const { return has("avx512bf16") && isZen(*this); }

bool CpuTarget::forgetsRequests() const {
  return has("avx512f") && !isZen(*this);
}
