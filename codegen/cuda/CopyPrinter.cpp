//===- CopyPrinter.cpp - counters of bulk copies as CUDA C++ --------------===//
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
