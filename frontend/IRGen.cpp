//===- IRGen.cpp - from a checked tree to the spec stage --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/IRGen.h"

#include "dialect/LadleOps.h"
#include "frontend/TokenGenerator.h"
#include "llvm/ADT/ScopeExit.h"

using namespace mlir;
using namespace ladle::frontend;
using llvm::cast;
using llvm::dyn_cast;

namespace {

class Generator : public TokenGenerator {
public:
  Generator(MLIRContext &context, const llvm::SourceMgr &sourceManager,
            const Recurrence &recurrence, const Scope &scope)
      : TokenGenerator(context, sourceManager, recurrence, scope) {}

  OwningOpRef<ModuleOp> run();

private:
  Type getStorageType(const Symbol &symbol);
  ladle::RecurrenceOp createRecurrence();
  void emitStatement(const Statement &statement);
  /// A read: all else gives no value.
  Value emitCall(const CallExpr &call) override;
  Value emitNextState(const Expr &expr, Value state, const Symbol &symbol);
  void emitYield();
};

/// What a declared name is to the recurrence operation; nothing for the names
/// that are no arguments.
std::optional<ladle::ArgumentKind> getArgumentKind(const Symbol &symbol) {
  switch (symbol.kind) {
  case Symbol::Kind::Param:
    return ladle::ArgumentKind::Param;
  case Symbol::Kind::Token:
    return ladle::ArgumentKind::Token;
  case Symbol::Kind::Carry:
    return ladle::ArgumentKind::Carry;
  case Symbol::Kind::State:
    return ladle::ArgumentKind::State;
  default:
    return std::nullopt;
  }
}

} // namespace

Type Generator::getStorageType(const Symbol &symbol) {
  if (symbol.kind == Symbol::Kind::State)
    return ladle::StateType::get(
        builder.getContext(), symbol.shape.getNumHeads(),
        symbol.getKeyDim().size, symbol.getValueDim().size,
        getElementType(symbol.type));
  return getTensorType(symbol);
}

//===----------------------------------------------------------------------===//
// The recurrence
//===----------------------------------------------------------------------===//

OwningOpRef<ModuleOp> Generator::run() {
  loc = locate(recurrence.name, recurrence.loc);
  OwningOpRef<ModuleOp> module =
      ModuleOp::create(builder, locate(recurrence.loc));
  builder.setInsertionPointToStart(module->getBody());
  ladle::RecurrenceOp op = createRecurrence();
  builder.setInsertionPointToStart(&op.getBody().front());
  for (const Statement &statement : recurrence.statements)
    emitStatement(statement);
  emitYield();
  return module;
}

ladle::RecurrenceOp Generator::createRecurrence() {
  SmallVector<Attribute> kinds, outputTypes;
  SmallVector<StringRef> names, outputNames;
  SmallVector<Type> types;
  SmallVector<Location> locations;
  for (ladle::ArgumentKind kind :
       {ladle::ArgumentKind::Param, ladle::ArgumentKind::Token,
        ladle::ArgumentKind::Carry, ladle::ArgumentKind::State}) {
    for (auto &[name, symbol] : scope.getSymbols()) {
      if (getArgumentKind(symbol) != kind)
        continue;
      names.push_back(name);
      kinds.push_back(ladle::ArgumentKindAttr::get(builder.getContext(), kind));
      types.push_back(getStorageType(symbol));
      locations.push_back(locate(name, symbol.loc));
    }
  }
  for (auto &[name, symbol] : scope.getSymbols()) {
    if (symbol.kind != Symbol::Kind::Output)
      continue;
    outputNames.push_back(name);
    outputTypes.push_back(TypeAttr::get(getStorageType(symbol)));
  }
  auto op = create<ladle::RecurrenceOp>(
      recurrence.name, builder.getStrArrayAttr(names),
      builder.getArrayAttr(kinds), builder.getStrArrayAttr(outputNames),
      builder.getArrayAttr(outputTypes));
  Block &block = op.getBody().emplaceBlock();
  block.addArguments(types, locations);
  for (auto [name, argument] : llvm::zip_equal(names, block.getArguments()))
    values[name] = argument;
  return op;
}

void Generator::emitStatement(const Statement &statement) {
  loc = locate(statement.loc);
  switch (statement.kind) {
  case Statement::Kind::Declare:
    // Small types enter the arithmetic here, once.
    for (const ArrayDecl &array : statement.arrays) {
      const Symbol &symbol = *scope.lookup(array.name);
      if (symbol.kind == Symbol::Kind::State || !symbol.read)
        continue;
      loc = locate(array.name, array.loc);
      values[array.name] = extend(values[array.name]);
    }
    return;
  case Statement::Kind::Option:
  case Statement::Kind::Cache:
  case Statement::Kind::Memory:
    return;
  case Statement::Kind::Let:
    return emitLet(statement);
  case Statement::Kind::Assign: {
    const Symbol &symbol = *scope.lookup(statement.name);
    Value value = symbol.kind == Symbol::Kind::State
                      ? emitNextState(*statement.value,
                                      values.lookup(statement.name), symbol)
                      : emitAs(*statement.value, symbol.shape);
    values[statement.name] = value;
    return;
  }
  case Statement::Kind::Output: {
    const Symbol &symbol = *scope.lookup(statement.name);
    values[statement.name] =
        store(emitAs(*statement.value, symbol.shape), getTensorType(symbol));
    return;
  }
  }
}

void Generator::emitYield() {
  loc = locate(recurrence.loc);
  SmallVector<Value> results;
  for (Symbol::Kind kind :
       {Symbol::Kind::Output, Symbol::Kind::Carry, Symbol::Kind::State}) {
    for (auto &[name, symbol] : scope.getSymbols()) {
      if (symbol.kind != kind)
        continue;
      loc = locate(name, symbol.loc);
      Value value = values[name];
      results.push_back(kind == Symbol::Kind::State
                            ? value
                            : store(value, getTensorType(symbol)));
    }
  }
  loc = locate(recurrence.loc);
  create<ladle::YieldOp>(results);
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

Value Generator::emitCall(const CallExpr &call) {
  Value state = values.lookup(cast<NameExpr>(*call.args[0]).name);
  Value query = emit(*call.args[1]);
  return create<ladle::ReadOp>(getTensorType(call.shape), state, query);
}

Value Generator::emitNextState(const Expr &expr, Value state,
                               const Symbol &symbol) {
  auto *call = dyn_cast<CallExpr>(&expr);
  if (!call)
    return state; // The state itself.
  Value previous = emitNextState(*call->args[0], state, symbol);
  Location outer = loc;
  loc = locate(call->loc);
  llvm::scope_exit restore([&] { loc = outer; });

  Value operand = emit(*call->args[1]);
  if (call->callee == "decay")
    return create<ladle::DecayOp>(previous, operand);
  // A value may lack dimensions of the key's rank, or be one number a head.
  const Expr &value = *call->args[2];
  Shape shape = value.shape;
  shape.features = call->args[1]->shape.features;
  shape.features.back() = symbol.getValueDim();
  return create<ladle::WriteOp>(previous, operand, emitAs(value, shape));
}

OwningOpRef<ModuleOp> ladle::frontend::generateSpec(
    MLIRContext &context, const llvm::SourceMgr &sourceManager,
    const Recurrence &recurrence, const Scope &scope) {
  return Generator(context, sourceManager, recurrence, scope).run();
}
