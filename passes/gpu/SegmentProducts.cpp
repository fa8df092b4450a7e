//===- SegmentProducts.cpp - memories and matrices times queries ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Queries are the 16 rows of a product. Numbers of f32 are split into three of
// bf16, which has their range; with two, an answer is off by 1e-5. What a
// product leaves a lane is what the next one takes of it: columns 2 t and 2 t +
// 1 of two fragments are its terms 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.

#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/SegmentPrompts.h"

using namespace mlir;
using namespace ladle;

static constexpr int64_t kColumns = 8;
/// Elements of a query that a lane loads at once, for two products.
static constexpr int64_t kQueryPart = 8;
/// Elements of a row of a memory that it has at once, for want of registers;
/// what follows a barrier is not loaded before it.
static constexpr int64_t kColumnsAtOnce = 4;

GpuAttention::Values GpuSegmentPrompts::split(Value vector) {
  constexpr int64_t terms = 3;
  auto width = cast<VectorType>(vector.getType()).getDimSize(0);
  auto type = VectorType::get({width}, b.getBF16Type());
  Values all;
  for (int64_t i = 0; i < terms; ++i) {
    all.push_back(arith::TruncFOp::create(b, type, vector));
    if (i + 1 < terms)
      vector = arith::SubFOp::create(b, vector, widen(all.back()));
  }
  return all;
}

/// The value of a number that is known when the kernel runs.
Value GpuSegmentPrompts::oneOf(ArrayRef<Value> choices, Value which) {
  if (choices.size() == 1)
    return choices[0];
  Values rest;
  Value isOdd = notLess(rem(which, 2), index(1));
  for (size_t i = 0; i < choices.size(); i += 2)
    rest.push_back(select(isOdd, choices[i + 1], choices[i]));
  return oneOf(rest, div(which, 2));
}

/// The products of the least terms first; those that are less are left out.
Value GpuSegmentPrompts::multiply(ArrayRef<Value> lhs, ArrayRef<Value> rhs,
                                  Value sum) {
  for (size_t order = lhs.size(); order-- > 0;)
    for (size_t i = 0; i <= order; ++i)
      sum = multiplyTiles(lhs[i], rhs[order - i], sum);
  return sum;
}

/// Of fragments: two columns of query g, then of query g + 8.
GpuAttention::Values GpuSegmentPrompts::columnsOf(ArrayRef<Value> fragments) {
  Values columns;
  for (int64_t i = 0; i < 4; ++i) {
    Values elements;
    for (Value fragment : fragments)
      elements.push_back(extract(fragment, i));
    columns.push_back(fromElements(elements));
  }
  return columns;
}

//===----------------------------------------------------------------------===//
// Memories
//===----------------------------------------------------------------------===//

/// Of the queries that see as many segments: their divisors, and a block of
/// features times the memory's rows.
GpuAttention::Values GpuSegmentPrompts::recallFrom(const Memory &memory,
                                                   RecallOp op, int64_t block,
                                                   ValueRange before) {
  int64_t part = valuePart();
  return loop(
      index(0), index(keySize), index(4 * kQueryPart), before,
      [&](Value from, ValueRange carried) -> Values {
        Values after(carried);
        Value element = add(from, mul(lanePart, kQueryPart));
        Value row = add(memory.row, element), features[2];
        Value divisors = loadVector(memory.sums, row, kQueryPart);
        for (int64_t i = 0; i < 2; ++i) {
          Value its =
              vectorAt(op.getQuery(), Site{i, 0, 0, kQueryPart, element});
          Value sees = equal(foldsOf(i), memory.folds);
          features[i] = select(sees, its, splat(number(0), kQueryPart));
          after[i] = vector::ReductionOp::create(b, vector::CombiningKind::ADD,
                                                 product(features[i], divisors),
                                                 after[i]);
        }
        auto addTerms = [&](Value half, ValueRange sums) -> Values {
          warpBarrier();
          Values terms, with(sums);
          for (int64_t at : {0, 1, 8, 9, 2, 3, 10, 11}) {
            Value feature = features[at / kQueryPart];
            terms.push_back(oneOf({extract(feature, at % kQueryPart),
                                   extract(feature, at % kQueryPart + 4)},
                                  half));
          }
          Values lhs = split(fromElements(terms));
          Value firstRow = add(row, mul(half, 4));
          int64_t width = std::min(part, kColumnsAtOnce);
          for (int64_t j = 0; j < part; j += width) {
            if (j > 0)
              warpBarrier();
            Value column = add(mul(laneRow, part), block * kColumns * part + j);
            Value loaded[4];
            for (int64_t i = 0; i < 4; ++i)
              loaded[i] =
                  widened(memory.matrix, {add(firstRow, i), column}, width);
            for (int64_t at = 0; at < width; ++at) {
              Values its;
              for (Value each : loaded)
                its.push_back(extract(each, at));
              Value &sum = with[j + at];
              sum = multiply(lhs, split(fromElements(its)), sum);
            }
          }
          return with;
        };
        Values sums(ArrayRef(after).drop_front(2));
        sums = loop(index(0), index(2), index(1), sums, addTerms);
        llvm::copy(sums, after.begin() + 2);
        return after;
      });
}

/// The memories that the queries of a warp see, one after another: those before
/// the last are what `_scan` has left, and the last one is the pool's.
GpuAttention::Values GpuSegmentPrompts::recall(RecallOp op, int64_t block) {
  int64_t part = valuePart();
  Type f32 = b.getF32Type();
  auto fragment = VectorType::get({4}, f32);
  Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(fragment));
  Values sums{number(0), number(0)};
  sums.append(static_cast<size_t>(part), zeros);
  if (isRemembered) {
    Value first = firstMemory(), last = warpFolds[1];
    sums =
        loop(maximum(warpFolds[0], index(1)), minimum(add(last, 1), nextFolds),
             index(1), sums, [&](Value folded, ValueRange before) -> Values {
               Value which = add(first, mul(sub(folded, folds), cacheHeads));
               return recallFrom({array("segment_memory", f32, valueSize),
                                  array("segment_keys", f32),
                                  mul(which, keySize), folded},
                                 op, block, before);
             });
    sums = ifElse(
        equal(last, nextFolds),
        [&] {
          return recallFrom(
              {array("memory", memory.getElementType(), valueSize),
               array("memory_keys", f32), mul(cursorRow, keySize), nextFolds},
              op, block, sums);
        },
        [&] { return sums; });
  }
  Value inverses[2];
  for (int64_t i = 0; i < 2; ++i) {
    Value all = sums[i];
    for (int64_t mask = 1; mask < 4; mask *= 2)
      all = sum(all, exchange(all, mask));
    Value isEmpty =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, all, number(0));
    inverses[i] =
        arith::DivFOp::create(b, number(1), select(isEmpty, number(1), all));
  }
  Values columns = columnsOf(ArrayRef(sums).drop_front(2));
  for (auto [i, column] : llvm::enumerate(columns))
    column = product(column, splat(inverses[i / 2], part));
  return columns;
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

/// A block of rows of a matrix, each times the vectors of all queries.
GpuAttention::Values
GpuSegmentPrompts::multiplyMatrix(const SegmentProduct &product, int64_t rows,
                                  int64_t block) {
  int64_t size = cast<RankedTensorType>(product.vector.getType()).getDimSize(1);
  int64_t part = partOf(size), rowPart = partOf(rows);
  Value matrix = tensor(product.matrix);
  auto fragment = VectorType::get({4}, b.getF32Type());
  Values sums(static_cast<size_t>(rowPart),
              arith::ConstantOp::create(b, b.getZeroAttr(fragment)));
  for (int64_t inner = 0; inner < blocksOf(size); ++inner) {
    Value vectors[4];
    for (int64_t query = 0; query < 2; ++query)
      for (int64_t column = 0; column < 2; ++column) {
        Value element = elementOf(size, inner, column);
        Value its =
            vectorAt(product.vector, Site{query, column, inner, part, element});
        if (size % (kColumns * part) != 0) {
          Value at = add(mul(add(mul(lanePart, 2), column), part),
                         inner * kColumns * part);
          its = select(less(at, index(size)), its, splat(number(0), part));
        }
        vectors[2 * query + column] = its;
      }
    // Two terms of a lane at a time, for want of registers, and in a loop, as
    // compilers take long over the text of all of them.
    auto addTerms = [&](Value pair, ValueRange before) -> Values {
      warpBarrier();
      Values terms;
      for (int64_t term : {0, 1})
        for (Value each : vectors) {
          Values choices;
          for (int64_t i = 0; i < part; i += 2)
            choices.push_back(extract(each, i + term));
          terms.push_back(oneOf(choices, pair));
        }
      Values lhs = split(fromElements(terms)), after(before);
      Value firstTerm = mul(pair, 2);
      for (int64_t j = 0; j < rowPart; ++j) {
        Value row = add(mul(laneRow, rowPart), block * kColumns * rowPart + j);
        row = minimum(row, index(rows - 1));
        Value loaded[2];
        for (int64_t column = 0; column < 2; ++column)
          loaded[column] = widened(
              matrix,
              {index(0), row, add(elementOf(size, inner, column), firstTerm)},
              2);
        Values rhs{extract(loaded[0], 0), extract(loaded[1], 0),
                   extract(loaded[0], 1), extract(loaded[1], 1)};
        after[j] = multiply(lhs, split(fromElements(rhs)), after[j]);
      }
      return after;
    };
    sums = loop(index(0), index(part / 2), index(1), sums, addTerms);
  }
  return sums;
}
