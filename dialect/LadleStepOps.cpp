//===- LadleStepOps.cpp - a step on stores --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "dialect/TokenInterface.h"

using namespace mlir;
using namespace ladle;

#define GET_OP_CLASSES
#include "dialect/LadleOps.cpp.inc"

//===----------------------------------------------------------------------===//
// StepOp
//===----------------------------------------------------------------------===//

void StepOp::getAsmBlockArgumentNames(Region &region,
                                      OpAsmSetValueNameFn setName) {
  setTokenArgumentNames(getArgumentNames(), region, setName);
}

ParseResult StepOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  FlatSymbolRefAttr recurrence;
  auto parseChoice = [&](StringRef keyword, auto symbolize,
                         auto makeAttr) -> ParseResult {
    StringRef text;
    if (parser.parseKeyword(keyword) || parser.parseLParen())
      return failure();
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&text))
      return failure();
    auto value = symbolize(text);
    if (!value)
      return parser.emitError(loc, "unknown ")
             << keyword << " '" << text << "'";
    result.addAttribute(keyword, makeAttr(parser.getContext(), *value));
    return parser.parseRParen();
  };
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(),
                             result.attributes) ||
      parser.parseKeyword("of") ||
      parser.parseAttribute(recurrence, "recurrence", result.attributes) ||
      parseChoice(
          "route", [](StringRef s) { return symbolizeRoute(s); },
          [](MLIRContext *c, Route r) { return RouteAttr::get(c, r); }) ||
      parseChoice(
          "form", [](StringRef s) { return symbolizeForm(s); },
          [](MLIRContext *c, Form f) { return FormAttr::get(c, f); }))
    return failure();
  return parseTokenInterface(parser, result);
}

void StepOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << " of ";
  printer.printSymbolName(getRecurrence());
  printer << " route(" << stringifyRoute(getRoute()) << ") form("
          << stringifyForm(getForm()) << ") ";
  printTokenInterface(printer, *this, getArgumentKinds(), getOutputNames(),
                      getOutputTypes(),
                      {"sym_name", "recurrence", "route", "form"});
}

LogicalResult StepOp::verifyRegions() {
  if (failed(verifyTokenInterface(*this, getArgumentNames(), getArgumentKinds(),
                                  getOutputNames(), getOutputTypes())))
    return failure();
  SmallVector<BlockArgument> drafts = getArgumentsOfKind(ArgumentKind::Drafts);
  if (drafts.size() != (isStacked() ? 1 : 0))
    return emitOpError("of form ")
           << stringifyForm(getForm()) << " must have "
           << (isStacked() ? "one argument of drafts, got "
                           : "no argument of drafts, got ")
           << drafts.size();
  for (BlockArgument argument : drafts)
    if (!isa<DraftsType>(argument.getType()))
      return emitOpError("drafts argument must be a !ladle.drafts, got ")
             << argument.getType();
  if (prefills() && !cast<DraftsType>(drafts.front().getType()).getIsChain())
    return emitOpError("of form ")
           << stringifyForm(getForm()) << " must have drafts that are a chain, "
           << "got " << drafts.front().getType();
  SmallVector<Type> expected;
  if (getForm() != Form::Fold) {
    llvm::append_range(expected, getOutputTypes().getAsValueRange<TypeAttr>());
    for (BlockArgument carry : getArgumentsOfKind(ArgumentKind::Carry))
      expected.push_back(carry.getType());
  }
  if (isStacked())
    for (Type &type : expected)
      type = stackType(cast<RankedTensorType>(type),
                       cast<DraftsType>(drafts.front().getType()).getMost());
  for (BlockArgument pool : getArgumentsOfKind(ArgumentKind::State))
    if (!isa<PoolType>(pool.getType()))
      return emitOpError("state argument must be a !ladle.pool, got ")
             << pool.getType();
  for (BlockArgument buffer : getArgumentsOfKind(ArgumentKind::Buffer))
    if (!isa<BufferType>(buffer.getType()))
      return emitOpError("buffer argument must be a !ladle.buffer, got ")
             << buffer.getType();
  if (failed(verifyYieldTypes(getYield(), expected)))
    return failure();
  if (!isStacked())
    return success();
  for (BlockArgument argument : getBody().getArguments()) {
    ArgumentKind kind = getArgumentKind(argument.getArgNumber());
    for (Operation *user : argument.getUsers()) {
      bool isInside = user->getParentOp() != getOperation();
      if (kind == ArgumentKind::Token && !isInside)
        return user->emitOpError("uses a token outside of ladle.each_draft");
      if (kind == ArgumentKind::Carry && !isa<EachDraftOp>(user))
        return user->emitOpError(
            "uses a carry that is none of ladle.each_draft");
    }
  }
  return success();
}

StringRef StepOp::getArgumentName(unsigned index) {
  return cast<StringAttr>(getArgumentNames()[index]).getValue();
}

ArgumentKind StepOp::getArgumentKind(unsigned index) {
  return cast<ArgumentKindAttr>(getArgumentKinds()[index]).getValue();
}

SmallVector<BlockArgument> StepOp::getArgumentsOfKind(ArgumentKind kind) {
  return argumentsOfKind(getBody(), getArgumentKinds(), kind);
}

YieldOp StepOp::getYield() {
  return cast<YieldOp>(getBody().front().getTerminator());
}

ValueRange StepOp::getYieldedOutputs() {
  if (getForm() == Form::Fold)
    return {};
  return getYield().getValues().take_front(getOutputNames().size());
}

ValueRange StepOp::getYieldedCarries() {
  return getYield().getValues().take_back(
      getForm() == Form::Fold ? 0
                              : getArgumentsOfKind(ArgumentKind::Carry).size());
}

//===----------------------------------------------------------------------===//
// State pool
//===----------------------------------------------------------------------===//

static LogicalResult verifyPoolAndState(Operation *op, PoolType pool,
                                        StateType state) {
  if (pool.getHeads() == state.getHeads() &&
      pool.getKeySize() == state.getKeySize() &&
      pool.getValueSize() == state.getValueSize() &&
      pool.getElementType() == state.getElementType())
    return success();
  return op->emitOpError() << "state " << state << " does not fit into "
                           << pool;
}

LogicalResult LoadStateOp::verify() {
  return verifyPoolAndState(*this, getPool().getType(), getState().getType());
}

LogicalResult StoreStateOp::verify() {
  return verifyPoolAndState(*this, getPool().getType(), getState().getType());
}

//===----------------------------------------------------------------------===//
// Entry buffer
//===----------------------------------------------------------------------===//

/// The field `name` of `buffer`, on `side`; an error names what is there.
static FailureOr<FieldAttr> findField(Operation *op, BufferType buffer,
                                      StringRef name,
                                      std::initializer_list<Side> sides) {
  FieldAttr field = buffer.getField(name);
  if (!field)
    return op->emitOpError("buffer has no field '") << name << "': " << buffer;
  if (!llvm::is_contained(sides, field.getSide()))
    return op->emitOpError("field '")
           << name << "' is on side @" << stringifySide(field.getSide());
  return field;
}

LogicalResult DecayProductOp::verify() {
  FailureOr<FieldAttr> field = findField(*this, getBuffer().getType(),
                                         getDecay(), {Side::Key, Side::Scalar});
  if (failed(field))
    return failure();
  if (getResult().getType().getShape() != field->getShape())
    return emitOpError("result must have the shape of field '")
           << getDecay() << "', got " << getResult().getType();
  return success();
}

/// The heads of every field among `names` divide those of the result.
static LogicalResult verifyFieldHeads(Operation *op, BufferType buffer,
                                      ArrayRef<StringRef> names,
                                      int64_t heads) {
  for (StringRef name : names) {
    FieldAttr field = buffer.getField(name);
    if (field && heads % field.getShape().front() != 0)
      return op->emitOpError("field '")
             << name << "' has " << field.getShape().front()
             << " heads, which do not divide the " << heads << " of the result";
  }
  return success();
}

/// A query [heads, (R,) dk] and what reading with it gives, [heads, (R,) dv];
/// `valueSize` is 0 if no field says what dv is.
static LogicalResult verifyQuery(Operation *op, RankedTensorType query,
                                 RankedTensorType result, int64_t keySize,
                                 int64_t valueSize) {
  ArrayRef<int64_t> from = query.getShape(), to = result.getShape();
  if (from.size() < 2 || from.size() > 4 || from.back() != keySize)
    return op->emitOpError("query must be [heads, dk] or [heads, R, dk] with "
                           "dk = ")
           << keySize << ", got " << query;
  if (to.size() != from.size() || (valueSize && to.back() != valueSize) ||
      to.drop_front().drop_back() != from.drop_front().drop_back())
    return op->emitOpError("result must have dv = ")
           << (valueSize ? valueSize : to.back())
           << " in place of dk for a query " << query << ", got " << result;
  if (to.front() % from.front() != 0)
    return op->emitOpError("query has ")
           << from.front() << " heads, which do not divide the " << to.front()
           << " of the result";
  return success();
}

/// Key and value fields of entries that are summed exist and fit each other.
template <typename OpT> static LogicalResult verifyEntrySum(OpT op) {
  BufferType buffer = op.getBuffer().getType();
  FailureOr<FieldAttr> key = findField(op, buffer, op.getKey(), {Side::Key});
  FailureOr<FieldAttr> value =
      findField(op, buffer, op.getValue(), {Side::Value});
  if (failed(key) || failed(value))
    return failure();
  if (key->getShape().drop_front().drop_back() !=
      value->getShape().drop_front().drop_back())
    return op.emitOpError("key '") << op.getKey() << "' and value '"
                                   << op.getValue() << "' differ in rank";
  for (std::optional<StringRef> scale : {op.getKeyScale(), op.getValueScale()})
    if (scale && failed(findField(op, buffer, *scale, {Side::Scalar})))
      return failure();
  if (op.getDecay() &&
      failed(findField(op, buffer, *op.getDecay(), {Side::Key, Side::Scalar})))
    return failure();
  return success();
}

template <typename OpT>
static LogicalResult verifyEntryHeads(OpT op, int64_t heads) {
  return verifyFieldHeads(op, op.getBuffer().getType(),
                          {op.getKey(), op.getKeyScale().value_or(""),
                           op.getValue(), op.getValueScale().value_or(""),
                           op.getDecay().value_or("")},
                          heads);
}

LogicalResult ReadBufferOp::verify() {
  if (failed(verifyEntrySum(*this)))
    return failure();
  if (getQueries().empty())
    return emitOpError("needs a query");
  if (getQueries().size() != getResults().size())
    return emitOpError("has ") << getQueries().size() << " queries, but "
                               << getResults().size() << " results";
  BufferType buffer = getBuffer().getType();
  int64_t keySize = buffer.getField(getKey()).getShape().back();
  int64_t valueSize = buffer.getField(getValue()).getShape().back();
  for (auto [query, result] : llvm::zip(getQueries(), getResults())) {
    auto type = cast<RankedTensorType>(result.getType());
    if (failed(verifyQuery(*this, cast<RankedTensorType>(query.getType()), type,
                           keySize, valueSize)) ||
        failed(verifyEntryHeads(*this, type.getDimSize(0))))
      return failure();
  }
  return success();
}

LogicalResult FoldBufferOp::verify() {
  if (failed(verifyEntrySum(*this)))
    return failure();
  BufferType buffer = getBuffer().getType();
  StateType state = getState().getType();
  if (buffer.getField(getKey()).getShape().back() != state.getKeySize() ||
      buffer.getField(getValue()).getShape().back() != state.getValueSize())
    return emitOpError("key '") << getKey() << "' and value '" << getValue()
                                << "' do not fit a state " << state;
  return verifyEntryHeads(*this, state.getHeads());
}

/// All fields that a transition names exist and fit each other.
static LogicalResult verifyTransition(Operation *op, BufferType buffer,
                                      TransitionAttr transition) {
  auto checkAll = [&](ArrayRef<StringAttr> names,
                      std::initializer_list<Side> sides, bool mayBeEmpty) {
    return llvm::all_of(names, [&](StringAttr name) {
      return (mayBeEmpty && name.empty()) ||
             succeeded(findField(op, buffer, name, sides));
    });
  };
  size_t writes = transition.getKeys().size();
  size_t reads = transition.getVectors().size();
  if (transition.getValues().size() != writes ||
      transition.getKeyScales().size() != writes ||
      transition.getValueScales().size() != writes ||
      transition.getReadOwners().size() != reads ||
      transition.getCoefficients().size() != reads ||
      transition.getVectorScales().size() != reads ||
      transition.getAfterDecay().size() != reads)
    return op->emitOpError("lists of the transition differ in length");
  for (int64_t owner : transition.getReadOwners())
    if (owner < 0 || owner >= static_cast<int64_t>(writes))
      return op->emitOpError("a read belongs to write ")
             << owner << " of " << writes;
  StringAttr decay = StringAttr::get(op->getContext(), transition.getDecay());
  if (!checkAll(decay, {Side::Key, Side::Scalar}, true) ||
      !checkAll(transition.getKeys(), {Side::Key}, false) ||
      !checkAll(transition.getKeyScales(), {Side::Scalar}, true) ||
      !checkAll(transition.getValues(), {Side::Value}, true) ||
      !checkAll(transition.getValueScales(), {Side::Scalar}, true) ||
      !checkAll(transition.getCoefficients(), {Side::Scalar}, false) ||
      !checkAll(transition.getVectors(), {Side::Key}, false) ||
      !checkAll(transition.getVectorScales(), {Side::Scalar}, true))
    return failure();

  auto rankOf = [&](StringAttr name) {
    return buffer.getField(name).getShape().drop_front().drop_back();
  };
  for (auto [key, value] :
       llvm::zip(transition.getKeys(), transition.getValues()))
    if (!value.empty() && rankOf(key) != rankOf(value))
      return op->emitOpError("key '") << key.getValue() << "' and value '"
                                      << value.getValue() << "' differ in rank";
  for (auto [owner, vector] :
       llvm::zip(transition.getReadOwners(), transition.getVectors()))
    if (rankOf(transition.getKeys()[owner]) != rankOf(vector))
      return op->emitOpError("vector '")
             << vector.getValue()
             << "' and the key of its write differ in rank";
  return success();
}

static LogicalResult verifyTransitionHeads(Operation *op, BufferType buffer,
                                           TransitionAttr transition,
                                           int64_t heads) {
  SmallVector<StringRef> names = {transition.getDecay()};
  for (ArrayRef<StringAttr> list :
       {transition.getKeys(), transition.getKeyScales(), transition.getValues(),
        transition.getValueScales(), transition.getCoefficients(),
        transition.getVectors(), transition.getVectorScales()})
    for (StringAttr name : list)
      names.push_back(name);
  return verifyFieldHeads(op, buffer, names, heads);
}

LogicalResult TransportOp::verify() {
  if (getQueries().empty())
    return emitOpError("needs a query");
  if (getQueries().size() != getOrigins().size() ||
      getQueries().size() != getPartials().size())
    return emitOpError("gives an origin and a partial for each of ")
           << getQueries().size() << " queries";
  BufferType buffer = getBuffer().getType();
  if (failed(verifyTransition(*this, buffer, getTransition())))
    return failure();
  if (getTransition().getKeys().empty())
    return emitOpError("needs a write to carry queries through");
  int64_t keySize =
      buffer.getField(getTransition().getKeys().front()).getShape().back();
  int64_t valueSize = 0;
  for (StringAttr value : getTransition().getValues())
    if (!value.empty())
      valueSize = buffer.getField(value).getShape().back();
  for (auto [query, origin, partial] :
       llvm::zip(getQueries(), getOrigins(), getPartials())) {
    if (query.getType() != origin.getType())
      return emitOpError("origin must have the type of its query, ")
             << query.getType() << ", got " << origin.getType();
    auto type = cast<RankedTensorType>(partial.getType());
    if (failed(verifyQuery(*this, cast<RankedTensorType>(query.getType()), type,
                           keySize, valueSize)) ||
        failed(verifyTransitionHeads(*this, buffer, getTransition(),
                                     type.getDimSize(0))))
      return failure();
  }
  return success();
}

LogicalResult ReplayOp::verify() {
  BufferType buffer = getBuffer().getType();
  StateType state = getState().getType();
  if (failed(verifyTransition(*this, buffer, getTransition())))
    return failure();
  for (auto [key, value] :
       llvm::zip(getTransition().getKeys(), getTransition().getValues()))
    if (buffer.getField(key).getShape().back() != state.getKeySize() ||
        (!value.empty() &&
         buffer.getField(value).getShape().back() != state.getValueSize()))
      return emitOpError("key '")
             << key.getValue() << "' and value '" << value.getValue()
             << "' do not fit a state " << state;
  return verifyTransitionHeads(*this, buffer, getTransition(),
                               state.getHeads());
}

LogicalResult AppendOp::verify() {
  ArrayRef<FieldAttr> fields = getBuffer().getType().getFields();
  if (fields.size() != getValues().size())
    return emitOpError("needs a value for each of ")
           << fields.size() << " fields, got " << getValues().size();
  for (auto [field, value] : llvm::zip(fields, getValues())) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getShape() != field.getShape())
      return emitOpError("value of field '")
             << field.getName() << "' must have its shape, got " << type;
  }
  return success();
}
