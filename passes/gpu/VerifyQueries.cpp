//===- VerifyQueries.cpp - what states and entries are read with ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Vectors that are sums of tokens, each times a number, are multiplied as they
// came; what comes out is multiplied with the numbers here.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/VerifyKernel.h"

using namespace mlir;
using namespace ladle;

/// The longer side of a product of tiles.
static constexpr int64_t kLong = 16;
/// Of which a row is a multiple where tensor cores multiply.
static constexpr int64_t kSlab = 16;

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

/// What a vector is the sum of.
SmallVector<GpuVerifyKernel::Term, 2> GpuVerifyKernel::termsOf(Value vector) {
  auto found = terms.find(canonical(vector));
  if (found == terms.end())
    return {{teamOf(vector), {}}};
  SmallVector<Term, 2> result;
  for (const ChunkTerm &term : found->second)
    result.push_back(
        {{tokens, tokenRows.lookup(canonical(term.base)), 1, keySize},
         term.scale});
  return result;
}

/// The stack of vectors that a query is, but for its factors.
Value GpuVerifyKernel::vectorOf(Value query) const {
  auto found = scaled.find(canonical(query));
  return found == scaled.end() ? query : found->second.stack;
}

GpuVerifyKernel::Query GpuVerifyKernel::queryOf(Value query, Value result) {
  Query made{result, termsOf(vectorOf(query)), {}};
  if (auto found = scaled.find(canonical(query)); found != scaled.end())
    made.factors = found->second.factors;
  return made;
}

/// The stacks that queries are made of, each once, as they lie.
SmallVector<GpuVerifyKernel::Stack>
GpuVerifyKernel::stacksOf(ArrayRef<Query> queries) {
  SmallVector<Stack> stacks;
  for (const Query &query : queries)
    for (const Term &term : query.terms)
      if (llvm::none_of(stacks, [&](const Stack &stack) {
            return stack.first == term.stack.first;
          }))
        stacks.push_back(term.stack);
  llvm::sort(stacks, [](const Stack &lhs, const Stack &rhs) {
    return lhs.first < rhs.first;
  });
  return stacks;
}

int64_t GpuVerifyKernel::countVectors(ArrayRef<Stack> stacks) const {
  int64_t count = 0;
  for (const Stack &stack : stacks)
    count += drafts * stack.components;
  return count;
}

/// The row of the vectors' memory that a column of a product is for. A tile of
/// columns may be wider than there are vectors.
Value GpuVerifyKernel::vectorRow(Value column, ArrayRef<Stack> stacks) {
  Value row;
  int64_t begin = 0, shift = 0;
  for (const Stack &stack : stacks) {
    int64_t mine = stack.first - begin;
    if (!row) {
      row = add(column, mine);
    } else if (mine != shift) {
      Value isMine = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, column,
                                           constantIndex(begin));
      row = arith::SelectOp::create(b, isMine, add(column, mine), row);
    }
    shift = mine;
    begin += most() * stack.components;
  }
  int64_t count =
      cast<MemRefType>(stacks.front().memory.getType()).getDimSize(0);
  if (begin % kLong != 0 && keySize % kSlab == 0)
    row = arith::MinSIOp::create(b, row, constantIndex(count - 1));
  return row;
}

/// What a factor of all drafts, or of each, is for one of them.
Value GpuVerifyKernel::numberOf(Value factor, int64_t draft) {
  if (factor.getDefiningOp<DecayProductOp>())
    return get(factor, Place())->front();
  return loadStack(teamOf(factor), constantIndex(draft), Place()).front();
}

GpuKernel::Components GpuVerifyKernel::columnsOf(const Read &read,
                                                 const Stack &wanted) const {
  ArrayRef<Value> rest = read.components;
  for (const Stack &stack : read.stacks) {
    int64_t count = drafts * stack.components;
    if (stack.first == wanted.first)
      return Components(rest.take_front(count));
    rest = rest.drop_front(count);
  }
  llvm_unreachable("a stack that was not read");
}

/// What was read with one query: the sum of its terms, times the numbers that
/// the vectors were not multiplied by.
GpuKernel::Components GpuVerifyKernel::scaleRead(const Read &read,
                                                 const Query &query) {
  int64_t each = query.terms.front().stack.components;
  Components mine(most() * each);
  for (const Term &term : query.terms)
    for (auto [i, column] : llvm::enumerate(columnsOf(read, term.stack))) {
      Value part = column;
      if (term.scale)
        part = arith::MulFOp::create(
            b, part, numberOf(term.scale, static_cast<int64_t>(i) / each));
      mine[i] = mine[i] ? Value(arith::AddFOp::create(b, mine[i], part)) : part;
    }
  for (Value factor : query.factors)
    for (int64_t draft = 0; draft < most(); ++draft) {
      Value number = numberOf(factor, draft);
      for (int64_t i = 0; i < each; ++i) {
        Value &part = mine[draft * each + i];
        part = arith::MulFOp::create(b, part, number);
      }
    }
  return mine;
}

/// What was read of a state, and what entries add. Where both were read with
/// the same vectors, but for numbers that all drafts have in common, they are
/// added before anything is multiplied. Null if nothing is added.
std::optional<GpuKernel::Components>
GpuVerifyKernel::addPair(const Read &read, const Query &query) {
  Value pair = pairs.lookup(query.result);
  if (!pair ||
      (!unscaledReads.contains(pair) &&
       failed(emitStackEntries(cast<ReadBufferOp>(pair.getDefiningOp())))))
    return std::nullopt;
  auto found = unscaledReads.find(pair);
  const Read &entries = found->second;
  const Query &other = *llvm::find_if(
      entries.queries, [&](const Query &each) { return each.result == pair; });
  SmallVector<Value> ofDrafts, ofAll;
  for (Value factor : query.factors)
    (factor.getDefiningOp<DecayProductOp>() ? ofAll : ofDrafts)
        .push_back(factor);
  bool isSame =
      ofDrafts == other.factors && query.terms.size() == other.terms.size();
  for (auto [mine, theirs] : llvm::zip(query.terms, other.terms))
    isSame &= mine.stack.first == theirs.stack.first &&
              mine.stack.components == theirs.stack.components &&
              mine.scale == theirs.scale;
  if (!isSame) {
    Components sum = scaleRead(read, query);
    for (auto [mine, theirs] : llvm::zip(sum, scaleRead(entries, other)))
      mine = arith::AddFOp::create(b, mine, theirs);
    return sum;
  }
  Read both{{}, read.stacks, read.components};
  for (const Term &term : query.terms) {
    int64_t begin = 0;
    for (const Stack &stack : read.stacks) {
      if (stack.first == term.stack.first)
        break;
      begin += drafts * stack.components;
    }
    for (auto [i, theirs] : llvm::enumerate(columnsOf(entries, term.stack))) {
      Value sum = read.components[begin + static_cast<int64_t>(i)];
      for (Value factor : ofAll)
        sum = arith::MulFOp::create(b, sum, numberOf(factor, 0));
      both.components[begin + static_cast<int64_t>(i)] =
          arith::AddFOp::create(b, sum, theirs);
    }
  }
  return scaleRead(both, other);
}

void GpuVerifyKernel::keepRead(const Read &read) {
  for (const Query &query : read.queries) {
    if (llvm::is_contained(llvm::make_second_range(pairs), query.result)) {
      unscaledReads[query.result] = read;
      continue;
    }
    std::optional<Components> sum = addPair(read, query);
    rowStacks[canonical(query.result)] = sum ? *sum : scaleRead(read, query);
  }
}
