//===- LadleAttributes.cpp - routes, forms, fields ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleAttributes.h"
#include "dialect/LadleDialect.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace ladle;

#include "dialect/LadleEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/LadleAttributes.cpp.inc"

void LadleDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/LadleAttributes.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// FieldAttr
//===----------------------------------------------------------------------===//

FieldAttr FieldAttr::parseBody(AsmParser &parser) {
  std::string name;
  SmallVector<int64_t> shape;
  Type elementType;
  StringAttr sideName;
  SMLoc start = parser.getCurrentLocation();
  if (parser.parseKeywordOrString(&name) || parser.parseColon() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType))
    return {};
  SMLoc sideLoc = parser.getCurrentLocation();
  if (parser.parseSymbolName(sideName))
    return {};
  std::optional<Side> side = symbolizeSide(sideName.getValue());
  if (!side) {
    parser.emitError(sideLoc, "expected @dk, @dv or @scalar, got @")
        << sideName.getValue();
    return {};
  }
  return FieldAttr::getChecked([&] { return parser.emitError(start); },
                               parser.getContext(), name, shape, elementType,
                               *side);
}

void FieldAttr::printBody(AsmPrinter &printer) const {
  printer.printKeywordOrString(getName());
  printer << " : ";
  printer.printDimensionList(getShape());
  printer << "x" << getElementType() << " @" << stringifySide(getSide());
}

Attribute FieldAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  FieldAttr field = parseBody(parser);
  if (!field || parser.parseGreater())
    return {};
  return field;
}

void FieldAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printBody(printer);
  printer << ">";
}

LogicalResult FieldAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                StringRef name, ArrayRef<int64_t> shape,
                                Type elementType, Side side) {
  if (name.empty())
    return emitError() << "a field needs a name";
  if (shape.empty() || shape.size() > 3 ||
      llvm::any_of(shape, [](int64_t size) { return size < 1; }))
    return emitError() << "field '" << name
                       << "' must have 1 to 3 positive dimensions, heads first";
  if ((side == Side::Scalar) != (shape.size() == 1))
    return emitError() << "field '" << name << "' on side @"
                       << stringifySide(side) << " must be "
                       << (side == Side::Scalar ? "[heads]"
                                                : "[heads, (R,) channels]")
                       << ", got " << shape.size() << " dimensions";
  if (!elementType.isF32() && !elementType.isBF16() && !elementType.isF16())
    return emitError() << "field '" << name
                       << "' must hold f32, bf16 or f16, got " << elementType;
  return success();
}
