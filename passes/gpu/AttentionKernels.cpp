//===- AttentionKernels.cpp - a step of an attention as GPU kernels -------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/gpu/AttentionKernels.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/build/MemoryLayout.h"
#include "passes/gpu/KernelInfo.h"

using namespace mlir;
using namespace ladle;

LogicalResult GpuAttention::checkSizes() {
  auto check = [&](StringRef what, int64_t size) -> LogicalResult {
    constexpr int64_t most = 256;
    if (size % kWarp == 0 && size <= most)
      return success();
    auto diagnostic = step.emitError("cannot be lowered for GPUs: ")
                      << what << " have " << size << " elements";
    diagnostic.attachNote()
        << "wanted a multiple of " << kWarp << " up to " << most;
    return diagnostic;
  };
  if (failed(check("keys", keySize)) || failed(check("values", valueSize)))
    return failure();
  Type query = cast<RankedTensorType>(
                   unwidened(plan.attends.front().getQuery()).getType())
                   .getElementType();
  // Tensor cores multiply what is alike.
  multiplies = query == plan.keyType && query == plan.valueType &&
               (query.isBF16() || query.isF16());
  return success();
}

LogicalResult GpuAttention::openPlan() {
  FailureOr<AttentionPlan> found = AttentionPlan::of(step);
  if (failed(found))
    return failure();
  plan = *found;
  heads = plan.heads;
  cacheHeads = plan.cacheHeads;
  keySize = plan.keySize;
  valueSize = plan.valueSize;
  return checkSizes();
}

LogicalResult GpuAttention::build() {
  if (failed(openPlan()))
    return failure();
  share = attentionShare(plan.group());
  tasksOfRow = heads / share;
  chooseTiles();
  if (plan.find)
    buildFind();
  buildPlan();
  buildAttend();
  if (plan.find && takesFewRows())
    buildFew();
  buildFinish();
  if (plan.find && takesFewRows() && mostSlices() > 1)
    buildFinish(mostSlices());
  return success();
}

//===----------------------------------------------------------------------===//
// Kernels and arguments
//===----------------------------------------------------------------------===//

void GpuAttention::createKernel(StringRef suffix, int64_t count,
                                int64_t blocks) {
  arguments.clear();
  threads = count;
  // Kernels stand behind one another.
  if (function)
    b.setInsertionPointAfter(function);
  function = gpu::GPUFuncOp::create(b, (name + suffix).str(),
                                    b.getFunctionType({}, {}));
  function->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  function.setKnownBlockSizeAttr(
      b.getDenseI32ArrayAttr({static_cast<int32_t>(threads), 1, 1}));
  function->setAttr(kBlocksAttr, b.getIndexAttr(blocks));
  b.setInsertionPointToStart(&function.getBody().front());
  gpu::ReturnOp::create(b);
  b.setInsertionPointToStart(&function.getBody().front());
  thread = named("thread", gpu::ThreadIdOp::create(b, gpu::Dimension::x));
}

void GpuAttention::waitForPrevious() {
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::wait);
}

void GpuAttention::letNextStart() {
  NVVM::GriddepcontrolOp::create(b, NVVM::GridDepActionKind::launch_dependents);
}

/// What comes next may read what was written before this step, and starts when
/// that has ended.
void GpuAttention::startInOrder() {
  function->setAttr(kStartsEarlyAttr, b.getUnitAttr());
  waitForPrevious();
  letNextStart();
}

Value GpuAttention::isEarly() { return less(index(0), scalar("starts_early")); }

Value GpuAttention::addArgument(StringRef name, Type type) {
  Value &known = arguments[name];
  if (known)
    return known;
  unsigned at = function.getNumArguments();
  StringRef shown = name;
  shown.consume_front("tensor:");
  auto attributes =
      b.getDictionaryAttr({b.getNamedAttr(kArgumentAttr, b.getStringAttr(name)),
                           b.getNamedAttr(kNameAttr, b.getStringAttr(shown))});
  (void)function.insertArgument(at, type, attributes, b.getLoc());
  return known = function.getArgument(at);
}

Value GpuAttention::array(StringRef name, Type element, int64_t width) {
  constexpr int64_t dynamic = ShapedType::kDynamic;
  SmallVector<int64_t> shape{dynamic};
  if (width)
    shape.push_back(width);
  return addArgument(name, MemRefType::get(shape, element));
}

Value GpuAttention::scalar(StringRef name) {
  return addArgument(name, b.getIndexType());
}

Value GpuAttention::floatScalar(StringRef name) {
  return addArgument(name, b.getF32Type());
}

Value GpuAttention::table() {
  constexpr int64_t dynamic = ShapedType::kDynamic;
  return addArgument(
      "page_table",
      MemRefType::get({dynamic, dynamic}, b.getI32Type(),
                      StridedLayoutAttr::get(b.getContext(), 0, {dynamic, 1})));
}

Value GpuAttention::tensor(Value value) {
  auto argument = cast<BlockArgument>(unwidened(value));
  auto type = cast<RankedTensorType>(argument.getType());
  bool isToken =
      step.getArgumentKind(argument.getArgNumber()) == ArgumentKind::Token;
  return addArgument(
      ("tensor:" + step.getArgumentName(argument.getArgNumber())).str(),
      memoryType(type.getShape(), type.getElementType(),
                 /*denseWithinOuter=*/false, /*hasOuter=*/isToken));
}

Value GpuAttention::outputMemory() {
  StringRef name = cast<StringAttr>(step.getOutputNames()[0]).getValue();
  return addArgument(("tensor:" + name).str(), memoryTypeOfOutput(plan.output));
}

Value GpuAttention::sharedArray(StringRef name, Type element,
                                ArrayRef<int64_t> shape) {
  auto space =
      gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup);
  auto type =
      MemRefType::get(shape, element, MemRefLayoutAttrInterface(), space);
  return function.addWorkgroupAttribution(
      type, NameLoc::get(b.getStringAttr(name), b.getLoc()));
}

/// Memory that nobody needs any more when this is written takes its place.
Value GpuAttention::sharedInPlaceOf(Value other, StringRef name, Type element,
                                    ArrayRef<int64_t> shape) {
  Value result = sharedArray(name, element, shape);
  auto all = function.getWorkgroupAttributions();
  unsigned number = llvm::find(all, other) - all.begin();
  function.setWorkgroupAttributionAttr(static_cast<int>(all.size()) - 1,
                                       kSharesAttr, b.getIndexAttr(number));
  return result;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

GpuAttention::Row GpuAttention::openRow(Value number) {
  Row row;
  Type integer = b.getI32Type();
  row.slot = named("slot", load(array("slots", integer), {number}));
  Value isRow = notLess(row.slot, index(0));
  Value cursor = maximum(row.slot, index(0));
  Value cursors = array("cursors", integer, kSlotNumbers);
  auto field = [&](int64_t which) {
    return load(cursors, {cursor, index(which)});
  };
  row.token = number;
  row.isAnswered = isRow;
  row.position = named("position", field(0));
  row.entries = row.amended = row.stores = index(0);
  if (!plan.ring)
    return row;
  // What was left with another band means something else.
  Value isValid = both(
      equal(field(3), scalar("band")),
      both(equal(field(4), scalar("sinks")), equal(field(5), scalar("wide"))));
  row.stores = index(1);
  row.entries = named("entries", select(isValid, field(1), index(0)));
  row.amended = select(isValid, field(2), index(0));
  return row;
}

/// Behind the last page of a slot is one that nobody reads.
Value GpuAttention::rowOfKey(Value slot, Value key, Value cacheHead) {
  Value at = minimum(div(key, plan.pageSize), scalar("last_page"));
  Value page = load(table(), {slot, at});
  Value rows = mul(add(mul(page, cacheHeads), cacheHead), plan.pageSize);
  return add(rows, rem(key, plan.pageSize));
}

Value GpuAttention::ringRow(Value slot, Value head, Value entry) {
  return add(mul(add(mul(slot, heads), head), scalar("capacity")), entry);
}

/// The entry of the ring so many tokens before the newest.
Value GpuAttention::entryBefore(Value position, Value offset) {
  Value capacity = scalar("capacity");
  Value newest = rem(sub(add(position, capacity), index(1)), capacity);
  Value place = sub(newest, offset);
  return select(less(place, index(0)), add(place, capacity), place);
}
