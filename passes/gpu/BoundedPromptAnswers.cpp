//===- BoundedPromptAnswers.cpp - prompts are answered with a memory ------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/BoundedPrompts.h"

using namespace mlir;
using namespace ladle;

static constexpr double kBinaryOfNatural = 1.44269504088896340736;

/// The weights that tokens are judged by are those of tokens alone, so that the
/// sums are noted before the memory is added.
void GpuBoundedPrompts::storeAnswers(ValueRange carried) {
  for (int64_t i = 0; i < 2; ++i) {
    Value sums = carried[2 + i];
    for (int64_t mask = 1; mask < 4; mask *= 2)
      sums = sum(sums, exchange(sums, mask));
    Value logSum = sum(carried[i], math::Log2Op::create(b, sums));
    ifThen(both(isQuery[i], equal(lanePart, index(0))), [&] {
      store(logSum, array("query_sums", b.getF32Type(), heads),
            {tokenOf[i], headOf[i]});
    });
  }
  GpuPrompts::storeAnswers(memory ? addTaylor(carried) : Values(carried));
}

/// With what was evicted before this prompt: (μ, n, (1 − μ) Σv + Lᵀq scale).
GpuAttention::Values GpuBoundedPrompts::addTaylor(ValueRange carried) {
  evicted = named("evicted", cursor(BoundedNumber::Evicted));
  return ifElse(
      less(index(0), evicted),
      [&]() -> Values {
        double scale = given.taylor.getScale().convertToDouble();
        double limit = given.taylor.getLimit().convertToDouble();
        Type f32 = b.getF32Type();
        Value n = arith::SIToFPOp::create(
            b, f32, arith::IndexCastOp::create(b, b.getI32Type(), evicted));
        Value ofOne = arith::DivFOp::create(b, number(1), n);
        Value queryMemory = tensor(given.attend.getQuery());
        Values after(carried.take_front(4)), factors;
        for (int64_t i = 0; i < 2; ++i) {
          Values dots =
              loop(lanePart, index(keySize), index(4), {number(0), number(0)},
                   [&](Value at, ValueRange sums) -> Values {
                     Value query =
                         loadFloat(queryMemory, {tokenOf[i], headOf[i], at});
                     Value key = loadFloat(array("memory_keys", f32),
                                           add(mul(cursorRow, keySize), at));
                     return {sum(sums[0], product(query, key)),
                             sum(sums[1], product(query, query))};
                   });
          for (int64_t mask = 1; mask < 4; mask *= 2)
            for (Value &each : dots)
              each = sum(each, exchange(each, mask));
          Value mean = product(product(dots[0], ofOne), number(scale));
          Value order = number(1);
          if (limit > 0) {
            Value spread = loadFloat(array("memory_spread", f32), cursorRow);
            Value reach = product(product(dots[1], number(scale * scale)),
                                  product(spread, ofOne));
            Value isFar = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                                reach, number(limit * limit));
            order = select(isFar, number(0), order);
          }
          Value binary = product(mean, number(kBinaryOfNatural));
          after[i] = larger(carried[i], binary);
          Value base = finite(after[i]);
          Value stays = exp2(arith::SubFOp::create(b, carried[i], base));
          Value weight = exp2(arith::SubFOp::create(b, binary, base));
          // The four lanes of a query add their sums up later.
          Value isFirst = equal(lanePart, index(0));
          after[2 + i] = sum(product(carried[2 + i], stays),
                             select(isFirst, product(weight, n), number(0)));
          Value rest =
              arith::SubFOp::create(b, number(1), product(order, mean));
          factors.append({stays, product(weight, rest),
                          product(product(weight, order), number(scale))});
        }
        after.append(addMemory(carried.drop_front(4), factors));
        return after;
      },
      [&]() -> Values { return Values(carried); });
}

/// Sums of values, times what stays of them, with Σv and the rows of L.
GpuAttention::Values GpuBoundedPrompts::addMemory(ValueRange totals,
                                                  ArrayRef<Value> factors) {
  constexpr int64_t columns = 8;
  int64_t part = valuePart(), blocks = valueSize / (columns * part);
  Type f32 = b.getF32Type();
  auto addRow = [&](Value from, Value at, ValueRange sums, Value low,
                    Value high) -> Values {
    Values after;
    Value both = fromElements({low, low, high, high});
    for (int64_t block = 0; block < blocks; ++block) {
      Value loaded[2];
      for (int64_t column = 0; column < 2; ++column) {
        Value element = add(mul(add(mul(lanePart, 2), column), part),
                            block * columns * part);
        loaded[column] = widened(from, {at, element}, part);
      }
      for (int64_t j = 0; j < part; ++j) {
        Value pairs = pick(loaded[0], loaded[1], {j, part + j, j, part + j});
        after.push_back(
            vector::FMAOp::create(b, pairs, both, sums[block * part + j]));
      }
    }
    return after;
  };
  Value stays = fromElements({factors[0], factors[0], factors[3], factors[3]});
  Values sums;
  for (Value total : totals)
    sums.push_back(product(total, stays));
  sums = addRow(array("memory_values", f32, valueSize), cursorRow, sums,
                factors[1], factors[4]);
  Value queryMemory = tensor(given.attend.getQuery());
  return loop(
      index(0), index(keySize), index(1), sums,
      [&](Value at, ValueRange before) -> Values {
        Value query[2];
        for (int64_t i = 0; i < 2; ++i)
          query[i] =
              product(loadFloat(queryMemory, {tokenOf[i], headOf[i], at}),
                      factors[3 * i + 2]);
        return addRow(array("memory", memory.getElementType(), valueSize),
                      add(mul(cursorRow, keySize), at), before, query[0],
                      query[1]);
      });
}
