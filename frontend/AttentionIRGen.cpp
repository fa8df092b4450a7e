//===- AttentionIRGen.cpp - an attention at the spec stage ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "frontend/IRGen.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace ladle::frontend;

namespace {

class AttentionGenerator {
public:
  AttentionGenerator(MLIRContext &context, const llvm::SourceMgr &sourceManager,
                     const Recurrence &recurrence, const Scope &scope)
      : builder(&context), sourceManager(sourceManager), recurrence(recurrence),
        scheme(recurrence.attention), scope(scope) {}

  OwningOpRef<ModuleOp> run();

private:
  Location locate(llvm::SMLoc loc);
  Location locate(llvm::StringRef name, llvm::SMLoc loc) {
    return NameLoc::get(builder.getStringAttr(name), locate(loc));
  }
  Type getElementType(ElementType type);
  RankedTensorType getStorageType(const Symbol &symbol) {
    return RankedTensorType::get(symbol.shape.getSizes(),
                                 getElementType(symbol.type));
  }
  ladle::BufferType getCacheType();
  ladle::AttentionOp createAttention();
  /// The f32 value of a param or token.
  Value use(llvm::StringRef name);
  Value emitMatch(Type summary);
  Value emitComplete(Value prefix, Value all);
  IntegerAttr integer(int64_t value) {
    return builder.getI64IntegerAttr(value);
  }
  IntegerAttr integer(std::optional<int64_t> value) {
    return value ? integer(*value) : IntegerAttr();
  }

  OpBuilder builder;
  const llvm::SourceMgr &sourceManager;
  const Recurrence &recurrence;
  const AttentionScheme &scheme;
  const Scope &scope;
  /// Of arguments; widened where they have been used.
  llvm::StringMap<Value> values;
};

} // namespace

Location AttentionGenerator::locate(llvm::SMLoc loc) {
  auto [line, column] = sourceManager.getLineAndColumn(loc);
  llvm::StringRef file =
      sourceManager.getMemoryBuffer(sourceManager.getMainFileID())
          ->getBufferIdentifier();
  return FileLineColLoc::get(builder.getContext(), file, line, column);
}

Type AttentionGenerator::getElementType(ElementType type) {
  switch (type) {
  case ElementType::F32:
    return builder.getF32Type();
  case ElementType::BF16:
    return builder.getBF16Type();
  case ElementType::F16:
    return builder.getF16Type();
  }
  return {};
}

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
                                /*capacity=*/0, ladle::BufferOrder::Paged,
                                ladle::BufferWeight::Exp);
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
            name, getStorageType(symbol), symbol.loc);
  add(ladle::ArgumentKind::Buffer, scheme.cache, getCacheType(),
      scheme.cacheLoc);
  for (auto &[name, symbol] : scope.getSymbols()) {
    if (symbol.kind != Symbol::Kind::Output)
      continue;
    outputNames.push_back(name);
    outputTypes.push_back(TypeAttr::get(getStorageType(symbol)));
  }
  auto op = ladle::AttentionOp::create(
      builder, locate(recurrence.name, recurrence.loc), recurrence.name,
      scheme.pageSize, builder.getStrArrayAttr(names),
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
  auto type = llvm::cast<RankedTensorType>(value.getType());
  if (!type.getElementType().isF32())
    value =
        arith::ExtFOp::create(builder, locate(name, scope.lookup(name)->loc),
                              type.clone(builder.getF32Type()), value);
  return value;
}

Value AttentionGenerator::emitMatch(Type summary) {
  const AttentionScheme::Match &match = *scheme.match;
  Value query = use(match.query);
  Value moment = match.moment.empty() ? Value() : use(match.moment);
  return ladle::MatchOp::create(
      builder, locate(match.loc), summary, query, moment, integer(match.window),
      builder.getF64FloatAttr(match.tau), integer(match.maxGap),
      integer(match.maxChain), integer(match.skip),
      match.drift ? builder.getF64FloatAttr(*match.drift) : FloatAttr());
}

Value AttentionGenerator::emitComplete(Value prefix, Value all) {
  return ladle::CompleteOp::create(
      builder, locate(scheme.completeLoc), all.getType(), prefix, all,
      integer(scheme.band), integer(scheme.sinks), integer(scheme.wideBand),
      integer(scheme.wideGap));
}

OwningOpRef<ModuleOp> AttentionGenerator::run() {
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(builder, locate(recurrence.loc));
  builder.setInsertionPointToStart(module->getBody());
  ladle::AttentionOp op = createAttention();
  builder.setInsertionPointToStart(&op.getBody().front());

  Value key = use(scheme.key), value = use(scheme.value);
  Value next = ladle::CacheTokenOp::create(
      builder, locate(scheme.cache, scheme.cacheLoc),
      values[scheme.cache].getType(), values[scheme.cache],
      ValueRange{key, value});
  Value query = use(scheme.query);
  auto heads = llvm::cast<RankedTensorType>(query.getType()).getDimSize(0);
  auto size = llvm::cast<RankedTensorType>(value.getType()).getDimSize(1);
  auto summary = ladle::SummaryType::get(builder.getContext(), heads, size,
                                         builder.getF32Type());
  Value prefix = scheme.match ? emitMatch(summary) : Value();
  Value all = ladle::SoftmaxOp::create(builder, locate(scheme.softmaxLoc),
                                       summary, query, next,
                                       builder.getF64FloatAttr(scheme.scale));
  if (scheme.completes)
    all = emitComplete(prefix, all);

  StringRef outputName;
  const Symbol *output = nullptr;
  for (auto &[name, symbol] : scope.getSymbols())
    if (symbol.kind == Symbol::Kind::Output) {
      outputName = name;
      output = &symbol;
    }
  Location loc = locate(outputName, output->loc);
  Value result = ladle::NormalizeOp::create(
      builder, loc, RankedTensorType::get({heads, size}, builder.getF32Type()),
      all);
  if (output->type != ElementType::F32)
    result =
        arith::TruncFOp::create(builder, loc, getStorageType(*output), result);
  ladle::YieldOp::create(builder, locate(recurrence.loc),
                         ValueRange{result, next});
  return module;
}

OwningOpRef<ModuleOp> ladle::frontend::generateAttention(
    MLIRContext &context, const llvm::SourceMgr &sourceManager,
    const Recurrence &recurrence, const Scope &scope) {
  return AttentionGenerator(context, sourceManager, recurrence, scope).run();
}
