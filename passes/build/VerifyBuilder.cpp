//===- VerifyBuilder.cpp - several tokens of a row at once ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/build/VerifyBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

/// Builds a `ladle.each_draft`, whose stacks become known as its body takes
/// them.
class VerifyBuilder::Region {
public:
  Region(VerifyBuilder &builder, Location loc, ValueRange carries = {})
      : builder(builder), b(builder.b), guard(b), loc(loc), carries(carries) {
    mlir::Block &block = body.emplaceBlock();
    for (Value carry : carries)
      block.addArgument(carry.getType(), carry.getLoc());
    b.setInsertionPointToStart(&block);
    builder.mapping.clear();
    for (BlockArgument argument : builder.recurrence.getBody().getArguments()) {
      unsigned index = argument.getArgNumber();
      ArgumentKind kind = builder.recurrence.getArgumentKind(index);
      if (kind == ArgumentKind::Param || kind == ArgumentKind::Token)
        builder.mapping.map(argument,
                            builder.step.getBody().getArgument(index));
    }
    for (auto [carry, argument] :
         llvm::zip(builder.recurrence.getArgumentsOfKind(ArgumentKind::Carry),
                   block.getArguments()))
      builder.mapping.map(carry, argument);
  }

  /// The part of the draft.
  Value slice(Value stack) {
    BlockArgument &argument = slices[stack];
    if (!argument) {
      argument = body.front().insertArgument(
          stacks.size(), unstackType(typeOf(stack)), stack.getLoc());
      stacks.push_back(stack);
    }
    return argument;
  }

  SmallVector<Value> finish(ValueRange yielded) {
    YieldDraftOp::create(b, loc, yielded);
    SmallVector<Type> types;
    for (Value value : yielded)
      types.push_back(builder.stacked(value.getType()));
    b.setInsertionPointToEnd(&builder.step.getBody().front());
    auto op =
        EachDraftOp::create(b, loc, types, builder.drafts, stacks, carries);
    op.getBody().takeBody(body);
    return llvm::to_vector_of<Value>(op.getResults());
  }

private:
  VerifyBuilder &builder;
  OpBuilder &b;
  OpBuilder::InsertionGuard guard;
  Location loc;
  SmallVector<Value> carries, stacks;
  llvm::DenseMap<Value, BlockArgument> slices;
  mlir::Region body;
};

Location VerifyBuilder::locOf(const StateHistory &state) const {
  return state.state.getLoc();
}

RankedTensorType VerifyBuilder::stacked(Type type) const {
  return stackType(cast<RankedTensorType>(type), most);
}

Value VerifyBuilder::stack(Value value) const {
  return value ? stacks.lookup(value) : Value();
}

//===----------------------------------------------------------------------===//
// The side of the tokens
//===----------------------------------------------------------------------===//

void VerifyBuilder::collectWrites() {
  writes.clear();
  unknowns.clear();
  for (const StateHistory &state : history.getStates())
    for (const StateWrite &write : state.writes) {
      size_t index = writes.size();
      ArrayRef<AffineRoot> roots = found.writes[index];
      writes.push_back({&state, &write, roots});
      if (roots.empty())
        unknowns.push_back({index, nullptr});
      for (const AffineRoot &root : roots)
        unknowns.push_back({index, &root});
    }
}

/// The token-only values that the outputs take besides what is read, and the
/// values of writes.
void VerifyBuilder::collectFrontier() {
  takenWrites.clear();
  llvm::SetVector<Value> reached;
  SmallVector<Value> open(recurrence.getYieldedOutputs());
  auto isRoot = [&](Value value) {
    return llvm::any_of(found.outputs, [&](const AffineRoot &root) {
      return root.value == value;
    });
  };
  auto isPlain = [](Value value) {
    auto extend = value.getDefiningOp<arith::ExtFOp>();
    Value source = extend ? extend.getIn() : value;
    auto argument = dyn_cast<BlockArgument>(source);
    bool isCarry =
        argument && cast<RecurrenceOp>(argument.getOwner()->getParentOp())
                            .getArgumentKind(argument.getArgNumber()) ==
                        ArgumentKind::Carry;
    return (argument && !isCarry) || value.getDefiningOp<arith::ConstantOp>();
  };
  llvm::DenseSet<Value> seen;
  while (!open.empty()) {
    Value value = open.pop_back_val();
    if (!seen.insert(value).second || isRoot(value) || isPlain(value))
      continue;
    if (found.solved.contains(value)) {
      takenWrites.insert(value);
      continue;
    }
    if (history.getClass(value) == OperandClass::TokenOnly) {
      reached.insert(value);
      continue;
    }
    llvm::append_range(open, value.getDefiningOp()->getOperands());
  }
  frontier.assign(reached.begin(), reached.end());
}

/// Computes all that does not depend on a state, and the carries.
void VerifyBuilder::buildTokens() {
  stacks.clear();
  auto ask = [&](Value value) {
    if (value)
      stacks.insert({value, Value()});
  };
  auto askRoot = [&](const AffineRoot &root) {
    ask(root.scale);
    ask(root.remainder);
    for (Value query : root.queries)
      ask(query);
  };
  for (const StateHistory &state : history.getStates()) {
    ask(state.decay);
    if (prefillsState && !keepsEntries)
      continue;
    for (Value source : layouts[state.index].sources)
      if (history.getClass(source) == OperandClass::TokenOnly)
        ask(source);
  }
  for (const Write &write : writes) {
    ask(write.write->key);
    for (const AffineRoot &root : write.roots)
      askRoot(root);
    if (write.roots.empty())
      ask(write.write->value);
  }
  for (const AffineRoot &root : found.outputs)
    askRoot(root);
  for (Value value : frontier)
    ask(value);

  SmallVector<Value> carries;
  for (BlockArgument argument : step.getArgumentsOfKind(ArgumentKind::Carry))
    carries.push_back(argument);
  Region region(*this, recurrence.getLoc(), carries);
  SmallVector<Value> yielded;
  for (auto &[value, result] : stacks)
    yielded.push_back(demand(value));
  for (Value carry : recurrence.getYieldedCarries())
    yielded.push_back(demand(carry));
  SmallVector<Value> results = region.finish(yielded);
  for (auto [entry, result] : llvm::zip(stacks, results))
    entry.second = result;
  nextCarries.assign(results.begin() + stacks.size(), results.end());

  paths.clear();
  for (const StateHistory &state : history.getStates())
    paths.push_back(state.decay ? PathDecayOp::create(b, locOf(state), drafts,
                                                      stack(state.decay))
                                      .getResult()
                                : Value());
}

//===----------------------------------------------------------------------===//
// Sums along paths
//===----------------------------------------------------------------------===//

SmallVector<Value> VerifyBuilder::scale(const StateHistory &state,
                                        ArrayRef<Value> vectors, Value path,
                                        Value gamma) {
  if (!path && !gamma)
    return SmallVector<Value>(vectors);
  Location loc = locOf(state);
  Region region(*this, loc);
  SmallVector<Value> results;
  for (Value vector : vectors) {
    Value result = region.slice(vector);
    if (path)
      result = multiply(b, loc, result, region.slice(path));
    if (gamma)
      result = multiply(b, loc, result, gamma);
    results.push_back(result);
  }
  return region.finish(results);
}

Value VerifyBuilder::sum(ArrayRef<Value> parts, RankedTensorType type,
                         Location loc, ArrayRef<Value> scales, Value factor,
                         Value rest) {
  if (parts.size() == 1 && parts.front().getType() == stacked(type) &&
      (scales.empty() || !scales.front()) && !factor && !rest)
    return parts.front();
  Region region(*this, loc);
  Value total;
  for (auto [i, part] : llvm::enumerate(parts)) {
    Value next = region.slice(part);
    if (i < scales.size() && scales[i])
      next = multiply(b, loc, next, region.slice(scales[i]));
    next = broadcastHeads(b, loc, next, type.getDimSize(0));
    total = total ? Value(arith::AddFOp::create(b, loc, total, next)) : next;
  }
  if (factor)
    total = multiply(b, loc, total, region.slice(factor));
  if (rest)
    total = arith::AddFOp::create(
        b, loc, total,
        broadcastHeads(b, loc, region.slice(rest), type.getDimSize(0)));
  return region.finish(total).front();
}

//===----------------------------------------------------------------------===//
// Reads
//===----------------------------------------------------------------------===//

SmallVector<SmallVector<Value>>
VerifyBuilder::readHistory(const StateHistory &state, ArrayRef<Value> queries,
                           ArrayRef<Value> scaled, ArrayRef<Type> types) {
  Location loc = locOf(state);
  SmallVector<SmallVector<Value>> parts(queries.size());
  auto add = [&](size_t i, Value part) { parts[i].push_back(part); };
  if (prefillsState) {
    Value &checkpoint = checkpoints[state.index];
    if (!checkpoint)
      checkpoint = keepsEntries ? rebuild(state) : load(state);
    for (auto [i, query] : llvm::enumerate(queries))
      add(i, ReadOp::create(b, loc, types[i], checkpoint, query));
    return parts;
  }
  if (!folds && route == Route::Adjoint) {
    SmallVector<Type> originTypes(ValueRange(queries).getTypes());
    auto transport =
        TransportOp::create(b, loc, originTypes, types, buffer(state), queries,
                            layouts[state.index].transition);
    Value checkpoint = load(state);
    for (auto [i, origin] : llvm::enumerate(transport.getOrigins())) {
      add(i, ReadOp::create(b, loc, types[i], checkpoint, origin));
      add(i, transport.getPartials()[i]);
    }
    return parts;
  }
  bool rebuilds = folds || route == Route::Outer;
  if (rebuilds || route == Route::Inner) {
    Value &checkpoint = checkpoints[state.index];
    if (!checkpoint)
      checkpoint = rebuilds ? rebuild(state) : load(state);
    // What drafts read is what the pool holds from then on.
    if (folds && !isa<LoadStateOp>(checkpoint.getDefiningOp())) {
      StoreStateOp::create(b, loc, checkpoint, pools[state.index]);
      checkpoint =
          LoadStateOp::create(b, loc, checkpoint.getType(), pools[state.index]);
    }
    for (auto [i, query] : llvm::enumerate(scaled))
      add(i, ReadOp::create(b, loc, types[i], checkpoint, query));
  }
  if (rebuilds)
    return parts;
  for (auto [names, write] :
       llvm::zip(layouts[state.index].writes, state.writes)) {
    auto reads = ReadBufferOp::create(
        b, loc, types, buffer(state), queries, names.key, names.keyScale,
        names.value, names.valueScale, layouts[state.index].decay);
    for (auto [i, part] : llvm::enumerate(reads.getResults()))
      add(i, part);
  }
  return parts;
}

void VerifyBuilder::answer() {
  SmallVector<const AffineRoot *> all;
  for (const Unknown &unknown : unknowns)
    if (unknown.root)
      all.push_back(unknown.root);
  size_t readUnknowns = all.size();
  for (const AffineRoot &root : found.outputs)
    all.push_back(&root);

  SmallVector<SmallVector<Value>> parts(all.size()), scales(all.size());
  for (const StateHistory &state : history.getStates()) {
    SmallVector<Value> vectors;
    SmallVector<size_t> owners;
    SmallVector<Type> types;
    // A chunk is long: a number a token is cheaper to multiply with the answer,
    // which is added to others anyway, than with the query.
    Value path = paths[state.index], late;
    if (prefillsState && path && typeOf(path).getRank() == 2)
      late = path;
    for (auto [i, root] : llvm::enumerate(all))
      if (Value query = stack(root->queries[state.index])) {
        vectors.push_back(query);
        owners.push_back(i);
        types.push_back(stacked(root->value.getType()));
      }
    if (vectors.empty())
      continue;
    SmallVector<Value> queries = late ? vectors : scale(state, vectors, path);
    SmallVector<Value> scaled = queries;
    if (!folds && !prefillsState && route == Route::Inner)
      if (Value gamma = decayProduct(state)) {
        // A path of numbers is left to what is read; vectors meet it once.
        bool hasVectors = path && typeOf(path).getRank() > 2;
        scaled = hasVectors ? scale(state, queries, {}, gamma)
                            : scale(state, vectors, path, gamma);
      }
    for (auto [owner, list] :
         llvm::zip(owners, readHistory(state, queries, scaled, types))) {
      llvm::append_range(parts[owner], list);
      scales[owner].append(list.size(), late);
    }
  }
  SmallVector<Value> rhs;
  size_t next = 0;
  for (auto [write, root] : unknowns) {
    if (!root) {
      rhs.push_back(stack(writes[write].write->value));
      continue;
    }
    rhs.push_back(sum(parts[next], typeOf(root->value), root->value.getLoc(),
                      scales[next], stack(root->scale),
                      stack(root->remainder)));
    ++next;
  }
  written = solve(rhs);
  for (auto [i, root] : llvm::enumerate(found.outputs)) {
    SmallVector<Value> &list = parts[readUnknowns + i];
    if (Value rest = stack(root.remainder))
      list.push_back(rest);
    if (Value inside = product(root, written, root.value.getType()))
      list.push_back(inside);
    answers.push_back(sum(list, typeOf(root.value), root.value.getLoc(),
                          scales[readUnknowns + i]));
  }
}

void VerifyBuilder::answerAdjoint() {
  // A value is one read here, as no number of a channel is in it.
  assert(unknowns.size() == writes.size());
  // What the writes of the drafts add by themselves, as if S were zero.
  SmallVector<Value> rhs;
  for (const Write &write : writes) {
    Value value = stack(write.roots.empty() ? write.write->value
                                            : write.roots.front().remainder);
    if (!value || typeOf(value) != stacked(write.write->value.getType())) {
      Location loc = write.write->value.getLoc();
      RankedTensorType type = typeOf(write.write->value);
      Region region(*this, loc);
      Value one =
          value
              ? broadcastHeads(b, loc, region.slice(value), type.getDimSize(0))
              : Value(arith::ConstantOp::create(b, loc, b.getZeroAttr(type)));
      value = region.finish(one).front();
    }
    rhs.push_back(value);
  }
  SmallVector<Value> alone = solve(rhs);
  SmallVector<SmallVector<Value>> parts(found.outputs.size());
  for (auto [root, list] : llvm::zip(found.outputs, parts)) {
    if (Value rest = stack(root.remainder))
      list.push_back(rest);
    if (Value inside = product(root, alone, root.value.getType()))
      list.push_back(inside);
  }
  // What they take from S, as vectors to read it with.
  for (const StateHistory &state : history.getStates()) {
    Location loc = locOf(state);
    int64_t heads = cast<StateType>(state.state.getType()).getHeads();
    auto withHeads = [&](Value vector) {
      RankedTensorType type = unstackType(typeOf(vector));
      SmallVector<int64_t> shape(type.getShape());
      shape.front() = heads;
      return sum(vector, RankedTensorType::get(shape, b.getF32Type()), loc);
    };
    SmallVector<Value> taken(writes.size());
    for (auto [write, vector] : llvm::zip(writes, taken))
      if (!write.roots.empty() && write.state == &state)
        vector = withHeads(
            scale(state, stack(write.roots.front().queries[state.index]),
                  paths[state.index])
                .front());
    taken = solve(taken);
    SmallVector<Value> queries;
    SmallVector<Type> types;
    SmallVector<size_t> owners;
    for (auto [i, root] : llvm::enumerate(found.outputs)) {
      Value query = stack(root.queries[state.index]);
      if (!query)
        continue;
      Value own = withHeads(scale(state, query, paths[state.index]).front());
      RankedTensorType type = unstackType(typeOf(own));
      SmallVector<Value> terms{own};
      if (Value inside = product(root, taken, type))
        terms.push_back(inside);
      queries.push_back(sum(terms, type, loc));
      types.push_back(stacked(root.value.getType()));
      owners.push_back(i);
    }
    if (queries.empty())
      continue;
    for (auto [owner, list] :
         llvm::zip(owners, readHistory(state, queries, queries, types)))
      llvm::append_range(parts[owner], list);
  }
  for (auto [root, list] : llvm::zip(found.outputs, parts))
    answers.push_back(sum(list, typeOf(root.value), root.value.getLoc()));
}

//===----------------------------------------------------------------------===//
// The step
//===----------------------------------------------------------------------===//

void VerifyBuilder::buildFields() {
  for (const StateHistory &state : history.getStates()) {
    SmallVector<Value> values;
    for (Value source : layouts[state.index].sources) {
      Value value = stack(source);
      for (auto [i, write] : llvm::enumerate(writes))
        if (!value && write.write->value == source)
          value = written[i];
      // A kernel that goes through a chunk takes what each token has.
      if (keepsEntries && !value.getDefiningOp<EachDraftOp>()) {
        Region region(*this, value.getLoc());
        value = region.finish(region.slice(value)).front();
      }
      values.push_back(value);
    }
    if (!values.empty())
      AppendDraftsOp::create(b, locOf(state), buffer(state), drafts, values);
  }
}

/// The state after the chunk.
void VerifyBuilder::foldChunk() {
  for (const StateHistory &state : history.getStates()) {
    Value before = checkpoints[state.index];
    if (!before) // no token reads it
      before = keepsEntries ? rebuild(state) : load(state);
    SmallVector<Value> keys, values;
    for (auto [write, value] : llvm::zip(writes, written)) {
      if (write.state != &state)
        continue;
      keys.push_back(stack(write.write->key));
      values.push_back(value);
    }
    Value after =
        FoldDraftsOp::create(b, locOf(state), before.getType(), before, drafts,
                             keys, values, stack(state.decay));
    StoreStateOp::create(b, locOf(state), after, pools[state.index]);
  }
}

StepOp VerifyBuilder::build(Form form) {
  OpBuilder::InsertionGuard guard(b);
  begin(form);
  b.setInsertionPointToStart(&step.getBody().front());
  folds = form == Form::VerifyFold;
  keepsEntries =
      form == Form::PrefillEntries &&
      (route == Route::KvOnly ? options.carriesState : options.foldsByChunk);
  prefillsState = form == Form::PrefillFold || keepsEntries;
  drafts = step.getDrafts();
  most = cast<DraftsType>(drafts.getType()).getMost();
  checkpoints.assign(history.getStates().size(), Value());
  written.clear();
  answers.clear();
  collectWrites();
  collectFrontier();
  buildTokens();
  // A chunk that is folded needs the values that it writes.
  if (route == Route::Adjoint && !prefillsState)
    answerAdjoint();
  else
    answer();

  Location loc = recurrence.getYield().getLoc();
  SmallVector<Value> yielded;
  {
    Region region(*this, loc);
    for (auto [root, value] : llvm::zip(found.outputs, answers))
      mapping.map(root.value, region.slice(value));
    for (auto [write, value] : llvm::zip(writes, written))
      if (takenWrites.contains(write.write->value))
        mapping.map(write.write->value, region.slice(value));
    for (Value value : frontier)
      mapping.map(value, region.slice(stack(value)));
    SmallVector<Value> outputs;
    for (Value output : recurrence.getYieldedOutputs())
      outputs.push_back(demand(output));
    yielded = region.finish(outputs);
  }
  if (folds)
    for (const StateHistory &state : history.getStates()) {
      if (!checkpoints[state.index]) // no draft reads it
        StoreStateOp::create(b, locOf(state), rebuild(state),
                             pools[state.index]);
      ClearOp::create(b, locOf(state), buffer(state));
    }
  if (prefillsState)
    foldChunk();
  if (!prefillsState || keepsEntries)
    buildFields();
  llvm::append_range(yielded, nextCarries);
  YieldOp::create(b, loc, yielded);
  return step;
}
