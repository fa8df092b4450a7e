//===- TokenInterface.cpp - arguments and outputs of a token --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/TokenInterface.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace ladle;

ParseResult ladle::parseTokenInterface(OpAsmParser &parser,
                                       OperationState &result) {
  Builder &builder = parser.getBuilder();
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<Attribute> names, kinds, outputNames, outputTypes;

  auto parseArgument = [&]() -> ParseResult {
    StringRef keyword;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<ArgumentKind> kind = symbolizeArgumentKind(keyword);
    if (!kind)
      return parser.emitError(loc, "unknown argument kind '") << keyword << "'";
    OpAsmParser::Argument argument;
    if (parser.parseArgument(argument, /*allowType=*/true))
      return failure();
    kinds.push_back(ArgumentKindAttr::get(parser.getContext(), *kind));
    names.push_back(builder.getStringAttr(argument.ssaName.name.drop_front()));
    arguments.push_back(argument);
    return success();
  };
  auto parseOutput = [&]() -> ParseResult {
    std::string name;
    Type type;
    if (parser.parseKeywordOrString(&name) || parser.parseColonType(type))
      return failure();
    outputNames.push_back(builder.getStringAttr(name));
    outputTypes.push_back(TypeAttr::get(type));
    return success();
  };

  Region *body = result.addRegion();
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren,
                                     parseArgument) ||
      parser.parseArrow() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren,
                                     parseOutput) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.parseRegion(*body, arguments))
    return failure();
  // A dictionary that was printed carries the exact names: an SSA name cannot
  // hold every string.
  if (!result.attributes.get("argument_names"))
    result.addAttribute("argument_names", builder.getArrayAttr(names));
  result.addAttribute("argument_kinds", builder.getArrayAttr(kinds));
  result.addAttribute("output_names", builder.getArrayAttr(outputNames));
  result.addAttribute("output_types", builder.getArrayAttr(outputTypes));
  return success();
}

void ladle::printTokenInterface(OpAsmPrinter &printer, Operation *op,
                                ArrayAttr kinds, ArrayAttr outputNames,
                                ArrayAttr outputTypes,
                                ArrayRef<StringRef> elided) {
  Region &body = op->getRegion(0);
  auto names = op->getAttrOfType<ArrayAttr>("argument_names");
  bool sameNames = true;
  printer << '(';
  llvm::interleaveComma(
      llvm::enumerate(body.getArguments()), printer.getStream(),
      [&](auto indexed) {
        BlockArgument argument = indexed.value();
        printer
            << stringifyArgumentKind(
                   cast<ArgumentKindAttr>(kinds[indexed.index()]).getValue())
            << ' ';
        std::string text;
        llvm::raw_string_ostream stream(text);
        printer.printOperand(argument, stream);
        sameNames &= StringRef(text).drop_front() ==
                     cast<StringAttr>(names[indexed.index()]).getValue();
        printer << text << ": " << argument.getType();
      });
  printer << ") -> (";
  llvm::interleaveComma(llvm::zip(outputNames.getAsRange<StringAttr>(),
                                  outputTypes.getAsValueRange<TypeAttr>()),
                        printer.getStream(), [&](auto output) {
                          printer.printKeywordOrString(
                              std::get<0>(output).getValue());
                          printer << ": " << std::get<1>(output);
                        });
  printer << ')';
  SmallVector<StringRef> hidden(elided);
  hidden.append({"argument_kinds", "output_names", "output_types"});
  if (sameNames)
    hidden.push_back("argument_names");
  printer.printOptionalAttrDictWithKeyword(op->getAttrs(), hidden);
  printer << ' ';
  printer.printRegion(body, /*printEntryBlockArgs=*/false);
}

LogicalResult ladle::verifyTokenInterface(Operation *op, ArrayAttr names,
                                          ArrayAttr kinds,
                                          ArrayAttr outputNames,
                                          ArrayAttr outputTypes) {
  Region &body = op->getRegion(0);
  if (names.size() != body.getNumArguments() ||
      kinds.size() != body.getNumArguments())
    return op->emitOpError("has ")
           << body.getNumArguments() << " arguments, but " << names.size()
           << " names and " << kinds.size() << " kinds";
  if (outputNames.size() != outputTypes.size())
    return op->emitOpError("has ") << outputTypes.size() << " outputs, but "
                                   << outputNames.size() << " names of outputs";
  llvm::SmallDenseSet<StringRef> seen;
  for (ArrayAttr list : {names, outputNames})
    for (StringRef name : list.getAsValueRange<StringAttr>())
      if (!seen.insert(name).second)
        return op->emitOpError("uses the name '") << name << "' twice";
  auto checkTensor = [&](StringRef what, StringRef name,
                         Type type) -> LogicalResult {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (tensor && tensor.hasStaticShape() && tensor.getRank() >= 1 &&
        isa<FloatType>(tensor.getElementType()) &&
        llvm::all_of(tensor.getShape(), [](int64_t d) { return d > 0; }))
      return success();
    return op->emitOpError()
           << what << " '" << name
           << "' must be a tensor of floats of static shape, heads first, got "
           << type;
  };
  for (auto [index, argument] : llvm::enumerate(body.getArguments())) {
    ArgumentKind kind = cast<ArgumentKindAttr>(kinds[index]).getValue();
    if (kind == ArgumentKind::Ring && !isa<AttentionStepOp>(op))
      return op->emitOpError("takes no ring: those belong to a "
                             "ladle.attention_step");
    if (kind == ArgumentKind::Memory && !isa<AttentionOp, AttentionStepOp>(op))
      return op->emitOpError("takes no memory: those belong to attentions");
    if (kind == ArgumentKind::State || kind == ArgumentKind::Buffer ||
        kind == ArgumentKind::Drafts || kind == ArgumentKind::Ring ||
        kind == ArgumentKind::Memory)
      continue;
    if (failed(checkTensor("argument",
                           cast<StringAttr>(names[index]).getValue(),
                           argument.getType())))
      return failure();
  }
  for (auto [name, type] : llvm::zip(outputNames.getAsValueRange<StringAttr>(),
                                     outputTypes.getAsValueRange<TypeAttr>()))
    if (failed(checkTensor("output", name, type)))
      return failure();
  if (!isa<YieldOp>(body.front().back()))
    return op->emitOpError("must end in ladle.yield");
  return success();
}

LogicalResult ladle::verifyYieldTypes(YieldOp yield, ArrayRef<Type> expected) {
  if (yield.getNumOperands() != expected.size())
    return yield.emitOpError("must yield ")
           << expected.size() << " values, got " << yield.getNumOperands();
  for (auto [index, type] : llvm::enumerate(expected))
    if (yield.getOperand(index).getType() != type)
      return yield.emitOpError("operand ")
             << index << " must be " << type << ", got "
             << yield.getOperand(index).getType();
  return success();
}

SmallVector<BlockArgument> ladle::argumentsOfKind(Region &body, ArrayAttr kinds,
                                                  ArgumentKind kind) {
  SmallVector<BlockArgument> result;
  for (auto [argument, attr] :
       llvm::zip(body.getArguments(), kinds.getAsRange<ArgumentKindAttr>()))
    if (attr.getValue() == kind)
      result.push_back(argument);
  return result;
}

void ladle::setTokenArgumentNames(ArrayAttr names, Region &region,
                                  OpAsmSetValueNameFn setName) {
  if (names.size() != region.getNumArguments())
    return;
  for (auto [argument, name] :
       llvm::zip(region.getArguments(), names.getAsValueRange<StringAttr>()))
    setName(argument, name);
}
