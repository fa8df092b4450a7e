//===- VerifyPaths.cpp - what drafts take from their ancestors ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/build/VerifyBuilder.h"
#include <numeric>

using namespace mlir;
using namespace ladle;

static RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

static int64_t rankOfStack(RankedTensorType type) {
  return type.getRank() == 4 ? type.getDimSize(2) : 1;
}

Value VerifyBuilder::gram(const StateHistory &state, Value queries,
                          Value keys) {
  Value decays = stack(state.decay);
  int64_t heads =
      std::lcm(typeOf(queries).getDimSize(0), typeOf(keys).getDimSize(0));
  if (decays)
    heads = std::lcm(heads, typeOf(decays).getDimSize(0));
  auto type = RankedTensorType::get({heads, most, rankOfStack(typeOf(queries)),
                                     most, rankOfStack(typeOf(keys))},
                                    b.getF32Type());
  return PathGramOp::create(b, locOf(state), type, drafts, queries, keys,
                            decays);
}

Value VerifyBuilder::product(const AffineRoot &root, ArrayRef<Value> values,
                             Type type) {
  SmallVector<Value> grams, weighed;
  for (auto [write, value] : llvm::zip(writes, values)) {
    Value queries = stack(root.queries[write.state->index]);
    if (!queries || !value)
      continue;
    grams.push_back(gram(*write.state, queries, stack(write.write->key)));
    weighed.push_back(value);
  }
  if (grams.empty())
    return {};
  return PathProductOp::create(b, root.value.getLoc(), stacked(type), drafts,
                               grams, weighed);
}

SmallVector<Value> VerifyBuilder::solve(ArrayRef<Value> rhs) {
  SmallVector<Value> grams, sides, factors;
  SmallVector<int64_t> rows, columns, places, scaled;
  for (Value side : rhs) {
    places.push_back(sides.size());
    if (side)
      sides.push_back(side);
  }
  SmallVector<Type> types(ValueRange(sides).getTypes());
  Location loc = recurrence.getLoc();
  for (auto [i, unknown] : llvm::enumerate(unknowns)) {
    if (!unknown.root || !rhs[i])
      continue;
    loc = WriteOp(writes[unknown.write].write->op).getLoc();
    size_t before = grams.size(), last = 0;
    Value products;
    for (auto [j, other] : llvm::enumerate(unknowns)) {
      const Write &write = writes[other.write];
      Value queries = stack(unknown.root->queries[write.state->index]);
      if (!queries || !rhs[j])
        continue;
      // The parts of a value meet the same key.
      if (!products || last != other.write)
        products = gram(*write.state, queries, stack(write.write->key));
      last = other.write;
      grams.push_back(products);
      rows.push_back(places[i]);
      columns.push_back(places[j]);
    }
    if (Value factor = stack(unknown.root->scale);
        factor && grams.size() > before) {
      factors.push_back(factor);
      scaled.push_back(places[i]);
    }
  }
  SmallVector<Value> solved;
  if (!grams.empty()) {
    auto op = PathSolveOp::create(b, loc, types, drafts, sides, grams, factors,
                                  rows, columns, scaled);
    solved.assign(op.result_begin(), op.result_end());
  }
  SmallVector<SmallVector<Value>> parts(writes.size());
  for (auto [i, unknown] : llvm::enumerate(unknowns))
    if (rhs[i])
      parts[unknown.write].push_back(
          unknown.root && !solved.empty() ? solved[places[i]] : rhs[i]);
  SmallVector<Value> results;
  for (auto [write, list] : llvm::zip(writes, parts)) {
    Value value = list.empty() ? Value() : list.front();
    if (list.size() > 1)
      value = sum(list, typeOf(write.write->value), write.write->op->getLoc());
    results.push_back(value);
  }
  return results;
}
