//===- VectorPrinter.cpp - values and vectors as CUDA C++ -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/cuda/CudaExpressions.h"
#include "codegen/cuda/KernelPrinter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "passes/gpu/KernelInfo.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using llvm::formatv;

namespace ladle::cuda {

//===----------------------------------------------------------------------===//
// What values are called
//===----------------------------------------------------------------------===//

std::string KernelPrinter::name(Value value) {
  return texts[value] = names.fresh(nameOf(value.getLoc()));
}

std::string KernelPrinter::declare(Value value) {
  std::string type = typeText(value.getType());
  if (type.empty()) {
    (void)unsupportedType(value.getLoc(), value.getType());
    return "";
  }
  return type + ' ' + name(value);
}

LogicalResult KernelPrinter::define(Value value, StringRef expression) {
  std::string variable = declare(value);
  if (variable.empty())
    return failure();
  os << "const " << variable << " = " << expression << ";\n";
  return success();
}

std::string KernelPrinter::use(Value value) {
  if (auto text = texts.find(value); text != texts.end())
    return text->second;
  // Made anew for each use, because a use may be in another block.
  std::string variable = names.fresh(nameOf(value.getLoc()));
  printFilled(cast<VectorType>(value.getType()), variable,
              elements.lookup(value));
  return variable;
}

void KernelPrinter::printFilled(VectorType type, StringRef variable,
                                StringRef element) {
  bool isZero = element == "0.0f" || element == "0";
  os << typeText(type) << ' ' << variable << (isZero ? " = {};\n" : ";\n");
  if (!isZero)
    printElements(
        0, type.getNumElements(),
        formatv("{0}[{1}] = {2};", variable, kElementIndex, element).str());
}

std::string KernelPrinter::element(Value value, StringRef index) {
  if (auto text = elements.find(value); text != elements.end())
    return text->second;
  if (!isa<VectorType>(value.getType()))
    return use(value);
  return formatv("{0}[{1}]", use(value), index);
}

void KernelPrinter::makeAlias(Value value, Value same) {
  if (auto text = texts.find(same); text != texts.end())
    texts[value] = std::string(text->second);
  if (auto text = elements.find(same); text != elements.end())
    elements[value] = std::string(text->second);
  aliases[value] = same;
}

void KernelPrinter::makeSplat(Value value, std::string scalar) {
  elements[value] = std::move(scalar);
}

Value KernelPrinter::root(Value value) const {
  for (auto same = aliases.find(value); same != aliases.end();
       same = aliases.find(value))
    value = same->second;
  return value;
}

void KernelPrinter::printElements(int64_t begin, int64_t end,
                                  StringRef statement) {
  os << "#pragma unroll\n";
  os << formatv("for (int {0} = {1}; {0} < {2}; ++{0})\n", kElementIndex, begin,
                end);
  os.indent() << statement << '\n';
  os.unindent();
}

//===----------------------------------------------------------------------===//
// Constants and elementwise operations
//===----------------------------------------------------------------------===//

LogicalResult KernelPrinter::printConstant(Operation *op) {
  Value result = op->getResult(0);
  TypedAttr value = cast<arith::ConstantOp>(op).getValue();
  if (typeText(value.getType()).empty())
    return unsupportedType(op->getLoc(), value.getType());
  auto fit = [&](TypedAttr scalar) -> std::string {
    std::string text = literal(scalar);
    if (text.empty()) {
      auto diagnostic = emitError(op->getLoc()) << "constant " << scalar
                                                << " cannot be printed as CUDA";
      diagnostic.attachNote() << "an index is 32 bits wide; use i64";
    }
    return text;
  };
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense) {
    // Resources, say, are vectors too.
    if (isa<VectorType>(value.getType()))
      return unsupported(op);
    std::string text = fit(value);
    texts[result] = text;
    return success(!text.empty());
  }
  if (dense.isSplat()) {
    std::string text = fit(cast<TypedAttr>(dense.getSplatValue<Attribute>()));
    makeSplat(result, text);
    return success(!text.empty());
  }
  SmallVector<std::string> list;
  for (Attribute attribute : dense.getValues<Attribute>()) {
    list.push_back(fit(cast<TypedAttr>(attribute)));
    if (list.back().empty())
      return failure();
  }
  return define(result, "{" + llvm::join(list, ", ") + "}");
}

/// Values that only the group uses are scalars inside its loop.
LogicalResult KernelPrinter::printElementwise(ArrayRef<Operation *> ops,
                                              int64_t size) {
  auto isMember = [&](Operation *op) {
    return isElementwise(op) && !isSameInCuda(op) &&
           llvm::is_contained(ops, op);
  };
  auto isLocal = [&](Operation *op) {
    return llvm::all_of(op->getUsers(), isMember);
  };
  for (Operation *op : ops)
    if (isMember(op) && !isLocal(op))
      os << declare(op->getResult(0)) << ";\n";

  SmallVector<std::string> statements;
  names.enter();
  for (Operation *op : ops) {
    if (!isMember(op)) {
      if (failed(printOperation(op)))
        return failure();
      continue;
    }
    SmallVector<std::string> operands;
    for (Value operand : op->getOperands())
      operands.push_back(element(operand));
    std::string expression = elementExpression(op, operands);
    Value result = op->getResult(0);
    if (!isLocal(op)) {
      statements.push_back(
          formatv("{0}[{1}] = {2};", texts[result], kElementIndex, expression));
      continue;
    }
    std::string scalar = names.fresh(nameOf(result.getLoc()));
    elements[result] = scalar;
    statements.push_back(
        formatv("const {0} {1} = {2};",
                typeText(cast<VectorType>(result.getType()).getElementType()),
                scalar, expression));
  }
  names.leave();
  if (statements.size() == 1) {
    printElements(0, size, statements.front());
    return success();
  }
  os << "#pragma unroll\n";
  os << formatv("for (int {0} = 0; {0} < {1}; ++{0}) {{\n", kElementIndex,
                size);
  os.indent();
  for (const std::string &statement : statements)
    os << statement << '\n';
  os.unindent() << "}\n";
  return success();
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

LogicalResult KernelPrinter::printBroadcast(vector::BroadcastOp op) {
  Value source = op.getSource(), result = op.getVector();
  if (typeText(result.getType()).empty())
    return unsupportedType(op.getLoc(), result.getType());
  if (source.getType() == result.getType()) {
    makeAlias(result, source);
    return success();
  }
  if (isa<VectorType>(source.getType()) && typeText(source.getType()).empty())
    return unsupportedType(op.getLoc(), source.getType());
  makeSplat(result, element(source, "0"));
  aliases[result] = source;
  return success();
}

/// A vector that is wanted as a whole or not at all.
LogicalResult KernelPrinter::printMaskedLoad(vector::MaskedLoadOp load) {
  auto wanted = load.getMask().getDefiningOp<vector::BroadcastOp>();
  DenseElementsAttr otherwise;
  if (!texts.contains(load.getBase()) || !wanted ||
      isa<VectorType>(wanted.getSource().getType()) ||
      !matchPattern(load.getPassThru(), m_Constant(&otherwise)) ||
      !otherwise.isSplat())
    return unsupported(load);
  std::string where = offset(load.getBase(), load.getIndices());
  const std::string &memory = texts[load.getBase()];
  return define(load.getResult(),
                formatv("{0}<{1}>({2}, {3}, {4})",
                        load->hasAttr(kConstantAttr) ? "load_constant_vector_if"
                                                     : "load_vector_if",
                        load.getVectorType().getNumElements(),
                        use(wanted.getSource()),
                        where == "0" ? memory : memory + " + " + where,
                        element(load.getPassThru(), "0"))
                    .str());
}

LogicalResult KernelPrinter::printExtract(vector::ExtractOp op) {
  Value source = op.getSource(), result = op.getResult();
  if (typeText(source.getType()).empty())
    return unsupportedType(op.getLoc(), source.getType());
  if (source.getType() == result.getType()) {
    makeAlias(result, source);
    return success();
  }
  if (elements.contains(source)) {
    texts[result] = element(source);
    aliases[result] = source;
    return success();
  }
  OpFoldResult position = op.getMixedPosition().front();
  std::optional<int64_t> known = getConstantIntValue(position);
  if (known && *known < 0)
    return unsupported(op);
  return define(result, element(source, known ? std::to_string(*known)
                                              : use(cast<Value>(position))));
}

LogicalResult KernelPrinter::printInsert(vector::InsertOp op) {
  Value value = op.getValueToStore(), result = op.getResult();
  if (value.getType() == result.getType()) {
    makeAlias(result, value);
    return success();
  }
  if (typeText(result.getType()).empty())
    return unsupportedType(op.getLoc(), result.getType());
  OpFoldResult position = op.getMixedPosition().front();
  std::optional<int64_t> known = getConstantIntValue(position);
  if (known && *known < 0)
    return unsupported(op);
  std::string into = use(op.getDest());
  os << declare(result) << " = " << into << ";\n";
  os << formatv("{0}[{1}] = {2};\n", texts[result],
                known ? std::to_string(*known) : use(cast<Value>(position)),
                use(value));
  return success();
}

LogicalResult KernelPrinter::printReduction(vector::ReductionOp op) {
  std::string kind = vector::stringifyCombiningKind(op.getKind()).str();
  Value source = op.getVector(), result = op.getDest();
  Type type = result.getType();
  bool isNumber = kind.ends_with("f") || type.isF32();
  if (combine(kind, "a", "b").empty() || (isNumber && !type.isF32()) ||
      typeText(source.getType()).empty() || type.isInteger(1) ||
      isa<FloatType>(type) != isNumber) {
    auto diagnostic = emitError(op.getLoc())
                      << "a reduction <" << kind << "> of " << type
                      << " cannot be printed as CUDA";
    diagnostic.attachNote() << "reductions are sums, products and extrema of "
                               "f32 or integers";
    return diagnostic;
  }
  int64_t begin = op.getAcc() ? 0 : 1;
  int64_t end = op.getSourceVectorType().getNumElements();
  std::string start = op.getAcc() ? use(op.getAcc()) : element(source, "0");
  if (begin == end)
    return define(result, start);
  os << declare(result) << " = " << start << ";\n";
  std::string sum = texts[result], next = element(source);
  StringRef symbol = kind == "add" ? "+" : kind == "mul" ? "*" : "";
  printElements(begin, end,
                symbol.empty()
                    ? formatv("{0} = {1};", sum, combine(kind, sum, next)).str()
                    : formatv("{0} {1}= {2};", sum, symbol, next).str());
  return success();
}

LogicalResult KernelPrinter::printShuffle(vector::ShuffleOp op) {
  if (typeText(op.getV1().getType()).empty())
    return unsupportedType(op.getLoc(), op.getV1().getType());
  int64_t size = op.getV1VectorType().getNumElements();
  os << declare(op.getVector()) << ";\n";
  for (auto [i, from] : llvm::enumerate(op.getMask())) {
    // Nobody asks for a negative one.
    if (from < 0)
      continue;
    std::string value = from < size
                            ? element(op.getV1(), std::to_string(from))
                            : element(op.getV2(), std::to_string(from - size));
    os << formatv("{0}[{1}] = {2};\n", texts[op.getVector()], i, value);
  }
  return success();
}

static int64_t firstOf(ArrayAttr offsets) {
  return cast<IntegerAttr>(offsets[0]).getInt();
}

static std::string shifted(int64_t offset) {
  return offset ? formatv("{0} + {1}", kElementIndex, offset).str()
                : kElementIndex.str();
}

LogicalResult
KernelPrinter::printExtractSlice(vector::ExtractStridedSliceOp op) {
  Value source = op.getSource(), result = op.getResult();
  if (typeText(source.getType()).empty())
    return unsupportedType(op.getLoc(), source.getType());
  if (elements.contains(source)) {
    makeSplat(result, element(source));
    aliases[result] = source;
    return success();
  }
  os << declare(result) << ";\n";
  printElements(0, cast<VectorType>(result.getType()).getNumElements(),
                formatv("{0}[{1}] = {2};", texts[result], kElementIndex,
                        element(source, shifted(firstOf(op.getOffsets()))))
                    .str());
  return success();
}

LogicalResult KernelPrinter::printInsertSlice(vector::InsertStridedSliceOp op) {
  Value value = op.getValueToStore(), result = op.getResult();
  if (typeText(result.getType()).empty())
    return unsupportedType(op.getLoc(), result.getType());
  std::string into = use(op.getDest());
  os << declare(result) << " = " << into << ";\n";
  printElements(0, cast<VectorType>(value.getType()).getNumElements(),
                formatv("{0}[{1}] = {2};", texts[result],
                        shifted(firstOf(op.getOffsets())), element(value))
                    .str());
  return success();
}

LogicalResult KernelPrinter::printFromElements(vector::FromElementsOp op) {
  Value result = op.getDest();
  if (typeText(result.getType()).empty())
    return unsupportedType(op.getLoc(), result.getType());
  if (llvm::all_equal(op.getElements())) {
    makeSplat(result, use(op.getElements().front()));
    aliases[result] = op.getElements().front();
    return success();
  }
  SmallVector<std::string> list;
  for (Value value : op.getElements())
    list.push_back(use(value));
  return define(result, "{" + llvm::join(list, ", ") + "}");
}

LogicalResult KernelPrinter::printToElements(vector::ToElementsOp op) {
  if (typeText(op.getSource().getType()).empty())
    return unsupportedType(op.getLoc(), op.getSource().getType());
  for (auto [i, result] : llvm::enumerate(op.getElements()))
    if (!result.use_empty() &&
        failed(define(result, element(op.getSource(), std::to_string(i)))))
      return failure();
  return success();
}

LogicalResult KernelPrinter::printMultiplyTiles(nvgpu::MmaSyncOp op) {
  bool isTf32 = bool(op.getTf32EnabledAttr());
  bool isKnown =
      op.getMmaShapeAsArray() == std::array<int64_t, 3>{16, 8, isTf32 ? 8 : 16};
  for (Value operand : {op.getMatrixA(), op.getMatrixB()}) {
    Type element = cast<VectorType>(operand.getType()).getElementType();
    isKnown &= isTf32 ? element.isF32() : element.isBF16() || element.isF16();
  }
  isKnown &=
      cast<VectorType>(op.getMatrixC().getType()).getElementType().isF32();
  if (!isKnown) {
    auto diagnostic = emitError(op.getLoc())
                      << "a product of tiles of this shape and type cannot be "
                         "printed as CUDA";
    diagnostic.attachNote() << "16 x 16 times 16 x 8 tiles of bf16 or f16 are "
                               "added to f32, and 16 x "
                               "8 times 8 x 8 of tf32";
    return diagnostic;
  }
  std::string a = use(op.getMatrixA()), b = use(op.getMatrixB());
  return define(op.getRes(), formatv("multiply_tiles({0}, {1}, {2})", a, b,
                                     use(op.getMatrixC()))
                                 .str());
}

/// Four tiles of 8 x 8 for products, of rows that lanes name.
LogicalResult KernelPrinter::printLoadTiles(nvgpu::LdMatrixOp op) {
  Value from = op.getSrcMemref();
  Type element = cast<MemRefType>(from.getType()).getElementType();
  if (op.getNumTiles() != 4 || !texts.contains(from) ||
      (!element.isBF16() && !element.isF16()))
    return unsupported(op);
  return define(op.getRes(), formatv("load_tiles<{0}>({1} + {2})",
                                     op.getTranspose() ? "true" : "false",
                                     texts[from], offset(from, op.getIndices()))
                                 .str());
}

/// Sums are variables while products are added to them, and values then.
LogicalResult KernelPrinter::printWarpgroupProduct(WarpgroupProductOp op) {
  Value memory = op.getMemory();
  if (!texts.contains(memory) ||
      !gpu::GPUDialect::hasWorkgroupMemoryAddressSpace(
          op.getMemory().getType()))
    return unsupported(op);
  auto list = [&](ValueRange values) {
    SmallVector<std::string> all;
    for (Value value : values)
      all.push_back(use(value));
    return llvm::join(all, ", ");
  };
  std::string tile = typeText(op.getSums().front().getType());
  // What are constants has a variable before these.
  std::string lefts = list(op.getLefts()), sums = list(op.getSums());
  std::string all = names.fresh("sums"), rights;
  llvm::raw_string_ostream rightsStream(rights);
  llvm::interleaveComma(op.getRights(), rightsStream);
  os << formatv("{0} {1}[] = {{{2}};\n", tile, all, sums);
  os << formatv(
      "multiply_in_warpgroup<{0}, {1}{2}>({3}, {{{4}}, {5}, {{{6}});\n",
      op.getAcross(), op.getAlong(), op.getTransposed() ? ", true" : "", all,
      lefts, texts[memory], rights);
  for (auto [i, result] : llvm::enumerate(op.getResults()))
    if (failed(define(result, formatv("{0}[{1}]", all, i).str())))
      return failure();
  return success();
}

/// 16 bytes that a thread copies to shared memory.
LogicalResult KernelPrinter::printThreadCopy(nvgpu::DeviceAsyncCopyOp copy) {
  Value from = copy.getSrc(), to = copy.getDst();
  auto type = cast<MemRefType>(to.getType());
  int64_t bits =
      copy.getDstElements().getSExtValue() * type.getElementTypeBitWidth();
  if (!texts.contains(from) || !texts.contains(to) || bits != 128 ||
      copy.getSrcElements())
    return unsupported(copy);
  os << formatv("copy_16_bytes({0} + {1}, {2} + {3});\n", texts[to],
                offset(to, copy.getDstIndices()), texts[from],
                offset(from, copy.getSrcIndices()));
  return success();
}

LogicalResult KernelPrinter::printVectorOperation(Operation *op) {
  if (auto product = dyn_cast<nvgpu::MmaSyncOp>(op))
    return printMultiplyTiles(product);
  if (auto product = dyn_cast<WarpgroupProductOp>(op))
    return printWarpgroupProduct(product);
  if (auto load = dyn_cast<nvgpu::LdMatrixOp>(op))
    return printLoadTiles(load);
  if (auto truncate = dyn_cast<arith::TruncFOp>(op)) {
    Type type = truncate.getType();
    std::string element = typeText(getElementTypeOrSelf(type));
    if (truncate.getRoundingmode() || element.empty() ||
        !getElementTypeOrSelf(truncate.getIn().getType()).isF32())
      return unsupported(op);
    return define(
        truncate.getResult(),
        formatv("from_floats<{0}>({1})", element, use(truncate.getIn())).str());
  }
  // Fragments of two dimensions are multiplied, or taken apart as they lie.
  if (auto extract = dyn_cast<vector::ExtractOp>(op)) {
    auto type = cast<VectorType>(extract.getSource().getType());
    ArrayRef<int64_t> at = extract.getStaticPosition();
    if (type.getRank() == 2 && !at.empty() &&
        extract.getDynamicPosition().empty()) {
      int64_t columns = type.getDimSize(1);
      int64_t first = at[0] * columns + (at.size() > 1 ? at[1] : 0);
      std::string source = use(extract.getSource());
      auto text = [&](int64_t i) {
        return formatv("{0}[{1}]", source, first + i).str();
      };
      if (at.size() > 1)
        return define(extract.getResult(), text(0));
      SmallVector<std::string> row;
      for (int64_t i = 0; i < columns; ++i)
        row.push_back(text(i));
      return define(extract.getResult(), "{" + llvm::join(row, ", ") + "}");
    }
  }
  auto isFragment = [](Type type) {
    auto vector = dyn_cast<VectorType>(type);
    return vector && vector.getRank() > 1;
  };
  if (llvm::any_of(op->getOperandTypes(), isFragment) ||
      llvm::any_of(op->getResultTypes(), isFragment))
    return unsupported(op);
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](vector::BroadcastOp op) { return printBroadcast(op); })
      .Case([&](vector::MaskedLoadOp op) { return printMaskedLoad(op); })
      .Case([&](vector::ExtractOp op) { return printExtract(op); })
      .Case([&](vector::InsertOp op) { return printInsert(op); })
      .Case([&](vector::ReductionOp op) { return printReduction(op); })
      .Case([&](vector::ShuffleOp op) { return printShuffle(op); })
      .Case([&](vector::ExtractStridedSliceOp op) {
        return printExtractSlice(op);
      })
      .Case(
          [&](vector::InsertStridedSliceOp op) { return printInsertSlice(op); })
      .Case([&](vector::FromElementsOp op) { return printFromElements(op); })
      .Case([&](vector::ToElementsOp op) { return printToElements(op); })
      .Default([](Operation *op) { return unsupported(op); });
}

} // namespace ladle::cuda
