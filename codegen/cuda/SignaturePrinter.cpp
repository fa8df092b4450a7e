//===- SignaturePrinter.cpp - what a kernel takes, as CUDA C++ ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaExpressions.h"
#include "codegen/cuda/KernelPrinter.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace ladle::cuda;
using llvm::formatv;

static constexpr size_t kColumns = 80;

static bool isStoredTo(Value memref) {
  return llvm::any_of(memref.getUsers(), [&](Operation *user) {
    if (auto copy = dyn_cast<memref::DmaStartOp>(user))
      return copy.getDstMemRef() == memref;
    if (auto store = dyn_cast<memref::StoreOp>(user))
      return store.getMemref() == memref;
    if (auto store = dyn_cast<vector::StoreOp>(user))
      return store.getBase() == memref;
    if (auto view = dyn_cast<memref::ViewOp>(user))
      return isStoredTo(view.getResult());
    return isa<memref::AtomicRMWOp, memref::DmaWaitOp>(user);
  });
}

/// Whether the kernel may read it behind a wait: the kernel ahead may have
/// written it after this one began, so that to a compiler it is not what nobody
/// writes, whose loads move above the wait.
static bool isReadAfterWait(Value memref, ArrayRef<Operation *> waits) {
  auto isAfter = [](Operation *user, Operation *wait) {
    for (; !isa<gpu::GPUFuncOp>(wait); wait = wait->getParentOp()) {
      Operation *beside = wait->getBlock()->findAncestorOpInBlock(*user);
      // What a loop reads ahead of its wait, its first turn reads ahead of any:
      // none that is waited for writes it.
      if (beside && wait->isBeforeInBlock(beside))
        return true;
    }
    return false;
  };
  return llvm::any_of(memref.getUsers(), [&](Operation *user) {
    return llvm::any_of(waits,
                        [&](Operation *wait) { return isAfter(user, wait); });
  });
}

LogicalResult ladle::cuda::stridesOf(Value memref,
                                     SmallVectorImpl<int64_t> &strides,
                                     int64_t &offset) {
  auto type = cast<MemRefType>(memref.getType());
  if (typeText(type.getElementType()).empty() ||
      isa<VectorType>(type.getElementType()))
    return unsupportedType(memref.getLoc(), type.getElementType());
  if (succeeded(type.getStridesAndOffset(strides, offset)))
    return success();
  auto diagnostic = emitError(memref.getLoc())
                    << "the layout of " << type << " cannot be printed as CUDA";
  diagnostic.attachNote() << "elements are found by strides";
  return diagnostic;
}

LogicalResult
KernelPrinter::printParameters(gpu::GPUFuncOp kernel,
                               SmallVectorImpl<std::string> &all) {
  SmallVector<Operation *> waits;
  kernel.walk([&](NVVM::GriddepcontrolOp control) {
    if (control.getKind() == NVVM::GridDepActionKind::wait)
      waits.push_back(control);
  });
  for (unsigned i = 0, e = kernel.getFunctionType().getNumInputs(); i < e;
       ++i) {
    BlockArgument argument = kernel.getArgument(i);
    auto named = kernel.getArgAttrOfType<StringAttr>(i, "ladle.name");
    std::string text = texts[argument] =
        names.fresh(named ? named.getValue() : nameOf(argument.getLoc()));
    auto memref = dyn_cast<MemRefType>(argument.getType());
    if (!memref) {
      std::string type = typeText(argument.getType());
      if (type.empty())
        return unsupportedType(argument.getLoc(), argument.getType());
      all.push_back(formatv("{0} {1}", type, text));
      continue;
    }
    if (gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(memref))
      return unsupportedType(argument.getLoc(), memref);
    SmallVector<int64_t> sizes;
    int64_t offset;
    if (failed(stridesOf(argument, sizes, offset)))
      return failure();
    std::string element = typeText(memref.getElementType());
    // Two pointers may be the same where one is stored to: a state, say.
    const char *pointer = isStoredTo(argument) ? "{0} *{1}"
                          : isReadAfterWait(argument, waits)
                              ? "const {0} *{1}"
                              : "const {0} *__restrict__ {1}";
    all.push_back(formatv(pointer, element, text).str());
    for (auto [dimension, stride] : llvm::enumerate(sizes)) {
      std::string &name = strides[argument].emplace_back();
      if (!ShapedType::isDynamic(stride))
        continue;
      name = names.fresh(formatv("{0}_stride{1}", text, dimension).str());
      all.back() += ", int " + name;
    }
  }
  return success();
}

LogicalResult KernelPrinter::printSignature(gpu::GPUFuncOp kernel) {
  SmallVector<std::string> parameters;
  if (failed(printParameters(kernel, parameters)))
    return failure();
  if (FileLineColLoc place = placeOf(kernel.getLoc()))
    os << "// " << place.getFilename().getValue() << ':' << place.getLine()
       << '\n';
  std::string head = "extern \"C\" __global__ void ";
  if (auto block = kernel.getKnownBlockSize()) {
    int64_t threads = 1;
    for (int32_t size : *block)
      threads *= size;
    std::string blocks;
    if (auto least = kernel->getAttrOfType<IntegerAttr>("ladle.blocks"))
      blocks = formatv(", {0}", least.getInt());
    head += formatv("__launch_bounds__({0}{1}) ", threads, blocks);
    if (auto bytes = kernel->getAttrOfType<IntegerAttr>("ladle.may_spill"))
      head += formatv("LADLE_MAY_SPILL({0}) ", bytes.getInt());
  }
  head += kernel.getName().str() + "(";
  std::string line = head + llvm::join(parameters, ", ") + ") {\n";
  if (line.size() <= kColumns + 1)
    os << line;
  else
    os << head << "\n    " << llvm::join(parameters, ",\n    ") << ") {\n";
  return success();
}
