//===- RegisterBounds.cpp - kernels that do not spill ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// ptxas keeps to the registers with which as many blocks are there at once as
// launch bounds ask for, or, where they ask for none, as it likes itself, and
// spills a few bytes for it. A spill costs more than a block does where it is
// read and written beside the state, by every thread. Where it is not, the text
// says behind the bounds how many bytes may be: LADLE_MAY_SPILL.

#include "codegen/cuda/RegisterBounds.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Regex.h"

using namespace llvm;
using namespace ladle;

/// Of a multiprocessor from sm_80 on; of a thread, as they are given out, and
/// the most.
static constexpr int kRegisters = 64 << 10, kUnit = 8, kMostOfThread = 255;
static constexpr int kWarp = 32;
/// Attempts, each of which costs a compilation.
static constexpr int kMostAttempts = 6;

/// Blocks of so many threads, each of which has what it has and the least that
/// takes in what it spills.
static int blocksWithin(int threads, const KernelResources &kernel) {
  constexpr int bytes = sizeof(int);
  int spilled = std::max(kernel.spillStores, kernel.spillLoads);
  int more = std::max(spilled / bytes, kUnit);
  int registers = std::min(kernel.registers + more, kMostOfThread);
  uint64_t ofBlock = alignTo(registers, kUnit) * alignTo(threads, kWarp);
  return static_cast<int>(kRegisters / ofBlock);
}

/// Of the text: all that comes before the name of a kernel, its threads, ",
/// blocks", and what it may spill.
static Regex boundsOf(StringRef kernel) {
  return Regex(("__launch_bounds__\\(([0-9]+)(, [0-9]+)?\\) "
                "(LADLE_MAY_SPILL\\(([0-9]+)\\) )?" +
                kernel + "\\(")
                   .str());
}

void ladle::findSpillsAllowed(StringRef source,
                              MutableArrayRef<KernelResources> kernels) {
  for (KernelResources &kernel : kernels) {
    SmallVector<StringRef> parts;
    int bytes = 0;
    if (boundsOf(kernel.name).match(source, &parts) &&
        !parts[4].getAsInteger(10, bytes))
      kernel.maySpill = bytes;
  }
}

std::string ladle::withFewerBlocks(StringRef source,
                                   ArrayRef<KernelResources> kernels) {
  std::string text = source.str();
  bool isChanged = false;
  for (const KernelResources &kernel : kernels) {
    if (kernel.spillStores + kernel.spillLoads == 0 || !kernel.spills() ||
        kernel.registers >= kMostOfThread)
      continue;
    SmallVector<StringRef> parts;
    int threads = 0, given = 0;
    if (!boundsOf(kernel.name).match(text, &parts) ||
        parts[1].getAsInteger(10, threads))
      continue;
    int blocks = blocksWithin(threads, kernel);
    if (parts[2].consume_front(", ") && !parts[2].getAsInteger(10, given))
      blocks = std::min(blocks, given - 1);
    if (blocks < 1)
      continue;
    size_t at = parts[0].data() - text.data(), size = parts[0].size();
    std::string bounds = formatv("__launch_bounds__({0}, {1}) {2}{3}(", threads,
                                 blocks, parts[3], kernel.name);
    text.replace(at, size, bounds);
    isChanged = true;
  }
  return isChanged ? text : "";
}

Expected<Cubin> ladle::compileWithinRegisters(const Nvrtc &nvrtc,
                                              StringRef source,
                                              StringRef fileName,
                                              const CubinOptions &options) {
  Expected<Cubin> cubin = nvrtc.compile(source, fileName, options);
  std::string text = source.str();
  for (int attempt = 1; cubin; ++attempt) {
    findSpillsAllowed(source, cubin->kernels);
    if (attempt == kMostAttempts)
      break;
    text = withFewerBlocks(text, cubin->kernels);
    if (text.empty())
      break;
    cubin = nvrtc.compile(text, fileName, options);
  }
  return cubin;
}
