//===- CopyPrinter.cpp - copies and clusters as CUDA C++ ------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaExpressions.h"
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
  // Where parts are copied in a loop, one copy stands for many.
  os << formatv("copy_init_parts<{0}>({1}, {2});\n", parts, texts[counters],
                std::max<int64_t>(1, copies / parts));
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
    StringRef goesOn = copy->hasAttr("ladle.goes_on") ? "_start" : "";
    os << formatv("copy_back{0}({1});\n", goesOn, operands);
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
  bool isKept = copy->hasAttr("ladle.kept");
  std::string kind = isKept                         ? "_kept"
                     : copy->hasAttr("nontemporal") ? "_streaming"
                                                    : "";
  if (countsParts(copy.getTagMemRef())) {
    kind = isKept ? "_part_kept" : "_part";
    counter = pointer(copy.getTagMemRef(), copy.getTagIndices());
  }
  os << formatv("copy{0}{1}({2}, {3});\n", kind, warp, counter, operands);
  return success();
}

/// What a tag counts is there: copies to shared memory, or in global memory
/// what another kernel has prepared.
LogicalResult KernelPrinter::printCopyWait(memref::DmaWaitOp wait) {
  Value tag = wait.getTagMemRef();
  if (!gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(
          cast<MemRefType>(tag.getType()))) {
    if (!texts.contains(tag))
      return unsupported(wait);
    os << formatv("take_arrival({0} + {1});\n", texts[tag],
                  offset(tag, wait.getTagIndices()));
    return success();
  }
  if (countsParts(tag)) {
    os << formatv("copy_part_wait({0} + {1});\n", texts[tag],
                  use(wait.getTagIndices().front()));
    return success();
  }
  // Rows are waited for apart, by those who copied them.
  if (llvm::any_of(tag.getUsers(), [](Operation *user) {
        auto copy = dyn_cast<memref::DmaStartOp>(user);
        return copy && copy.isStrided();
      }))
    os << "copy_rows_wait();\n";
  os << "copy_wait(" << texts[tag] << ");\n";
  return success();
}

LogicalResult KernelPrinter::printThreadWait(nvgpu::DeviceAsyncWaitOp wait) {
  std::optional<uint32_t> pending = wait.getNumGroups();
  if (!pending) {
    os << "copy_rows_wait();\n";
    return success();
  }
  StringRef whose = wait->hasAttr("ladle.of_warp") ? "_in_warp" : "";
  os << formatv("copy_rows_wait{0}<{1}>();\n", whose, *pending);
  return success();
}

/// Of the line of global memory that an element is in.
LogicalResult KernelPrinter::printPrefetch(memref::PrefetchOp prefetch) {
  Value memory = prefetch.getMemref();
  if (!texts.contains(memory) || prefetch.getIsWrite() ||
      gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(prefetch.getMemRefType()))
    return unsupported(prefetch);
  os << formatv("prefetch({0} + {1});\n", texts[memory],
                offset(memory, prefetch.getIndices()));
  return success();
}

/// Where so many threads meet, whole warps of a block.
LogicalResult KernelPrinter::printPartBarrier(NVVM::BarrierOp meets) {
  if (!meets.getBarrierId() || !meets.getNumberOfThreads() ||
      meets.getReductionOp())
    return unsupported(meets);
  os << formatv("part_barrier({0}, {1});\n", use(meets.getBarrierId()),
                use(meets.getNumberOfThreads()));
  return success();
}

LogicalResult KernelPrinter::printRegisters(NVVM::SetMaxRegisterOp registers) {
  bool isMore = registers.getAction() == NVVM::SetMaxRegisterAction::increase;
  os << formatv("set_registers<{0}, {1}>();\n", registers.getRegCount(),
                isMore ? "true" : "false");
  return success();
}

/// Rows of shared memory from one on become memory of their own, and so does a
/// part of a row of other memory.
LogicalResult KernelPrinter::printRowsFrom(memref::SubViewOp view) {
  Value from = view.getSource(), result = view.getResult();
  if (texts.contains(from) && view.hasUnitStride() &&
      !gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(view.getSourceType()) &&
      view.getType().getRank() == view.getSourceType().getRank()) {
    texts[result] = names.fresh(texts[from] + "_row");
    strides[result] = SmallVector<std::string>(strides[from]);
    os << formatv("auto *const {0} = {1} + {2};\n", texts[result], texts[from],
                  offset(from, view.getMixedOffsets()));
    return success();
  }
  if (!texts.contains(from) || view.getOffsets().size() > 1 ||
      view.isDynamicOffset(0) != (view.getOffsets().size() == 1) ||
      !view.hasUnitStride() || view.getType().getNumDynamicDims() != 0 ||
      llvm::any_of(view.getStaticOffsets().drop_front(),
                   [](int64_t offset) { return offset != 0; }))
    return unsupported(view);
  strides[result].resize(view.getType().getRank());
  // What is known of where they begin, the type says to whoever uses them.
  if (!view.isDynamicOffset(0)) {
    std::string name = texts[from];
    texts[result] = name;
    return success();
  }
  SmallVector<Value> first{view.getDynamicOffset(0)};
  texts[result] = names.fresh(texts[from] + "_of_turn");
  os << formatv("{0} *const {1} = {2} + {3};\n",
                typeText(view.getType().getElementType()), texts[result],
                texts[from], offset(from, first));
  return success();
}

/// Bytes of an argument become memory of a type.
LogicalResult KernelPrinter::printView(memref::ViewOp view) {
  Value from = view.getSource(), result = view.getResult();
  if (!texts.contains(from) || !view.getType().getLayout().isIdentity() ||
      view.getType().getNumDynamicDims() != 0)
    return unsupported(view);
  strides[result].resize(view.getType().getRank());
  texts[result] = names.fresh(texts[from] + "_part");
  os << formatv("auto *const {0} = bytes_as<{1}>({2} + {3});\n", texts[result],
                typeText(view.getType().getElementType()), texts[from],
                use(view.getByteShift()));
  return success();
}

/// All of a memory without gaps is one row.
LogicalResult KernelPrinter::printCollapse(memref::CollapseShapeOp collapse) {
  Value from = collapse.getSrc(), result = collapse.getResult();
  MemRefType type = collapse.getType();
  if (!texts.contains(from) || type.getRank() != 1 ||
      collapse.getSrcType().getNumDynamicDims() != 0)
    return unsupported(collapse);
  std::string name = texts[from];
  texts[result] = name;
  strides[result].resize(1);
  return success();
}

/// Shared memory and a rank become that of another block of the cluster.
LogicalResult
KernelPrinter::printClusterMemory(UnrealizedConversionCastOp cast) {
  auto type = cast.getNumOperands() == 2
                  ? dyn_cast<MemRefType>(cast.getOperandTypes()[0])
                  : MemRefType();
  if (!type || !gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(type) ||
      !cast.getOperandTypes()[1].isIndex() ||
      cast.getResultTypes() != TypeRange(type))
    return unsupported(cast);
  Value memory = cast.getOperand(0), result = cast.getResult(0);
  std::string rank = use(cast.getOperand(1));
  texts[result] = names.fresh(texts[memory] + "_of_other");
  strides[result].resize(type.getRank());
  os << formatv("{0} *const {1} = cluster_memory({2}, {3});\n",
                typeText(type.getElementType()), texts[result], texts[memory],
                rank);
  return success();
}
