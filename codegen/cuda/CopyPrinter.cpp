//===- CopyPrinter.cpp - bulk copies as CUDA C++ --------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/KernelPrinter.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace ladle::cuda;
using llvm::formatv;

bool ladle::cuda::countsParts(Value tag) {
  return cast<MemRefType>(tag.getType()).getNumElements() > 1;
}

bool ladle::cuda::countsGroups(nvgpu::DeviceAsyncCreateGroupOp group) {
  bool counts = false;
  group->getParentOfType<gpu::GPUFuncOp>().walk(
      [&](nvgpu::DeviceAsyncWaitOp wait) {
        counts |= wait.getNumGroups().has_value();
      });
  return counts;
}

void KernelPrinter::printCopyInit(Value counters) {
  if (!countsParts(counters)) {
    os << "copy_init(" << texts[counters] << ");\n";
    return;
  }
  // All parts are copied by as many.
  int64_t parts = cast<MemRefType>(counters.getType()).getNumElements();
  int64_t copies = llvm::count_if(counters.getUsers(), [](Operation *user) {
    auto copy = dyn_cast<memref::DmaStartOp>(user);
    return copy && gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(
                       cast<MemRefType>(copy.getDstMemRef().getType()));
  });
  os << formatv("copy_init_parts<{0}>({1}, {2});\n", parts, texts[counters],
                copies / parts);
}

/// A copy to shared memory that the tag counts.
LogicalResult KernelPrinter::printCopy(memref::DmaStartOp copy) {
  Value from = copy.getSrcMemRef(), to = copy.getDstMemRef();
  auto isShared = [](Value memref) {
    return gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(
        cast<MemRefType>(memref.getType()));
  };
  bool isBack = isShared(from);
  if (!texts.contains(from) || !texts.contains(to) || isBack == isShared(to) ||
      (isBack && copy.isStrided()))
    return unsupported(copy);
  auto pointer = [&](Value memref, ValueRange indices) {
    std::string where = offset(memref, indices);
    return where == "0" ? texts[memref] : texts[memref] + " + " + where;
  };
  std::string operands =
      formatv("{0}, {1}, {2}", pointer(to, copy.getDstIndices()),
              pointer(from, copy.getSrcIndices()), use(copy.getNumElements()));
  if (isBack) {
    os << formatv("copy_back({0});\n", operands);
    return success();
  }
  if (copy.isStrided()) {
    os << formatv("copy_rows({0}, {1}, {2});\n", operands,
                  use(copy.getStride()), use(copy.getNumElementsPerStride()));
    return success();
  }
  std::string warp, counter = texts[copy.getTagMemRef()];
  if (auto chosen = copy->getAttrOfType<IntegerAttr>("ladle.warp"))
    warp = formatv("<{0}>", chosen.getInt());
  std::string kind = copy->hasAttr("nontemporal") ? "_streaming" : "";
  if (countsParts(copy.getTagMemRef())) {
    kind = "_part";
    counter = pointer(copy.getTagMemRef(), copy.getTagIndices());
  }
  os << formatv("copy{0}{1}({2}, {3});\n", kind, warp, counter, operands);
  return success();
}
