//===- KernelPrinter.cpp - one kernel as CUDA C++ -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/KernelPrinter.h"
#include "codegen/cuda/CudaExpressions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include <limits>

using namespace mlir;
using llvm::formatv;

namespace ladle::cuda {

static constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

LogicalResult unsupported(Operation *op) {
  auto diagnostic = emitError(op->getLoc())
                    << "'" << op->getName() << "' cannot be printed as CUDA";
  if (op->getNumOperands())
    diagnostic.attachNote()
        << "its operands are of type " << op->getOperandTypes();
  diagnostic.attachNote() << "kernels are made of gpu, scf, arith, math, "
                             "memref and vector operations on scalars and 1-D "
                             "vectors, and compute numbers in f32";
  return diagnostic;
}

LogicalResult unsupportedType(Location loc, Type type) {
  auto diagnostic = emitError(loc)
                    << "type " << type << " cannot be printed as CUDA";
  diagnostic.attachNote() << "kernels use i1, i8 to i64, index, f16, bf16, f32 "
                             "and 1-D vectors of them";
  return diagnostic;
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// Of every array: what the widest access needs.
static constexpr int64_t kSharedAlignment = 16;
/// What copies to shared memory and back are made of.
static constexpr int64_t kSector = 32;
/// What a kernel may have without being launched with it.
static constexpr int64_t kStaticSharedBytes = 48 << 10;

static int64_t sharedBytes(MemRefType type) {
  int64_t bits = type.getElementType().isIndex()
                     ? 32
                     : type.getElementType().getIntOrFloatBitWidth();
  return llvm::alignTo(type.getNumElements() * bits / 8, kSharedAlignment);
}

/// Which shared memory the bytes of another are.
static std::optional<int64_t> sharesWith(gpu::GPUFuncOp kernel, size_t number) {
  auto other = dyn_cast_or_null<IntegerAttr>(
      kernel.getWorkgroupAttributionAttr(number, "ladle.shares"));
  return other ? std::optional(other.getInt()) : std::nullopt;
}

/// Whether it lies where memory of others lies that the same row never needs.
static bool isOfOtherRows(gpu::GPUFuncOp kernel, size_t number) {
  return kernel.getWorkgroupAttributionAttr(number, "ladle.other_rows") !=
         nullptr;
}

/// Memories in the order in which they lie: large ones first, so that those of
/// whole sectors begin where sectors do, without which copies are slow. Others
/// that share their bytes come behind them, and last those of other rows.
static SmallVector<size_t> orderOfShared(gpu::GPUFuncOp kernel) {
  SmallVector<std::tuple<bool, int64_t, size_t>> order;
  for (auto [i, memory] : llvm::enumerate(kernel.getWorkgroupAttributions()))
    order.emplace_back(isOfOtherRows(kernel, i),
                       sharesWith(kernel, i)
                           ? 0
                           : -sharedBytes(cast<MemRefType>(memory.getType())),
                       i);
  llvm::sort(order);
  return llvm::map_to_vector(order,
                             [](auto &each) { return std::get<2>(each); });
}

LogicalResult KernelPrinter::printShared(gpu::GPUFuncOp kernel) {
  if (kernel.getNumPrivateAttributions())
    return unsupportedType(kernel.getPrivateAttributions()[0].getLoc(),
                           kernel.getPrivateAttributions()[0].getType());
  // What is larger than static memory may be is one array that the launch
  // sizes.
  int64_t dynamicBytes = dynamicSharedBytes(kernel);
  bool isDynamic = dynamicBytes != 0;
  std::string all;
  int64_t starts[2] = {0, 0};
  if (isDynamic) {
    all = names.fresh("shared_memory");
    os << "LADLE_DYNAMIC_SHARED(" << all << ", " << dynamicBytes << ");\n";
  }
  // An error, before sizes are asked for.
  for (Value memory : kernel.getWorkgroupAttributions()) {
    auto type = cast<MemRefType>(memory.getType());
    SmallVector<int64_t> sizes;
    int64_t offset;
    if (failed(stridesOf(memory, sizes, offset)))
      return failure();
    if (!type.hasStaticShape() || !type.getLayout().isIdentity()) {
      auto diagnostic = emitError(memory.getLoc())
                        << "workgroup memory of type " << type
                        << " cannot be printed as CUDA";
      diagnostic.attachNote() << "its size is static and its layout plain";
      return diagnostic;
    }
    strides[memory].resize(sizes.size());
  }
  for (size_t i : orderOfShared(kernel)) {
    Value memory = kernel.getWorkgroupAttributions()[i];
    auto type = cast<MemRefType>(memory.getType());
    auto named = dyn_cast_or_null<StringAttr>(
        kernel.getWorkgroupAttributionAttr(i, "ladle.name"));
    texts[memory] =
        names.fresh(named ? named.getValue() : nameOf(memory.getLoc()));
    std::string element = typeText(type.getElementType());
    if (auto shares = sharesWith(kernel, i)) {
      Value other = kernel.getWorkgroupAttributions()[*shares];
      os << formatv("{0} *const {1} = ({0} *){2};\n", element, texts[memory],
                    texts[other]);
      continue;
    }
    int64_t &start = starts[isOfOtherRows(kernel, i)];
    if (isDynamic)
      os << formatv("{0} *const {1} = ({0} *)({2} + {3}); // [{4}]\n", element,
                    texts[memory], all, start, type.getNumElements());
    else
      os << formatv("__shared__ __align__({3}) {0} {1}[{2}];\n", element,
                    texts[memory], type.getNumElements(),
                    sharedBytes(type) % kSector == 0 ? kSector
                                                     : kSharedAlignment);
    start += sharedBytes(type);
  }
  // Copies are counted from zero.
  for (Value memory : kernel.getWorkgroupAttributions())
    if (llvm::any_of(memory.getUsers(), [&](Operation *user) {
          auto wait = dyn_cast<memref::DmaWaitOp>(user);
          return wait && wait.getTagMemRef() == memory;
        }))
      printCopyInit(memory);
  return success();
}

LogicalResult KernelPrinter::print(gpu::GPUFuncOp kernel) {
  names.fresh(kernel.getName());
  if (!kernel.getBody().hasOneBlock()) {
    auto diagnostic = emitError(kernel.getLoc())
                      << "kernel '" << kernel.getName() << "' has "
                      << kernel.getBody().getBlocks().size() << " blocks";
    diagnostic.attachNote() << "control flow is scf.for and scf.if";
    return diagnostic;
  }
  hasWideProducts = kernel->hasAttr("ladle.wide_products");
  if (failed(printSignature(kernel)))
    return failure();
  os.indent();
  if (failed(printShared(kernel)) ||
      failed(printBlock(kernel.getBody().front())))
    return failure();
  os.unindent() << "}\n";
  return success();
}

//===----------------------------------------------------------------------===//
// Control flow
//===----------------------------------------------------------------------===//

LogicalResult KernelPrinter::printRegion(Region &region) {
  os.indent();
  names.enter();
  LogicalResult result = printBlock(region.front());
  names.leave();
  os.unindent();
  return result;
}

/// Operations that print nothing, and so do not come between others.
static bool isSilent(Operation *op) {
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    return !dense || dense.isSplat();
  }
  return isa<vector::BroadcastOp>(op) || isSameInCuda(op);
}

LogicalResult KernelPrinter::printBlock(Block &block) {
  auto sizeOf = [](Operation *op) -> int64_t {
    auto vector = op->getNumResults() && isElementwise(op)
                      ? dyn_cast<VectorType>(op->getResult(0).getType())
                      : VectorType();
    return vector && !isSameInCuda(op) ? vector.getNumElements() : 0;
  };
  for (auto op = block.begin(); op != block.end();) {
    int64_t size = sizeOf(&*op);
    if (!size) {
      if (failed(printOperation(&*op)))
        return failure();
      ++op;
      continue;
    }
    // Neighbours on as many elements share a loop.
    SmallVector<Operation *> group;
    for (; op != block.end() && (sizeOf(&*op) == size || isSilent(&*op)); ++op)
      group.push_back(&*op);
    if (failed(printElementwise(group, size)))
      return failure();
  }
  return success();
}

LogicalResult KernelPrinter::printFor(scf::ForOp loop) {
  if (loop.getUnsignedCmp()) {
    auto diagnostic = emitError(loop.getLoc())
                      << "an unsigned loop cannot be printed as CUDA";
    diagnostic.attachNote() << "bounds are signed";
    return diagnostic;
  }
  for (auto [init, argument, result] : llvm::zip(
           loop.getInitArgs(), loop.getRegionIterArgs(), loop.getResults())) {
    // The argument and the result are one variable, declared before the loop.
    bool isNamed = !nameOf(argument.getLoc()).empty();
    Value named = isNamed ? Value(argument) : Value(result);
    std::string variable = declare(named), text = texts.lookup(named);
    if (variable.empty())
      return failure();
    texts[argument] = text;
    texts[result] = text;
    if (auto splat = elements.find(init); splat != elements.end())
      printFilled(cast<VectorType>(init.getType()), text, splat->second);
    else
      os << variable << " = " << use(init) << ";\n";
  }
  std::string begin = use(loop.getLowerBound());
  std::string end = use(loop.getUpperBound()), step = use(loop.getStep());
  names.enter();
  Value index = loop.getInductionVar();
  StringRef wanted = nameOf(index.getLoc());
  std::string text = texts[index] =
      wanted.empty() ? names.freshIndex() : names.fresh(wanted);
  if (auto rounds = loop->getAttrOfType<IntegerAttr>("ladle.unroll"))
    os << "#pragma unroll " << rounds.getInt() << '\n';
  else if (loop->hasAttr("ladle.unroll"))
    os << "#pragma unroll\n";
  if (loop->hasAttr("ladle.rolled"))
    os << "#pragma unroll 1\n";
  std::string increment = getConstantIntValue(loop.getStep()) == 1
                              ? "++" + text
                              : text + " += " + step;
  os << formatv("for ({0} {1} = {2}; {1} < {3}; {4}) {{\n",
                typeText(index.getType()), text, begin, end, increment);
  LogicalResult result = printRegion(loop.getRegion());
  names.leave();
  os << "}\n";
  return result;
}

LogicalResult KernelPrinter::printIf(scf::IfOp branch) {
  for (Value result : branch.getResults()) {
    std::string variable = declare(result);
    if (variable.empty())
      return failure();
    os << variable << ";\n";
  }
  os << "if (" << use(branch.getCondition()) << ") {\n";
  if (failed(printRegion(branch.getThenRegion())))
    return failure();
  if (branch.elseBlock() && (branch.getNumResults() ||
                             branch.elseBlock()->getOperations().size() > 1)) {
    os << "} else {\n";
    if (failed(printRegion(branch.getElseRegion())))
      return failure();
  }
  os << "}\n";
  return success();
}

LogicalResult KernelPrinter::printYield(scf::YieldOp yield) {
  Operation *parent = yield->getParentOp();
  SmallVector<std::string> values;
  SmallVector<Value> variables(parent->getResults());
  auto loop = dyn_cast<scf::ForOp>(parent);
  for (auto [i, value] : llvm::enumerate(yield.getResults())) {
    values.push_back(use(value));
    if (!loop)
      continue;
    // An argument that an earlier assignment changes is saved before all.
    auto argument = dyn_cast<BlockArgument>(root(value));
    if (!argument || argument.getOwner() != loop.getBody() ||
        argument.getArgNumber() < loop.getNumInductionVars() ||
        argument.getArgNumber() - loop.getNumInductionVars() >= i)
      continue;
    std::string saved = names.fresh("old_" + texts[argument]);
    os << formatv("const {0} {1} = {2};\n", typeText(value.getType()), saved,
                  values.back());
    values.back() = saved;
  }
  for (auto [variable, value] : llvm::zip(variables, values))
    if (texts[variable] != value)
      os << texts[variable] << " = " << value << ";\n";
  return success();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Where an element is from the pointer of its memref. Sums of static strides
/// are `int` where they cannot exceed it.
std::string KernelPrinter::offset(Value memref, ValueRange indices) {
  return offset(memref, SmallVector<OpFoldResult>(indices));
}

std::string KernelPrinter::offset(Value memref,
                                  ArrayRef<OpFoldResult> indices) {
  auto type = cast<MemRefType>(memref.getType());
  SmallVector<int64_t> sizes;
  int64_t constant;
  (void)type.getStridesAndOffset(sizes, constant);
  if (ShapedType::isDynamic(constant))
    constant = 0;
  auto saturate = [](int64_t a, int64_t b) {
    int64_t product;
    return llvm::MulOverflow(a, b, product) ? kMaxInt + 1
                                            : std::min(product, kMaxInt + 1);
  };
  auto text = [&](OpFoldResult index) {
    if (auto value = dyn_cast<Value>(index))
      return use(value);
    return literal(*getConstantIntValue(index));
  };
  struct Term {
    std::string index, factor;
  };
  SmallVector<Term> terms, ints;
  int64_t bound = constant;
  for (auto [i, index] : llvm::enumerate(indices)) {
    std::string stride = strides[memref][i];
    std::optional<int64_t> known = getConstantIntValue(index);
    if (known == 0)
      continue;
    if (!stride.empty()) {
      if (known == 1)
        terms.push_back({"(long long)" + stride, ""});
      else if (hasWideProducts)
        terms.push_back(
            {formatv("wide_product({0}, {1})", text(index), stride).str(), ""});
      else
        terms.push_back({"(long long)" + text(index), stride});
      continue;
    }
    int64_t product;
    if (known && !llvm::MulOverflow(*known, sizes[i], product)) {
      constant += product;
      bound += std::min(std::abs(product), kMaxInt + 1);
      continue;
    }
    int64_t last = type.isDynamicDim(i)
                       ? kMaxInt
                       : std::max<int64_t>(type.getDimSize(i), 1) - 1;
    int64_t most = saturate(last, std::abs(sizes[i]));
    bool isLong = most > kMaxInt;
    bound += isLong ? 0 : most;
    (isLong ? terms : ints)
        .push_back({(isLong ? "(long long)" : "") + text(index),
                    sizes[i] == 1 ? "" : literal(sizes[i])});
  }
  // A sum is as wide as its first term. What is known to be an int is added up
  // apart, so that only what comes out is made longer.
  size_t longs = terms.size();
  bool isApart =
      longs > 0 && ints.size() + (constant != 0) > 1 && bound <= kMaxInt;
  llvm::append_range(terms, ints);
  if (bound > kMaxInt && longs == 0 && !terms.empty())
    terms.front().index = "(long long)" + terms.front().index;
  std::string sum;
  for (auto [i, term] : llvm::enumerate(terms)) {
    sum += sum.empty() ? "" : " + ";
    if (isApart && i == longs)
      sum += "(";
    sum += term.index;
    if (!term.factor.empty())
      sum += " * " + term.factor;
  }
  if (constant || sum.empty())
    sum += (sum.empty() ? "" : " + ") + literal(constant);
  if (isApart)
    sum += ")";
  return sum;
}

LogicalResult KernelPrinter::printLoad(Operation *load, Value memref,
                                       ValueRange indices, bool streaming) {
  if (!texts.contains(memref))
    return unsupported(load);
  std::string where = offset(memref, indices);
  Value result = load->getResult(0);
  auto vector = dyn_cast<VectorType>(result.getType());
  if (!vector)
    return define(result, formatv("{0}[{1}]", texts[memref], where).str());
  std::string pointer =
      where == "0" ? texts[memref] : texts[memref] + " + " + where;
  StringRef kind = streaming ? "_streaming" : "";
  if (load->hasAttr("ladle.ahead"))
    kind = "_ahead";
  return define(result, formatv("load_vector{0}<{1}>({2})", kind,
                                vector.getNumElements(), pointer)
                            .str());
}

LogicalResult KernelPrinter::printStore(Operation *store, Value value,
                                        Value memref, ValueRange indices,
                                        bool streaming) {
  if (!texts.contains(memref))
    return unsupported(store);
  std::string text = use(value);
  std::string where = offset(memref, indices);
  bool isVector = isa<VectorType>(value.getType());
  bool isKept = store->hasAttr("ladle.kept");
  if (!isVector && !isKept) {
    os << formatv("{0}[{1}] = {2};\n", texts[memref], where, text);
    return success();
  }
  if (typeText(value.getType()).empty())
    return unsupportedType(store->getLoc(), value.getType());
  std::string pointer =
      where == "0" ? texts[memref] : texts[memref] + " + " + where;
  StringRef kind = isKept ? "_kept" : streaming ? "_streaming" : "";
  os << formatv("store{0}{1}({2}, {3});\n", isVector ? "_vector" : "", kind,
                pointer, text);
  return success();
}

/// Counters of global memory, which blocks add to as they arrive.
LogicalResult KernelPrinter::printArrival(memref::AtomicRMWOp arrival) {
  Value counters = arrival.getMemref();
  auto type = cast<MemRefType>(counters.getType());
  if (!texts.contains(counters) ||
      arrival.getKind() != arith::AtomicRMWKind::addi ||
      !type.getElementType().isInteger(32) ||
      gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(type))
    return unsupported(arrival);
  return define(arrival.getResult(),
                formatv("arrive({0} + {1}, {2})", texts[counters],
                        offset(counters, arrival.getIndices()),
                        use(arrival.getValue()))
                    .str());
}

LogicalResult KernelPrinter::printOperation(Operation *op) {
  auto dimension = [&](const char *variable, gpu::Dimension which) {
    return define(
        op->getResult(0),
        formatv("{0}.{1}", variable, gpu::stringifyDimension(which)).str());
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<arith::ConstantOp>([&](auto) { return printConstant(op); })
      .Case<scf::ForOp>([&](auto loop) { return printFor(loop); })
      .Case<scf::IfOp>([&](auto branch) { return printIf(branch); })
      .Case<scf::YieldOp>([&](auto yield) { return printYield(yield); })
      .Case<gpu::ReturnOp>([&](auto) { return success(); })
      .Case<gpu::BarrierOp>([&](auto) {
        bool isOfWarp = op->hasAttr("ladle.of_warp");
        bool releases = op->hasAttr("ladle.releases");
        os << (isOfWarp   ? "warp_barrier();\n"
               : releases ? "release_barrier();\n"
                          : "block_barrier();\n");
        return success();
      })
      .Case<NVVM::BarrierOp>(
          [&](auto meets) { return printPartBarrier(meets); })
      .Case<NVVM::GriddepcontrolOp>([&](auto control) {
        bool waits = control.getKind() == NVVM::GridDepActionKind::wait;
        os << (waits ? "wait_for_previous();\n" : "let_next_start();\n");
        return success();
      })
      .Case<NVVM::FenceProxyOp>([&](auto fence) -> LogicalResult {
        if (fence.getKind() != NVVM::ProxyKind::async_shared)
          return unsupported(fence);
        os << "shared_fence();\n";
        return success();
      })
      .Case<NVVM::SetMaxRegisterOp>(
          [&](auto registers) { return printRegisters(registers); })
      .Case<NVVM::ClusterArriveOp, NVVM::ClusterArriveRelaxedOp,
            NVVM::ClusterWaitOp>([&](Operation *each) {
        StringRef text = isa<NVVM::ClusterWaitOp>(each) ? "cluster_wait"
                         : isa<NVVM::ClusterArriveOp>(each)
                             ? "cluster_arrive"
                             : "cluster_arrive_relaxed";
        os << text << "();\n";
        return success();
      })
      .Case<UnrealizedConversionCastOp>(
          [&](auto cast) { return printClusterMemory(cast); })
      .Case<gpu::ThreadIdOp>(
          [&](auto id) { return dimension("threadIdx", id.getDimension()); })
      .Case<gpu::BlockIdOp>(
          [&](auto id) { return dimension("blockIdx", id.getDimension()); })
      .Case<gpu::BlockDimOp>(
          [&](auto size) { return dimension("blockDim", size.getDimension()); })
      .Case<gpu::GridDimOp>(
          [&](auto size) { return dimension("gridDim", size.getDimension()); })
      .Case<NVVM::CpAsyncBulkWaitGroupOp>([&](auto) {
        os << "copy_back_wait();\n";
        return success();
      })
      .Case<memref::SubViewOp>([&](auto view) { return printRowsFrom(view); })
      .Case<memref::ViewOp>([&](auto view) { return printView(view); })
      .Case<memref::CollapseShapeOp>(
          [&](auto collapse) { return printCollapse(collapse); })
      .Case<memref::PrefetchOp>(
          [&](auto prefetch) { return printPrefetch(prefetch); })
      .Case<memref::AtomicRMWOp>(
          [&](auto arrival) { return printArrival(arrival); })
      .Case<memref::DmaStartOp>([&](auto copy) { return printCopy(copy); })
      .Case<nvgpu::DeviceAsyncCopyOp>(
          [&](auto copy) { return printThreadCopy(copy); })
      .Case<nvgpu::DeviceAsyncCreateGroupOp>([&](auto group) {
        if (countsGroups(group))
          os << "copy_rows_commit();\n";
        return success();
      })
      .Case<nvgpu::DeviceAsyncWaitOp>(
          [&](auto wait) { return printThreadWait(wait); })
      .Case<memref::DmaWaitOp>([&](auto wait) { return printCopyWait(wait); })
      .Case<memref::LoadOp>([&](auto load) {
        return printLoad(load, load.getMemref(), load.getIndices(), false);
      })
      .Case<vector::LoadOp>([&](auto load) {
        return printLoad(load, load.getBase(), load.getIndices(),
                         load.getNontemporal());
      })
      .Case<memref::StoreOp>([&](auto store) {
        return printStore(store, store.getValueToStore(), store.getMemref(),
                          store.getIndices(), false);
      })
      .Case<vector::StoreOp>([&](auto store) {
        return printStore(store, store.getValueToStore(), store.getBase(),
                          store.getIndices(), store.getNontemporal());
      })
      .Default([&](Operation *) -> LogicalResult {
        if (isSameInCuda(op)) {
          makeAlias(op->getResult(0), op->getOperand(0));
          return success();
        }
        if (!isElementwise(op))
          return printVectorOperation(op);
        SmallVector<std::string> operands;
        for (Value operand : op->getOperands())
          operands.push_back(use(operand));
        std::string expression = elementExpression(op, operands);
        // A condition is read where it is tested.
        auto branch = dyn_cast_or_null<scf::IfOp>(op->getNextNode());
        Value result = op->getResult(0);
        if (branch && branch.getCondition() == result && result.hasOneUse() &&
            nameOf(op->getLoc()).empty()) {
          texts[result] = expression;
          return success();
        }
        return define(result, expression);
      });
}

} // namespace ladle::cuda

int64_t ladle::dynamicSharedBytes(gpu::GPUFuncOp kernel) {
  int64_t totals[2] = {0, 0};
  for (auto [i, memory] : llvm::enumerate(kernel.getWorkgroupAttributions())) {
    if (cuda::sharesWith(kernel, i))
      continue;
    auto type = cast<MemRefType>(memory.getType());
    if (!type.hasStaticShape() || !type.getElementType().isIntOrIndexOrFloat())
      return 0; // An error, when it is printed.
    totals[cuda::isOfOtherRows(kernel, i)] += cuda::sharedBytes(type);
  }
  int64_t total = std::max(totals[0], totals[1]);
  return total > cuda::kStaticSharedBytes || kernel->hasAttr("ladle.one_array")
             ? total
             : 0;
}
