//===- StepBuilder.cpp - the steps of a route -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/build/StepBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Interface of a step
//===----------------------------------------------------------------------===//

StepOp StepBuilder::begin(Form form) {
  std::string name = (recurrence.getSymName() + "_" + stringifyRoute(route) +
                      "_" + stringifyForm(form))
                         .str();
  SmallVector<Attribute> names, kinds;
  SmallVector<Type> types;
  SmallVector<Location> locs;
  auto addArgument = [&](const Twine &argument, ArgumentKind kind, Type type,
                         Location loc) {
    names.push_back(b.getStringAttr(argument));
    kinds.push_back(ArgumentKindAttr::get(b.getContext(), kind));
    types.push_back(type);
    locs.push_back(loc);
  };
  for (BlockArgument argument : recurrence.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    Type type = argument.getType();
    if (auto state = dyn_cast<StateType>(type))
      type = PoolType::get(b.getContext(), state.getHeads(), state.getKeySize(),
                           state.getValueSize(), state.getElementType(),
                           options.stateLayout);
    addArgument(recurrence.getArgumentName(index),
                recurrence.getArgumentKind(index), type, argument.getLoc());
  }
  if (isBuffered() && form != Form::PrefillFold && form != Form::PrefillScan)
    for (const StateHistory &state : history.getStates())
      addArgument(
          recurrence.getArgumentName(state.state.getArgNumber()) + "_entries",
          ArgumentKind::Buffer,
          BufferType::get(
              b.getContext(), layouts[state.index].fields, options.capacity,
              options.drafts ? BufferOrder::Indexed : BufferOrder::Ring,
              BufferWeight::Linear, options.page),
          state.state.getLoc());
  bool verifies = form == Form::Verify || form == Form::VerifyFold;
  bool prefills = form == Form::PrefillFold || form == Form::PrefillEntries;
  std::string draftsName = prefills ? "chunk" : "drafts";
  // unless the source says it
  while (llvm::is_contained(names, b.getStringAttr(draftsName)))
    draftsName += "_";
  if (verifies || prefills)
    addArgument(draftsName, ArgumentKind::Drafts,
                DraftsType::get(b.getContext(),
                                prefills ? options.chunk : options.drafts,
                                /*isChain=*/prefills),
                recurrence.getLoc());

  OperationState state(recurrence.getLoc(), StepOp::getOperationName());
  state.addAttribute("sym_name", b.getStringAttr(name));
  state.addAttribute("recurrence",
                     FlatSymbolRefAttr::get(recurrence.getSymNameAttr()));
  state.addAttribute("route", RouteAttr::get(b.getContext(), route));
  state.addAttribute("form", FormAttr::get(b.getContext(), form));
  state.addAttribute("argument_names", b.getArrayAttr(names));
  state.addAttribute("argument_kinds", b.getArrayAttr(kinds));
  state.addAttribute("output_names", recurrence.getOutputNames());
  state.addAttribute("output_types", recurrence.getOutputTypes());
  state.addRegion()->emplaceBlock().addArguments(types, locs);
  step = cast<StepOp>(b.create(state));

  mapping.clear();
  pools.clear();
  buffers.clear();
  unsigned next = 0;
  for (BlockArgument argument : recurrence.getBody().getArguments()) {
    Value mapped = step.getBody().getArgument(next++);
    if (isa<PoolType>(mapped.getType()))
      pools.push_back(mapped);
    else
      mapping.map(argument, mapped);
  }
  while (next < step.getNumArguments() - (verifies || prefills))
    buffers.push_back(step.getBody().getArgument(next++));
  return step;
}

void StepBuilder::finish(Form form) {
  SmallVector<Value> yielded;
  if (form != Form::Fold) {
    for (ValueRange group :
         {recurrence.getYieldedOutputs(), recurrence.getYieldedCarries()})
      for (Value value : group)
        yielded.push_back(demand(value));
  }
  YieldOp::create(b, recurrence.getYield().getLoc(), yielded);
}

//===----------------------------------------------------------------------===//
// Parts of the body
//===----------------------------------------------------------------------===//

Value StepBuilder::demand(Value value) {
  if (Value mapped = mapping.lookupOrNull(value))
    return mapped;
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands())
    demand(operand);
  b.clone(*op, mapping);
  return mapping.lookup(value);
}

void StepBuilder::cloneUpdate(const StateHistory &state) {
  Value next = demand(recurrence.getYieldedStates()[state.index]);
  StoreStateOp::create(b, state.state.getLoc(), next, pools[state.index]);
  if (!buffers.empty())
    ClearOp::create(b, state.state.getLoc(), buffer(state));
}

Value StepBuilder::load(const StateHistory &state) {
  Location loc = state.state.getLoc();
  if (route == Route::KvOnly)
    return ZeroStateOp::create(b, loc, state.state.getType());
  return LoadStateOp::create(b, loc, state.state.getType(), pools[state.index]);
}

Value StepBuilder::decayProduct(const StateHistory &state) {
  StringAttr decay = layouts[state.index].decay;
  if (!decay)
    return {};
  FieldAttr field = cast<BufferType>(buffer(state).getType()).getField(decay);
  return DecayProductOp::create(
      b, DecayOp(state.decayOp).getLoc(),
      RankedTensorType::get(field.getShape(), b.getF32Type()), buffer(state),
      decay);
}

Value StepBuilder::rebuild(const StateHistory &state) {
  Location loc = state.state.getLoc();
  const EntryLayout &layout = layouts[state.index];
  Value result = load(state);
  if (layout.transition)
    return ReplayOp::create(b, loc, result.getType(), result, buffer(state),
                            layout.transition);
  Value gamma = decayProduct(state);
  if (gamma && route != Route::KvOnly)
    result = DecayOp::create(b, loc, result.getType(), result, gamma);
  for (auto [names, write] : llvm::zip(layout.writes, state.writes))
    result = FoldBufferOp::create(
        b, WriteOp(write.op).getLoc(), result.getType(), result, buffer(state),
        names.key, names.keyScale, names.value, names.valueScale, layout.decay);
  return result;
}

void StepBuilder::append(const StateHistory &state) {
  SmallVector<Value> values;
  for (Value source : layouts[state.index].sources)
    values.push_back(demand(source));
  if (!values.empty())
    AppendOp::create(b, state.state.getLoc(), buffer(state), values);
}

//===----------------------------------------------------------------------===//
// Reads by route
//===----------------------------------------------------------------------===//

void StepBuilder::mapReadsInner(const StateHistory &state, bool readsState) {
  if (state.reads.empty())
    return;
  const EntryLayout &layout = layouts[state.index];
  Location loc = ReadOp(state.reads.front()).getLoc();
  SmallVector<Value> queries, totals;
  SmallVector<Type> types;
  for (ReadOp read : state.reads) {
    queries.push_back(demand(read.getQuery()));
    types.push_back(read.getType());
  }
  totals.resize(queries.size());
  auto accumulate = [&](Value &total, Value part, Location at) {
    total = total ? Value(arith::AddFOp::create(b, at, total, part)) : part;
  };

  if (readsState) {
    Value gamma = decayProduct(state);
    bool scalar =
        gamma && cast<RankedTensorType>(gamma.getType()).getRank() == 1;
    Value checkpoint = load(state);
    for (auto [i, read] : llvm::enumerate(state.reads)) {
      Location at = ReadOp(read).getLoc();
      Value query = queries[i];
      if (gamma && !scalar)
        query = multiply(b, at, query, gamma);
      Value part = ReadOp::create(b, at, types[i], checkpoint, query);
      if (scalar)
        part = multiply(b, at, part, gamma);
      accumulate(totals[i], part, at);
    }
  }
  for (auto [names, write] : llvm::zip(layout.writes, state.writes)) {
    auto parts = ReadBufferOp::create(b, loc, types, buffer(state), queries,
                                      names.key, names.keyScale, names.value,
                                      names.valueScale, layout.decay);
    for (auto [i, part] : llvm::enumerate(parts.getResults()))
      accumulate(totals[i], part, loc);
  }
  for (auto [read, total, type] : llvm::zip(state.reads, totals, types)) {
    if (!total) // nothing is ever written
      total = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
    mapping.map(ReadOp(read).getResult(), total);
  }
}

void StepBuilder::mapRootsAdjoint() {
  SmallVector<Value> totals(roots.size());
  for (const StateHistory &state : history.getStates()) {
    SmallVector<Value> queries;
    SmallVector<size_t> owners;
    SmallVector<Type> originTypes, partialTypes;
    Location loc = state.state.getLoc();
    int64_t heads = cast<StateType>(state.state.getType()).getHeads();
    for (auto [i, root] : llvm::enumerate(roots)) {
      if (!root.queries[state.index])
        continue;
      Value query =
          broadcastHeads(b, loc, demand(root.queries[state.index]), heads);
      queries.push_back(query);
      owners.push_back(i);
      originTypes.push_back(query.getType());
      partialTypes.push_back(root.value.getType());
    }
    if (queries.empty())
      continue;
    SmallVector<Value> origins(queries), partials;
    if (!layouts[state.index].fields.empty()) {
      auto transport =
          TransportOp::create(b, loc, originTypes, partialTypes, buffer(state),
                              queries, layouts[state.index].transition);
      origins.assign(transport.getOrigins().begin(),
                     transport.getOrigins().end());
      partials.assign(transport.getPartials().begin(),
                      transport.getPartials().end());
    }
    Value checkpoint = load(state);
    for (auto [i, owner] : llvm::enumerate(owners)) {
      Value part =
          ReadOp::create(b, loc, partialTypes[i], checkpoint, origins[i]);
      if (!partials.empty())
        part = arith::AddFOp::create(b, loc, part, partials[i]);
      Value &total = totals[owner];
      total = total ? Value(arith::AddFOp::create(b, loc, total, part)) : part;
    }
  }
  for (auto [root, total] : llvm::zip(roots, totals)) {
    if (root.remainder) {
      auto type = cast<RankedTensorType>(root.value.getType());
      Value rest = broadcastHeads(b, root.value.getLoc(),
                                  demand(root.remainder), type.getDimSize(0));
      total = total ? Value(arith::AddFOp::create(b, root.value.getLoc(), total,
                                                  rest))
                    : rest;
    }
    mapping.map(root.value, total);
  }
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

StepOp StepBuilder::build(Form form) {
  OpBuilder::InsertionGuard guard(b);
  begin(form);
  b.setInsertionPointToStart(&step.getBody().front());

  if (form == Form::Fold) {
    for (const StateHistory &state : history.getStates()) {
      StoreStateOp::create(b, state.state.getLoc(), rebuild(state),
                           pools[state.index]);
      ClearOp::create(b, state.state.getLoc(), buffer(state));
    }
    finish(form);
    return step;
  }

  // Tokens that wait for one another find no entries: those that a slot holds
  // have been folded before.
  Route by = form == Form::PrefillScan ? Route::Recurrent : route;
  bool folds = form == Form::DecodeFold || by == Route::Recurrent;
  switch (by) {
  case Route::Recurrent:
    for (const StateHistory &state : history.getStates())
      mapping.map(state.state, load(state));
    break;
  case Route::Outer:
    for (const StateHistory &state : history.getStates())
      mapping.map(state.state, rebuild(state));
    break;
  case Route::Inner:
  case Route::KvOnly:
    for (const StateHistory &state : history.getStates()) {
      mapReadsInner(state, /*readsState=*/by == Route::Inner);
      if (folds)
        mapping.map(state.state, rebuild(state));
    }
    break;
  case Route::Adjoint:
    if (folds)
      for (const StateHistory &state : history.getStates())
        mapping.map(state.state, rebuild(state));
    else
      mapRootsAdjoint();
    break;
  }
  // What the token answers is read before its update is stored.
  for (ValueRange group :
       {recurrence.getYieldedOutputs(), recurrence.getYieldedCarries()})
    for (Value value : group)
      demand(value);
  for (const StateHistory &state : history.getStates()) {
    if (folds)
      cloneUpdate(state);
    else
      append(state);
  }
  finish(form);
  return step;
}
