//===- BoundedPromptRanks.cpp - the least salient that stays --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/gpu/BoundedPrompts.h"

using namespace mlir;
using namespace ladle;

/// The mean of the saliences around a place, of so many; where tokens without a
/// weight are behind them, these are neighbours, too.
Value GpuBoundedPrompts::pooled(Value at, Value size,
                                llvm::function_ref<Value(Value)> candidate,
                                int64_t weightless) {
  int64_t half = pool / 2;
  Value total = number(0), n = number(0);
  Value saliences = array("salience", b.getF32Type());
  for (int64_t offset = -half; offset <= half; ++offset) {
    Value near = add(at, index(offset));
    Value isThere = both(notLess(near, index(0)), less(near, size));
    Value inside = minimum(maximum(near, index(0)), sub(size, index(1)));
    Value its = loadFloat(saliences, placeOf(candidate(inside)));
    total = sum(total, select(isThere, its, number(0)));
    Value isCounted =
        both(notLess(near, index(0)), less(near, add(size, weightless)));
    n = sum(n, select(isCounted, number(1), number(0)));
  }
  return arith::DivFOp::create(b, total, n);
}

/// What is no number stays, as it does on the CPU.
void GpuBoundedPrompts::rankCandidates() {
  Type integer = b.getI32Type();
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(b, value, /*width=*/32);
  };
  loop(add(firstChoice, thread), lastChoice, index(threads), [&](Value at) {
    Value mean = pooled(at, all, [](Value candidate) { return candidate; });
    Value isNumber =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, mean, mean);
    mean = select(isNumber, mean, number(INFINITY));
    Value bits = arith::BitcastOp::create(b, integer, mean);
    Value sign = arith::ShRSIOp::create(b, bits, constant(31));
    Value mask = arith::OrIOp::create(b, sign, constant(INT32_MIN));
    memref::StoreOp::create(b, arith::XOrIOp::create(b, bits, mask),
                            array("ranks", integer), ValueRange{placeOf(at)});
  });
}

/// The largest number that as many are not below as there is room for.
Value GpuBoundedPrompts::findThreshold() {
  Type integer = b.getI32Type();
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(b, value, /*width=*/32);
  };
  constexpr int64_t bits = 32, bitsOfPass = 2, tests = 3;
  Value passes = select(isFull, index(bits / bitsOfPass), index(0));
  Values found = loop(
      index(0), passes, index(1), {constant(0)},
      [&](Value pass, ValueRange carried) -> Values {
        Value shift = arith::IndexCastOp::create(
            b, integer, sub(index(bits - bitsOfPass), mul(pass, bitsOfPass)));
        Value wanted[tests];
        for (int64_t i = 0; i < tests; ++i)
          wanted[i] = arith::OrIOp::create(
              b, carried[0], arith::ShLIOp::create(b, constant(i + 1), shift));
        Values above =
            loop(add(firstChoice, thread), lastChoice, index(threads),
                 Values(tests, index(0)),
                 [&](Value at, ValueRange before) -> Values {
                   Value rank = memref::LoadOp::create(
                       b, array("ranks", integer), ValueRange{placeOf(at)});
                   Values after;
                   for (int64_t i = 0; i < tests; ++i) {
                     Value isAbove = arith::CmpIOp::create(
                         b, arith::CmpIPredicate::uge, rank, wanted[i]);
                     after.push_back(
                         add(before[i], select(isAbove, index(1), index(0))));
                   }
                   return after;
                 });
        // Others may still read what was counted before.
        barrier();
        for (int64_t i = 0; i < tests; ++i) {
          for (int64_t mask = 1; mask < kWarp; mask *= 2)
            above[i] = add(above[i], exchange(above[i], mask));
          ifThen(equal(lane, index(0)),
                 [&] { store(above[i], counts, {index(i), warp}); });
        }
        barrier();
        Value next = carried[0];
        for (int64_t i = 0; i < tests; ++i) {
          Value total = index(0);
          for (int64_t each = 0; each < kSelectWarps; ++each)
            total = add(total, load(counts, {index(i), index(each)}));
          next = select(notLess(total, room), wanted[i], next);
        }
        return {next};
      });
  return found[0];
}
