//===- LadleTypes.cpp - states, pools, buffers, summaries -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleTypes.h"
#include "dialect/LadleDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

#define GET_TYPEDEF_CLASSES
#include "dialect/LadleTypes.cpp.inc"

void LadleDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/LadleTypes.cpp.inc"
      >();
}

static LogicalResult
verifyStorageType(function_ref<InFlightDiagnostic()> emitError, Type type) {
  if (type.isF32() || type.isBF16() || type.isF16())
    return success();
  return emitError() << "stored elements must be f32, bf16 or f16, got "
                     << type;
}

//===----------------------------------------------------------------------===//
// StateType and PoolType: heads x dk x dv x element
//===----------------------------------------------------------------------===//

/// Parses `heads x dk x dv x type`.
static ParseResult parseStateLike(AsmParser &parser, SMLoc start,
                                  SmallVectorImpl<int64_t> &shape,
                                  Type &elementType) {
  if (parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType))
    return failure();
  if (shape.size() == 3)
    return success();
  return parser.emitError(start, "expected heads x dk x dv x type, got ")
         << shape.size() << " dimensions";
}

template <typename T> static void printStateLike(AsmPrinter &printer, T type) {
  printer << type.getHeads() << "x" << type.getKeySize() << "x"
          << type.getValueSize() << "x" << type.getElementType();
}

static LogicalResult
verifyStateLike(function_ref<InFlightDiagnostic()> emitError, int64_t heads,
                int64_t keySize, int64_t valueSize, Type elementType) {
  if (heads < 1 || keySize < 1 || valueSize < 1)
    return emitError() << "sizes must be positive, got " << heads << "x"
                       << keySize << "x" << valueSize;
  return verifyStorageType(emitError, elementType);
}

Type StateType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type elementType;
  SMLoc start = parser.getCurrentLocation();
  if (parser.parseLess() || parseStateLike(parser, start, shape, elementType) ||
      parser.parseGreater())
    return {};
  return StateType::getChecked([&] { return parser.emitError(start); },
                               parser.getContext(), shape[0], shape[1],
                               shape[2], elementType);
}
void StateType::print(AsmPrinter &printer) const {
  printer << "<";
  printStateLike(printer, *this);
  printer << ">";
}
LogicalResult StateType::verify(function_ref<InFlightDiagnostic()> emitError,
                                int64_t heads, int64_t keySize,
                                int64_t valueSize, Type elementType) {
  return verifyStateLike(emitError, heads, keySize, valueSize, elementType);
}

Type PoolType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type elementType;
  PoolLayout layout = PoolLayout::DvDk;
  SMLoc start = parser.getCurrentLocation();
  if (parser.parseLess() || parseStateLike(parser, start, shape, elementType))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    SMLoc loc = parser.getCurrentLocation();
    StringRef name;
    if (parser.parseKeyword(&name))
      return {};
    std::optional<PoolLayout> known = symbolizePoolLayout(name);
    if (!known) {
      parser.emitError(loc, "unknown layout '")
          << name << "' of a pool, expected dv_dk or dk_dv";
      return {};
    }
    layout = *known;
  }
  if (parser.parseGreater())
    return {};
  return PoolType::getChecked([&] { return parser.emitError(start); },
                              parser.getContext(), shape[0], shape[1], shape[2],
                              elementType, layout);
}
void PoolType::print(AsmPrinter &printer) const {
  printer << "<";
  printStateLike(printer, *this);
  if (getLayout() != PoolLayout::DvDk)
    printer << ", " << stringifyPoolLayout(getLayout());
  printer << ">";
}
LogicalResult PoolType::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t heads, int64_t keySize,
                               int64_t valueSize, Type elementType,
                               PoolLayout) {
  return verifyStateLike(emitError, heads, keySize, valueSize, elementType);
}

//===----------------------------------------------------------------------===//
// BufferType
//===----------------------------------------------------------------------===//

FieldAttr BufferType::getField(StringRef name) const {
  for (FieldAttr field : getFields())
    if (field.getName() == name)
      return field;
  return {};
}

/// Parses `keyword = value` where the value names a case of an enum.
template <typename Enum>
static ParseResult parseChoice(AsmParser &parser, StringRef keyword,
                               std::optional<Enum> (*symbolize)(StringRef),
                               Enum &result) {
  StringRef name;
  if (parser.parseKeyword(keyword) || parser.parseEqual())
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&name))
    return failure();
  std::optional<Enum> value = symbolize(name);
  if (!value)
    return parser.emitError(loc, "unknown ") << keyword << " '" << name << "'";
  result = *value;
  return success();
}

Type BufferType::parse(AsmParser &parser) {
  SmallVector<FieldAttr> fields;
  int64_t capacity = 0, page = 0;
  BufferOrder order = BufferOrder::Ring;
  BufferWeight weight = BufferWeight::Linear;
  SMLoc start = parser.getCurrentLocation();
  auto parseField = [&]() -> ParseResult {
    FieldAttr field = FieldAttr::parseBody(parser);
    if (!field)
      return failure();
    fields.push_back(field);
    return success();
  };
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                     parseField) ||
      parser.parseComma() || parser.parseKeyword("capacity") ||
      parser.parseEqual() || parser.parseInteger(capacity) ||
      parser.parseComma() ||
      parseChoice<BufferOrder>(parser, "order", symbolizeBufferOrder, order) ||
      parser.parseComma())
    return {};
  if (succeeded(parser.parseOptionalKeyword("page")) &&
      (parser.parseEqual() || parser.parseInteger(page) || parser.parseComma()))
    return {};
  if (parseChoice<BufferWeight>(parser, "weight", symbolizeBufferWeight,
                                weight) ||
      parser.parseGreater())
    return {};
  return BufferType::getChecked([&] { return parser.emitError(start); },
                                parser.getContext(), fields, capacity, order,
                                weight, page);
}

void BufferType::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getFields(), printer.getStream(),
                        [&](FieldAttr field) { field.printBody(printer); });
  printer << "], capacity = " << getCapacity()
          << ", order = " << stringifyBufferOrder(getOrder());
  if (isPaged())
    printer << ", page = " << getPage();
  printer << ", weight = " << stringifyBufferWeight(getWeight()) << ">";
}

LogicalResult BufferType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 ArrayRef<FieldAttr> fields, int64_t capacity,
                                 BufferOrder, BufferWeight, int64_t page) {
  if (fields.empty())
    return emitError() << "a buffer needs at least one field";
  if (capacity < 0)
    return emitError() << "capacity must not be negative, got " << capacity;
  if (page < 0)
    return emitError() << "page must not be negative, got " << page;
  llvm::SmallDenseSet<StringRef> names;
  llvm::SmallDenseMap<Side, FieldAttr> firstOfSide;
  for (FieldAttr field : fields) {
    if (!names.insert(field.getName()).second)
      return emitError() << "two fields are called '" << field.getName() << "'";
    FieldAttr first =
        firstOfSide.try_emplace(field.getSide(), field).first->second;
    if (field.getSide() != Side::Scalar &&
        field.getShape().back() != first.getShape().back())
      return emitError() << "fields '" << first.getName() << "' and '"
                         << field.getName() << "' on side @"
                         << stringifySide(field.getSide()) << " end in "
                         << first.getShape().back() << " and "
                         << field.getShape().back() << " channels";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// SummaryType: heads x size x element
//===----------------------------------------------------------------------===//

Type SummaryType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type elementType;
  SMLoc start = parser.getCurrentLocation();
  if (parser.parseLess() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType) || parser.parseGreater())
    return {};
  if (shape.size() != 2) {
    parser.emitError(start, "expected heads x size x type, got ")
        << shape.size() << " dimensions";
    return {};
  }
  return SummaryType::getChecked([&] { return parser.emitError(start); },
                                 parser.getContext(), shape[0], shape[1],
                                 elementType);
}

void SummaryType::print(AsmPrinter &printer) const {
  printer << "<" << getHeads() << "x" << getSize() << "x" << getElementType()
          << ">";
}

LogicalResult SummaryType::verify(function_ref<InFlightDiagnostic()> emitError,
                                  int64_t heads, int64_t size,
                                  Type elementType) {
  if (heads < 1 || size < 1)
    return emitError() << "sizes must be positive, got " << heads << "x"
                       << size;
  return verifyStorageType(emitError, elementType);
}

//===----------------------------------------------------------------------===//
// MemoryType: kind, heads x key x value x element
//===----------------------------------------------------------------------===//

Type MemoryType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape;
  Type elementType;
  StringRef word;
  SMLoc start = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseKeyword(&word) || parser.parseComma() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType) || parser.parseGreater())
    return {};
  std::optional<MemoryKind> kind = symbolizeMemoryKind(word);
  if (!kind) {
    parser.emitError(start, "unknown kind of memory '")
        << word << "', expected linear or taylor";
    return {};
  }
  if (shape.size() != 3) {
    parser.emitError(start, "expected heads x key x value x type, got ")
        << shape.size() << " dimensions";
    return {};
  }
  return MemoryType::getChecked([&] { return parser.emitError(start); },
                                parser.getContext(), *kind, shape[0], shape[1],
                                shape[2], elementType);
}

void MemoryType::print(AsmPrinter &printer) const {
  printer << "<" << stringifyMemoryKind(getKind()) << ", " << getHeads() << "x"
          << getKeySize() << "x" << getValueSize() << "x" << getElementType()
          << ">";
}

LogicalResult MemoryType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 MemoryKind, int64_t heads, int64_t keySize,
                                 int64_t valueSize, Type elementType) {
  if (heads < 1 || keySize < 1 || valueSize < 1)
    return emitError() << "sizes must be positive, got " << heads << "x"
                       << keySize << "x" << valueSize;
  return verifyStorageType(emitError, elementType);
}

//===----------------------------------------------------------------------===//
// RingType
//===----------------------------------------------------------------------===//

LogicalResult RingType::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t heads, int64_t querySize, Type queryType,
                               int64_t valueSize, Type valueType,
                               int64_t capacity, int64_t parts, bool, bool) {
  if (heads < 1 || querySize < 1 || valueSize < 1 || capacity < 1)
    return emitError() << "sizes must be positive, got " << heads << "x"
                       << querySize << ", " << valueSize << ", capacity "
                       << capacity;
  if (parts < 1 || parts > 2)
    return emitError() << "a ring holds 1 or 2 summaries a token, got "
                       << parts;
  if (failed(verifyStorageType(emitError, queryType)))
    return failure();
  return verifyStorageType(emitError, valueType);
}

Type RingType::parse(AsmParser &parser) {
  SmallVector<int64_t> queries, values;
  Type queryType, valueType;
  int64_t capacity = 0, parts = 0;
  bool rotated = false, estimates = false;
  SMLoc start = parser.getCurrentLocation();
  auto parseKey = [&](StringRef name) -> ParseResult {
    return failure(parser.parseComma() || parser.parseKeyword(name) ||
                   parser.parseEqual());
  };
  auto parseBool = [&](StringRef name, bool &value) -> ParseResult {
    StringRef text;
    SMLoc loc = parser.getCurrentLocation();
    if (parseKey(name) || parser.parseKeyword(&text))
      return failure();
    value = text == "true";
    if (!value && text != "false")
      return parser.emitError(loc, "expected true or false, got '")
             << text << "'";
    return success();
  };
  if (parser.parseLess() ||
      parser.parseDimensionList(queries, /*allowDynamic=*/false) ||
      parser.parseType(queryType) || parseKey("values") ||
      parser.parseDimensionList(values, /*allowDynamic=*/false) ||
      parser.parseType(valueType) || parseKey("capacity") ||
      parser.parseInteger(capacity) || parseKey("parts") ||
      parser.parseInteger(parts) || parseBool("rotated", rotated) ||
      parseBool("estimates", estimates) || parser.parseGreater())
    return {};
  if (queries.size() != 2 || values.size() != 1) {
    parser.emitError(start, "expected heads x size x type of queries and size "
                            "x type of values");
    return {};
  }
  return getChecked([&] { return parser.emitError(start); },
                    parser.getContext(), queries[0], queries[1], queryType,
                    values[0], valueType, capacity, parts, rotated, estimates);
}

void RingType::print(AsmPrinter &printer) const {
  auto text = [](bool value) { return value ? "true" : "false"; };
  printer << "<" << getHeads() << "x" << getQuerySize() << "x" << getQueryType()
          << ", values = " << getValueSize() << "x" << getValueType()
          << ", capacity = " << getCapacity() << ", parts = " << getParts()
          << ", rotated = " << text(getRotated())
          << ", estimates = " << text(getEstimates()) << ">";
}

//===----------------------------------------------------------------------===//
// DraftsType
//===----------------------------------------------------------------------===//

LogicalResult DraftsType::verify(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t most, bool isChain) {
  int64_t limit = isChain ? kMostInChain : 64;
  if (most < 1 || most > limit)
    return emitError() << "a row has 1 to " << limit << " drafts"
                       << (isChain ? " in a chain" : "") << ", got " << most;
  return success();
}

Type DraftsType::parse(AsmParser &parser) {
  int64_t most = 0;
  bool isChain = false;
  if (parser.parseLess() || parser.parseInteger(most))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    if (parser.parseKeyword("chain"))
      return {};
    isChain = true;
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(parser.getNameLoc()); },
                    parser.getContext(), most, isChain);
}

void DraftsType::print(AsmPrinter &printer) const {
  printer << "<" << getMost() << (getIsChain() ? ", chain>" : ">");
}
