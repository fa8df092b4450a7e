//===- AttentionIRGen.cpp - an attention at the spec stage ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "frontend/IRGen.h"
#include "frontend/TokenGenerator.h"

using namespace mlir;
using namespace ladle::frontend;

namespace {

/// Emits an attention: the plan of a cache that keeps all tokens, or the
/// expressions over one that gives some up.
class AttentionGenerator : public TokenGenerator {
public:
  AttentionGenerator(MLIRContext &context, const llvm::SourceMgr &sourceManager,
                     const Recurrence &recurrence, const Scope &scope)
      : TokenGenerator(context, sourceManager, recurrence, scope),
        scheme(recurrence.attention) {}

  OwningOpRef<ModuleOp> run();

private:
  ladle::BufferType getCacheType();
  ladle::MemoryType getMemoryType();
  ladle::SummaryType getSummaryType(const Shape &shape);
  ladle::AttentionOp createAttention();
  /// The f32 value of a param or token.
  Value use(llvm::StringRef name);
  void emitCacheToken();

  //===--- A cache that keeps all
  //------------------------------------------===//
  void emitPlan();
  Value emitMatch(Type summary);
  Value emitComplete(Value prefix, Value all);

  //===--- A cache that gives up some
  //--------------------------------------===//
  void emitBounded();
  void emitEviction();
  void emitFold();
  Value emitCall(const CallExpr &call) override;
  Value emitName(const NameExpr &name) override;
  Value emitSummary(const Expr &expr);
  Value normalize(Value summary);

  IntegerAttr integer(int64_t value) {
    return builder.getI64IntegerAttr(value);
  }
  IntegerAttr integer(std::optional<int64_t> value) {
    return value ? integer(*value) : IntegerAttr();
  }
  FloatAttr number(double value) { return builder.getF64FloatAttr(value); }

  const AttentionScheme &scheme;
  /// As they are after this token.
  Value cache, memory;
};

} // namespace

ladle::BufferType AttentionGenerator::getCacheType() {
  auto field = [&](llvm::StringRef name, ladle::Side side) {
    const Symbol &symbol = *scope.lookup(name);
    return ladle::FieldAttr::get(builder.getContext(), name,
                                 symbol.shape.getSizes(),
                                 getElementType(symbol.type), side);
  };
  return ladle::BufferType::get(builder.getContext(),
                                {field(scheme.key, ladle::Side::Key),
                                 field(scheme.value, ladle::Side::Value)},
                                scheme.bounds ? scheme.bounds->capacity : 0,
                                scheme.bounds ? ladle::BufferOrder::Bounded
                                              : ladle::BufferOrder::Paged,
                                ladle::BufferWeight::Exp);
}

ladle::MemoryType AttentionGenerator::getMemoryType() {
  const AttentionScheme::Memory &given = *scheme.memory;
  return ladle::MemoryType::get(
      builder.getContext(),
      given.feature ? ladle::MemoryKind::Linear : ladle::MemoryKind::Taylor,
      given.shape.getNumHeads(), given.shape.features[0].size,
      given.shape.features[1].size, getElementType(given.type));
}

ladle::SummaryType AttentionGenerator::getSummaryType(const Shape &shape) {
  return ladle::SummaryType::get(builder.getContext(), shape.getNumHeads(),
                                 shape.features[0].size, builder.getF32Type());
}

ladle::AttentionOp AttentionGenerator::createAttention() {
  SmallVector<Attribute> kinds, outputTypes;
  SmallVector<StringRef> names, outputNames;
  SmallVector<Type> types;
  SmallVector<Location> locations;
  auto add = [&](ladle::ArgumentKind kind, StringRef name, Type type,
                 llvm::SMLoc loc) {
    names.push_back(name);
    kinds.push_back(ladle::ArgumentKindAttr::get(builder.getContext(), kind));
    types.push_back(type);
    locations.push_back(locate(name, loc));
  };
  for (Symbol::Kind wanted : {Symbol::Kind::Param, Symbol::Kind::Token})
    for (auto &[name, symbol] : scope.getSymbols())
      if (symbol.kind == wanted)
        add(wanted == Symbol::Kind::Param ? ladle::ArgumentKind::Param
                                          : ladle::ArgumentKind::Token,
            name, getTensorType(symbol), symbol.loc);
  add(ladle::ArgumentKind::Buffer, scheme.cache, getCacheType(),
      scheme.cacheLoc);
  if (scheme.memory)
    add(ladle::ArgumentKind::Memory, scheme.memory->name, getMemoryType(),
        scheme.memory->loc);
  for (auto &[name, symbol] : scope.getSymbols()) {
    if (symbol.kind != Symbol::Kind::Output)
      continue;
    outputNames.push_back(name);
    outputTypes.push_back(TypeAttr::get(getTensorType(symbol)));
  }
  auto op = create<ladle::AttentionOp>(
      recurrence.name, scheme.pageSize, builder.getStrArrayAttr(names),
      builder.getArrayAttr(kinds), builder.getStrArrayAttr(outputNames),
      builder.getArrayAttr(outputTypes));
  Block &block = op.getBody().emplaceBlock();
  block.addArguments(types, locations);
  for (auto [name, argument] : llvm::zip_equal(names, block.getArguments()))
    values[name] = argument;
  return op;
}

Value AttentionGenerator::use(llvm::StringRef name) {
  Value &value = values[name];
  loc = locate(name, scope.lookup(name)->loc);
  return value = extend(value);
}

void AttentionGenerator::emitCacheToken() {
  Value key = use(scheme.key), value = use(scheme.value);
  loc = locate(scheme.cache, scheme.cacheLoc);
  cache = values[scheme.cache];
  cache = create<ladle::CacheTokenOp>(cache.getType(), cache,
                                      ValueRange{key, value});
}

//===----------------------------------------------------------------------===//
// A cache that keeps all tokens
//===----------------------------------------------------------------------===//

Value AttentionGenerator::emitMatch(Type summary) {
  const AttentionScheme::Match &match = *scheme.match;
  Value query = use(match.query);
  Value moment = match.moment.empty() ? Value() : use(match.moment);
  loc = locate(match.loc);
  return create<ladle::MatchOp>(
      summary, query, moment, integer(match.window), number(match.tau),
      integer(match.maxGap), integer(match.maxChain), integer(match.skip),
      match.drift ? number(*match.drift) : FloatAttr());
}

Value AttentionGenerator::emitComplete(Value prefix, Value all) {
  loc = locate(scheme.completeLoc);
  return create<ladle::CompleteOp>(
      all.getType(), prefix, all, integer(scheme.band), integer(scheme.sinks),
      integer(scheme.wideBand), integer(scheme.wideGap));
}

void AttentionGenerator::emitPlan() {
  Value query = use(scheme.query);
  auto heads = llvm::cast<RankedTensorType>(query.getType()).getDimSize(0);
  auto size = llvm::cast<RankedTensorType>(values[scheme.value].getType())
                  .getDimSize(1);
  auto summary = ladle::SummaryType::get(builder.getContext(), heads, size,
                                         builder.getF32Type());
  Value prefix = scheme.match ? emitMatch(summary) : Value();
  loc = locate(scheme.softmaxLoc);
  Value all =
      create<ladle::SoftmaxOp>(summary, query, cache, number(scheme.scale));
  if (scheme.completes)
    all = emitComplete(prefix, all);
  for (auto &[name, symbol] : scope.getSymbols()) {
    if (symbol.kind != Symbol::Kind::Output)
      continue;
    loc = locate(name, symbol.loc);
    values[name] = store(normalize(all), getTensorType(symbol));
  }
}

//===----------------------------------------------------------------------===//
// A cache that gives up tokens
//===----------------------------------------------------------------------===//

void AttentionGenerator::emitEviction() {
  const AttentionScheme::Bounds &bounds = *scheme.bounds;
  auto op = create<ladle::EvictOp>(
      cache.getType(), memory ? memory.getType() : Type(), cache, memory,
      integer(bounds.budget), integer(bounds.sinks), integer(bounds.recent),
      integer(bounds.queries), number(bounds.variance), integer(bounds.pool));
  cache = op.getKept();
  memory = op.getFolded();
}

void AttentionGenerator::emitFold() {
  const AttentionScheme::Bounds &bounds = *scheme.bounds;
  auto op = create<ladle::FoldSegmentOp>(
      cache.getType(), memory.getType(), cache, memory, integer(bounds.sinks),
      integer(bounds.window), integer(bounds.segment),
      number(scheme.memory->decay));
  // In there, the key is one that was cached.
  Value &key = values[scheme.key];
  Value outside = key;
  OpBuilder::InsertionGuard guard(builder);
  Block &block = op.getFeature().emplaceBlock();
  key = block.addArgument(outside.getType(), loc);
  builder.setInsertionPointToStart(&block);
  const Symbol &symbol = *scope.lookup(scheme.key);
  Shape shape;
  shape.head = symbol.shape.head;
  shape.features = {scheme.memory->shape.features[0]};
  create<ladle::YieldOp>(ValueRange{emitAs(**scheme.memory->feature, shape)});
  values[scheme.key] = outside;
  cache = op.getKept();
  memory = op.getFolded();
}

Value AttentionGenerator::normalize(Value summary) {
  auto type = llvm::cast<ladle::SummaryType>(summary.getType());
  return create<ladle::NormalizeOp>(
      RankedTensorType::get({type.getHeads(), type.getSize()},
                            builder.getF32Type()),
      summary);
}

Value AttentionGenerator::emitName(const NameExpr &name) {
  Value value = values.lookup(name.name);
  if (llvm::isa<ladle::SummaryType>(value.getType()))
    return normalize(value);
  return llvm::isa<BlockArgument>(value) ? use(name.name) : value;
}

/// The argument called `name`, or else at `place`; null if it is not there.
static const Expr *findArgument(const CallExpr &call, StringRef name,
                                unsigned place) {
  for (auto [index, arg] : llvm::enumerate(call.args))
    if (call.names[index] == name ||
        (call.names[index].empty() && index == place))
      return arg.get();
  return nullptr;
}

Value AttentionGenerator::emitSummary(const Expr &expr) {
  if (auto *name = llvm::dyn_cast<NameExpr>(&expr))
    return values.lookup(name->name);
  const auto &call = llvm::cast<CallExpr>(expr);
  if (call.callee == "merge") {
    Value first = emitSummary(*call.args[0]);
    Value second = emitSummary(*call.args[1]);
    loc = locate(call.loc);
    return create<ladle::MergeOp>(first, second);
  }
  Value query = emit(*findArgument(call, "query", 0));
  loc = locate(call.loc);
  if (call.callee == "softmax")
    return create<ladle::SoftmaxOp>(getSummaryType(expr.shape), query, cache,
                                    number(scheme.scale));
  const Expr *scale = findArgument(call, "scale", 2);
  return create<ladle::TaylorOp>(getSummaryType(expr.shape), query, memory,
                                 number(scale ? *scale->constant : 1),
                                 number(scheme.memory->limit));
}

Value AttentionGenerator::emitCall(const CallExpr &call) {
  if (call.isSummary)
    return normalize(emitSummary(call));
  if (call.callee == "recall") {
    Value query = emit(*findArgument(call, "features", 0));
    return create<ladle::RecallOp>(getTensorType(call.shape), query, memory);
  }
  Value value = emitAs(*findArgument(call, "value", 1), call.shape);
  Value otherwise = emitAs(*findArgument(call, "otherwise", 2), call.shape);
  return create<ladle::OnceOp>(value.getType(), memory, value, otherwise);
}

void AttentionGenerator::emitBounded() {
  if (scheme.memory)
    memory = values[scheme.memory->name];
  if (scheme.bounds->evicts)
    emitEviction();
  else
    emitFold();
  for (const Statement &statement : recurrence.statements) {
    loc = locate(statement.loc);
    if (statement.kind == Statement::Kind::Let && statement.value->isSummary) {
      Value summary = emitSummary(*statement.value);
      if (!llvm::isa<NameExpr>(*statement.value))
        summary.setLoc(NameLoc::get(builder.getStringAttr(statement.name),
                                    summary.getLoc()));
      values[statement.name] = summary;
    } else if (statement.kind == Statement::Kind::Let) {
      emitLet(statement);
    } else if (statement.kind == Statement::Kind::Output) {
      const Symbol &symbol = *scope.lookup(statement.name);
      loc = locate(statement.name, symbol.loc);
      values[statement.name] =
          store(emitAs(*statement.value, symbol.shape), getTensorType(symbol));
    }
  }
  if (!scheme.bounds->evicts || !scheme.bounds->chooses())
    return;
  Value query = use(scheme.query);
  loc = locate(scheme.cache, scheme.cacheLoc);
  cache = create<ladle::ObserveOp>(cache.getType(), query, cache,
                                   number(scheme.scale));
}

OwningOpRef<ModuleOp> AttentionGenerator::run() {
  loc = locate(recurrence.name, recurrence.loc);
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(builder, locate(recurrence.loc));
  builder.setInsertionPointToStart(module->getBody());
  ladle::AttentionOp op = createAttention();
  builder.setInsertionPointToStart(&op.getBody().front());
  emitCacheToken();
  if (scheme.bounds)
    emitBounded();
  else
    emitPlan();
  SmallVector<Value> results;
  for (auto &[name, symbol] : scope.getSymbols())
    if (symbol.kind == Symbol::Kind::Output)
      results.push_back(values[name]);
  results.push_back(cache);
  if (memory)
    results.push_back(memory);
  loc = locate(recurrence.loc);
  create<ladle::YieldOp>(results);
  return module;
}

OwningOpRef<ModuleOp> ladle::frontend::generateAttention(
    MLIRContext &context, const llvm::SourceMgr &sourceManager,
    const Recurrence &recurrence, const Scope &scope) {
  return AttentionGenerator(context, sourceManager, recurrence, scope).run();
}
