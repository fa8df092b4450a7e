//===- LadleAttentionOps.cpp - attention over a cache ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "dialect/TokenInterface.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// What AttentionOp and AttentionStepOp share
//===----------------------------------------------------------------------===//

/// Arguments are params, tokens, one cache and at most one memory; a step may
/// have a ring, too.
template <typename OpT> static LogicalResult verifyArguments(OpT op) {
  if (failed(verifyTokenInterface(op, op.getArgumentNames(),
                                  op.getArgumentKinds(), op.getOutputNames(),
                                  op.getOutputTypes())))
    return failure();
  for (BlockArgument argument : op.getBody().getArguments()) {
    ArgumentKind kind = op.getArgumentKind(argument.getArgNumber());
    bool isKnown =
        kind == ArgumentKind::Param || kind == ArgumentKind::Token ||
        kind == ArgumentKind::Buffer || kind == ArgumentKind::Memory ||
        (kind == ArgumentKind::Ring && std::is_same_v<OpT, AttentionStepOp>);
    if (!isKnown)
      return op.emitOpError("takes no argument of kind '")
             << stringifyArgumentKind(kind) << "'";
    if (kind == ArgumentKind::Ring && !isa<RingType>(argument.getType()))
      return op.emitOpError("ring argument must be a !ladle.ring, got ")
             << argument.getType();
    if (kind == ArgumentKind::Memory && !isa<MemoryType>(argument.getType()))
      return op.emitOpError("memory argument must be a !ladle.memory, got ")
             << argument.getType();
  }
  auto caches = op.getArgumentsOfKind(ArgumentKind::Buffer);
  if (caches.size() != 1)
    return op.emitOpError("has ") << caches.size() << " caches, expected one";
  auto cache = dyn_cast<BufferType>(caches.front().getType());
  if (!cache || cache.getFields().size() != 2 ||
      cache.getWeight() != BufferWeight::Exp ||
      (cache.getOrder() != BufferOrder::Paged &&
       cache.getOrder() != BufferOrder::Bounded) ||
      llvm::any_of(cache.getFields(),
                   [](FieldAttr f) { return f.getShape().size() != 2; }))
    return op.emitOpError("cache must be a paged or bounded !ladle.buffer of "
                          "keys and values with weight = exp, got ")
           << caches.front().getType();
  if (cache.getFields()[0].getShape().front() !=
      cache.getFields()[1].getShape().front())
    return op.emitOpError("keys have ")
           << cache.getFields()[0].getShape().front() << " heads, values "
           << cache.getFields()[1].getShape().front();
  bool isPaged = cache.getOrder() == BufferOrder::Paged;
  if (auto size = static_cast<int64_t>(op.getPageSize());
      isPaged ? size < 1 : size != 0)
    return op.emitOpError(isPaged ? "page_size must be positive, got "
                                  : "page_size of a bounded cache must be 0, "
                                    "got ")
           << size;
  if (op.getArgumentsOfKind(ArgumentKind::Memory).size() > 1)
    return op.emitOpError("has more than one memory");
  if (op.getArgumentsOfKind(ArgumentKind::Ring).size() > 1)
    return op.emitOpError("has more than one ring");
  return success();
}

template <typename OpT> static SmallVector<Type> outputTypesOf(OpT op) {
  return SmallVector<Type>(
      op.getOutputTypes().template getAsValueRange<TypeAttr>());
}

//===----------------------------------------------------------------------===//
// AttentionOp
//===----------------------------------------------------------------------===//

void AttentionOp::getAsmBlockArgumentNames(Region &region,
                                           OpAsmSetValueNameFn setName) {
  setTokenArgumentNames(getArgumentNames(), region, setName);
}

ParseResult AttentionOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(),
                             result.attributes))
    return failure();
  return parseTokenInterface(parser, result);
}

void AttentionOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printTokenInterface(printer, *this, getArgumentKinds(), getOutputNames(),
                      getOutputTypes(), {"sym_name"});
}

LogicalResult AttentionOp::verifyRegions() {
  if (failed(verifyArguments(*this)))
    return failure();
  SmallVector<Type> expected = outputTypesOf(*this);
  expected.push_back(getCache().getType());
  if (getMemory())
    expected.push_back(getMemory().getType());
  return verifyYieldTypes(getYield(), expected);
}

StringRef AttentionOp::getArgumentName(unsigned index) {
  return cast<StringAttr>(getArgumentNames()[index]).getValue();
}

ArgumentKind AttentionOp::getArgumentKind(unsigned index) {
  return cast<ArgumentKindAttr>(getArgumentKinds()[index]).getValue();
}

SmallVector<BlockArgument> AttentionOp::getArgumentsOfKind(ArgumentKind kind) {
  return argumentsOfKind(getBody(), getArgumentKinds(), kind);
}

YieldOp AttentionOp::getYield() {
  return cast<YieldOp>(getBody().front().getTerminator());
}

//===----------------------------------------------------------------------===//
// Spec operations
//===----------------------------------------------------------------------===//

static LogicalResult verifyFields(Operation *op, BufferType cache,
                                  OperandRange values) {
  ArrayRef<FieldAttr> fields = cache.getFields();
  if (fields.size() != values.size())
    return op->emitOpError("needs a value for each of ")
           << fields.size() << " fields, got " << values.size();
  for (auto [field, value] : llvm::zip(fields, values))
    if (cast<RankedTensorType>(value.getType()).getShape() != field.getShape())
      return op->emitOpError("value of field '")
             << field.getName() << "' must have its shape, got "
             << value.getType();
  return success();
}

LogicalResult CacheTokenOp::verify() {
  return verifyFields(*this, getCache().getType(), getValues());
}

/// A query [heads, dk] of a cache whose summary is `summary`.
static LogicalResult verifyAttention(Operation *op, RankedTensorType query,
                                     BufferType cache, SummaryType summary) {
  ArrayRef<FieldAttr> fields = cache.getFields();
  if (fields.size() != 2 || fields[0].getShape().size() != 2 ||
      fields[1].getShape().size() != 2)
    return op->emitOpError("cache must hold keys and values, got ") << cache;
  int64_t keySize = fields[0].getShape().back();
  if (query.getRank() != 2 || query.getShape().back() != keySize)
    return op->emitOpError("query must be [heads, dk] with dk = ")
           << keySize << ", got " << query;
  int64_t heads = query.getDimSize(0), cached = fields[0].getShape().front();
  if (heads % cached)
    return op->emitOpError("query has ")
           << heads << " heads, which the " << cached
           << " of the cache do not divide";
  if (summary.getHeads() != heads ||
      summary.getSize() != fields[1].getShape().back())
    return op->emitOpError("result must be a summary of ")
           << heads << "x" << fields[1].getShape().back() << ", got "
           << summary;
  return success();
}

LogicalResult SoftmaxOp::verify() {
  return verifyAttention(*this, getQuery().getType(), getCache().getType(),
                         getResult().getType());
}

template <typename OpT>
static LogicalResult verifyMatchNumbers(OpT op, Value moment) {
  RankedTensorType query = op.getQuery().getType();
  if (query.getRank() != 2)
    return op.emitOpError("query must be [heads, d], got ") << query;
  if (static_cast<int64_t>(op.getWindow()) < 1)
    return op.emitOpError("window must be positive, got ")
           << static_cast<int64_t>(op.getWindow());
  for (const APFloat &share :
       {op.getTau(), op.getDrift().value_or(APFloat(0.5))})
    if (!(share.convertToDouble() >= 0 && share.convertToDouble() <= 1))
      return op.emitOpError("tau and drift must be from 0 to 1, got ")
             << share.convertToDouble();
  for (uint64_t number : {op.getMaxGap(), op.getMaxChain(), op.getSkip()})
    if (auto count = static_cast<int64_t>(number); count < 0)
      return op.emitOpError("max_gap, max_chain and skip must not be negative, "
                            "got ")
             << count;
  if (!moment)
    return success();
  auto type = cast<RankedTensorType>(moment.getType());
  if (type.getRank() != 1 || type.getDimSize(0) != query.getDimSize(0))
    return op.emitOpError("moment must be one number for each of ")
           << query.getDimSize(0) << " heads, got " << type;
  return success();
}

LogicalResult MatchOp::verify() {
  if (failed(verifyMatchNumbers(*this, getMoment())))
    return failure();
  if (getResult().getType().getHeads() != getQuery().getType().getDimSize(0))
    return emitOpError("result must have the ")
           << getQuery().getType().getDimSize(0) << " heads of the query, got "
           << getResult().getType();
  return success();
}

LogicalResult CompleteOp::verify() {
  auto band = static_cast<int64_t>(getBand());
  auto sinks = static_cast<int64_t>(getSinks());
  if (band < 0 || sinks < 0)
    return emitOpError("band and sinks must not be negative, got ")
           << band << " and " << sinks;
  if (getWideBand().has_value() != getWideGap().has_value())
    return emitOpError("wide_band and wide_gap go together");
  if (getWideBand() && static_cast<int64_t>(*getWideBand()) < band)
    return emitOpError("wide_band must be at least the band ")
           << band << ", got " << static_cast<int64_t>(*getWideBand());
  return success();
}

LogicalResult NormalizeOp::verify() {
  SummaryType summary = getSummary().getType();
  auto expected = RankedTensorType::get({summary.getHeads(), summary.getSize()},
                                        Float32Type::get(getContext()));
  if (getResult().getType() != expected)
    return emitOpError("result must be ")
           << expected << ", got " << getResult().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// AttentionStepOp
//===----------------------------------------------------------------------===//

void AttentionStepOp::getAsmBlockArgumentNames(Region &region,
                                               OpAsmSetValueNameFn setName) {
  setTokenArgumentNames(getArgumentNames(), region, setName);
}

ParseResult AttentionStepOp::parse(OpAsmParser &parser,
                                   OperationState &result) {
  StringAttr name;
  FlatSymbolRefAttr attention;
  StringRef text;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(),
                             result.attributes) ||
      parser.parseKeyword("of") ||
      parser.parseAttribute(attention, "attention", result.attributes) ||
      parser.parseKeyword("form") || parser.parseLParen())
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&text))
    return failure();
  std::optional<AttentionForm> form = symbolizeAttentionForm(text);
  if (!form)
    return parser.emitError(loc, "unknown form '") << text << "'";
  result.addAttribute("form",
                      AttentionFormAttr::get(parser.getContext(), *form));
  if (parser.parseRParen())
    return failure();
  return parseTokenInterface(parser, result);
}

void AttentionStepOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << " of ";
  printer.printSymbolName(getAttention());
  printer << " form(" << stringifyAttentionForm(getForm()) << ") ";
  printTokenInterface(printer, *this, getArgumentKinds(), getOutputNames(),
                      getOutputTypes(), {"sym_name", "attention", "form"});
}

LogicalResult AttentionStepOp::verifyRegions() {
  if (failed(verifyArguments(*this)))
    return failure();
  auto ring =
      dyn_cast_if_present<RingType>(getRing() ? getRing().getType() : Type());
  if (ring && (!getBand() || !getSinks()))
    return emitOpError("has a ring, but no band or no sinks");
  if (ring && (ring.getParts() == 2) != getWideBand().has_value())
    return emitOpError("has a ring of ")
           << ring.getParts() << " parts " << (getWideBand() ? "and" : "but no")
           << " wide_band";
  if (getWideBand().has_value() != getWideGap().has_value())
    return emitOpError("wide_band and wide_gap go together");
  return verifyYieldTypes(getYield(), outputTypesOf(*this));
}

StringRef AttentionStepOp::getArgumentName(unsigned index) {
  return cast<StringAttr>(getArgumentNames()[index]).getValue();
}

ArgumentKind AttentionStepOp::getArgumentKind(unsigned index) {
  return cast<ArgumentKindAttr>(getArgumentKinds()[index]).getValue();
}

SmallVector<BlockArgument>
AttentionStepOp::getArgumentsOfKind(ArgumentKind kind) {
  return argumentsOfKind(getBody(), getArgumentKinds(), kind);
}

YieldOp AttentionStepOp::getYield() {
  return cast<YieldOp>(getBody().front().getTerminator());
}

//===----------------------------------------------------------------------===//
// Step operations
//===----------------------------------------------------------------------===//

/// A query, and perhaps a rotated one, as the ring stores them.
static LogicalResult verifyRingQueries(Operation *op, RingType ring,
                                       Value query, Value rotated) {
  for (Value value : {query, rotated}) {
    if (!value)
      continue;
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getShape() != ArrayRef{ring.getHeads(), ring.getQuerySize()})
      return op->emitOpError("query must be ")
             << ring.getHeads() << "x" << ring.getQuerySize()
             << " as the ring's, got " << type;
  }
  return success();
}

static LogicalResult verifyMatch(Operation *op, Value match, int64_t heads) {
  if (match && cast<MatchType>(match.getType()).getHeads() != heads)
    return op->emitOpError("match must be of ")
           << heads << " heads, got " << match.getType();
  return success();
}

LogicalResult FindOp::verify() {
  RingType ring = getRing().getType();
  if (failed(verifyMatchNumbers(*this, getMoment())) ||
      failed(verifyRingQueries(*this, ring, getQuery(), getRotated())))
    return failure();
  if (getDrift().has_value() != bool(getRotated()) ||
      (getRotated() && !ring.getRotated()))
    return emitOpError("drift needs rotated queries, here and in the ring");
  if (!getMoment() && !ring.getEstimates())
    return emitOpError("needs a moment, which the ring does not estimate");
  return verifyMatch(*this, getMatch(), ring.getHeads());
}

LogicalResult ReuseOp::verify() {
  RingType ring = getRing().getType();
  if (getPart() >= static_cast<uint64_t>(ring.getParts()))
    return emitOpError("part must be below the ")
           << ring.getParts() << " of the ring, got "
           << static_cast<int64_t>(getPart());
  SummaryType summary = getResult().getType();
  if (summary.getHeads() != ring.getHeads() ||
      summary.getSize() != ring.getValueSize())
    return emitOpError("result must be a summary of ")
           << ring.getHeads() << "x" << ring.getValueSize() << ", got "
           << summary;
  return verifyMatch(*this, getMatch(), ring.getHeads());
}

ParseResult ladle::parseBound(OpAsmParser &parser, BoundAttr &bound) {
  StringRef word;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<Bound> value = symbolizeBound(word);
  if (!value)
    return parser.emitError(loc, "unknown bound '")
           << word << "', expected start, sinks, wide, band or end";
  bound = BoundAttr::get(parser.getContext(), *value);
  return success();
}

void ladle::printBound(OpAsmPrinter &printer, Operation *op, BoundAttr bound) {
  printer << stringifyBound(bound.getValue());
}

LogicalResult AttendOp::verify() {
  if (getBegin() >= getEnd())
    return emitOpError("must begin before it ends, got from ")
           << stringifyBound(getBegin()) << " to " << stringifyBound(getEnd());
  if (failed(verifyAttention(*this, getQuery().getType(), getCache().getType(),
                             getResult().getType())))
    return failure();
  return verifyMatch(*this, getAfter(), getQuery().getType().getDimSize(0));
}

LogicalResult StoreSummaryOp::verify() {
  RingType ring = getRing().getType();
  if (static_cast<int64_t>(getParts().size()) != ring.getParts())
    return emitOpError("needs a summary for each of ")
           << ring.getParts() << " parts of the ring, got "
           << getParts().size();
  for (Value part : getParts()) {
    auto summary = cast<SummaryType>(part.getType());
    if (summary.getHeads() != ring.getHeads() ||
        summary.getSize() != ring.getValueSize())
      return emitOpError("summary must be of ")
             << ring.getHeads() << "x" << ring.getValueSize() << ", got "
             << summary;
  }
  if (ring.getRotated() != bool(getRotated()))
    return emitOpError("needs rotated queries where the ring holds them, and "
                       "nowhere else");
  if (failed(verifyRingQueries(*this, ring, getQuery(), getRotated())))
    return failure();
  return verifyMatch(*this, getAfter(), ring.getHeads());
}
