//===- VerifyProducts.cpp - rows times vectors of drafts on a GPU ---------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Thread 4 g + t of a warp loads some elements of row g at once: which columns
// a product of tiles takes does not matter as long as rows and vectors agree.
//
// - Floats (m16n8k8): 16 rows times 8 vectors. An f32 is the sum of what it is
//   without its last 13 bits, its upper part, and of the rest; the product of
//   two lower parts is left out, and what has 16 bits is its upper part.
// - Tokens (m16n8k16): 16 vectors times 8 rows of bf16, as they came, so that
//   what a lane loads of a row lies in registers as products take it.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/KernelInfo.h"
#include "passes/gpu/VerifyKernel.h"
#include <array>

using namespace mlir;
using namespace ladle;

static constexpr int64_t kWarp = 32;
/// The two sides of a product of tiles.
static constexpr int64_t kLong = 16, kShort = 8;
/// Elements that a lane has of a row of floats at a time.
static constexpr int64_t kPart = 4;
static constexpr int64_t kSlab = 4 * kPart;

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

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

void GpuVerifyKernel::multiply(ArrayRef<Stack> stacks, const Matrix &matrix,
                               StoreProduct store) {
  auto vectorType = cast<MemRefType>(stacks.front().memory.getType());
  if (keySize % kSlab != 0)
    multiplyOneByOne(stacks, matrix, store);
  else if (vectorType.getElementType().isBF16() && matrix.element.isBF16())
    multiplyTokens(stacks, matrix, store);
  else
    multiplyFloats(stacks, matrix, store);
}

/// A thread takes a row and a vector.
void GpuVerifyKernel::multiplyOneByOne(ArrayRef<Stack> stacks,
                                       const Matrix &matrix,
                                       StoreProduct store) {
  int64_t columns = countVectors(stacks);
  Value all = arith::MulIOp::create(b, matrix.rows, constantIndex(columns));
  auto loop =
      scf::ForOp::create(b, thread, all, constantIndex(schedule.threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value i = loop.getInductionVar();
  Value row = arith::DivUIOp::create(b, i, constantIndex(columns));
  Value column = arith::RemUIOp::create(b, i, constantIndex(columns));
  Value vector = vectorRow(column, stacks);
  auto sum = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                constantIndex(1), ValueRange{constantFloat(0)});
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(sum.getBody());
    Value at = sum.getInductionVar();
    Value mine =
        toF32(vector::ExtractOp::create(b, matrix.load(row, at, 1), 0));
    Value other = memref::LoadOp::create(b, stacks.front().memory,
                                         ValueRange{vector, at});
    Value term = arith::MulFOp::create(b, mine, other);
    Value next = arith::AddFOp::create(b, sum.getRegionIterArg(0), term);
    scf::YieldOp::create(b, next);
  }
  store(row, column, sum.getResult(0));
}

/// The bits of an f32 that a product takes. An assembler that knows which they
/// are gives a product what was loaded, which has others, too, that do no harm,
/// and moves it to where that product wants it, for each product anew. What it
/// does not know, it computes, where it is wanted, once.
Value GpuVerifyKernel::upperBits() {
  Value zero = arith::ShRUIOp::create(b, hasParents, constantInt(31));
  return arith::OrIOp::create(b, constantInt(static_cast<int32_t>(0xffffe000u)),
                              zero);
}

void GpuVerifyKernel::multiplyFloats(ArrayRef<Stack> stacks,
                                     const Matrix &matrix, StoreProduct store) {
  Type f32 = b.getF32Type();
  Value memory = stacks.front().memory;
  Type vectorElement = cast<MemRefType>(memory.getType()).getElementType();
  int64_t count = countVectors(stacks);
  int64_t vectorTiles = llvm::divideCeil(count, kShort);
  int64_t rowTiles = llvm::divideCeil(matrix.mostRows, kLong);
  int64_t warps = schedule.threads / kWarp;
  // Warps without rows of their own take vectors of theirs.
  int64_t sides = 1;
  while (vectorTiles % (2 * sides) == 0 && 2 * sides * rowTiles <= warps)
    sides *= 2;
  vectorTiles /= sides;
  warps /= sides;
  // Tiles of rows share what is loaded of vectors, if a warp has so many.
  int64_t together = matrix.mostRows >= 2 * kLong * warps ? 2 : 1;
  auto part = VectorType::get({kPart}, f32);
  auto bits = VectorType::get({kPart}, b.getI32Type());
  Value cut = vector::BroadcastOp::create(b, bits, upperBits());
  // The upper part comes first.
  auto split = [&](Value value) -> SmallVector<Value, 2> {
    if (isShort(cast<VectorType>(value.getType()).getElementType()))
      return {toF32(value)};
    Value upper = arith::BitcastOp::create(
        b, part,
        arith::AndIOp::create(b, arith::BitcastOp::create(b, bits, value),
                              cut));
    return {upper, arith::SubFOp::create(b, value, upper)};
  };
  auto element = [&](Value value, int64_t i) -> Value {
    return vector::ExtractOp::create(b, value, i);
  };
  Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  Value ofGroup = arith::DivUIOp::create(b, warpLane, constantIndex(4));
  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  Value firstVector = constantIndex(0);
  if (sides > 1) {
    firstVector = arith::MulIOp::create(
        b, arith::RemUIOp::create(b, warp, constantIndex(sides)),
        constantIndex(vectorTiles * kShort));
    warp = arith::DivUIOp::create(b, warp, constantIndex(sides));
  }
  SmallVector<Value> vectorRows;
  for (int64_t j = 0; j < vectorTiles; ++j)
    vectorRows.push_back(vectorRow(
        add(arith::AddIOp::create(b, firstVector, ofGroup), j * kShort),
        stacks));

  int64_t stride = kLong * together;
  auto loop = scf::ForOp::create(
      b, arith::MulIOp::create(b, warp, constantIndex(stride)), matrix.rows,
      constantIndex(warps * stride));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  bool isWhole = matrix.mostRows % (warps * stride) == 0 &&
                 matrix.rows.getDefiningOp<arith::ConstantOp>();
  Value last = arith::SubIOp::create(b, matrix.rows, constantIndex(1));
  Value first = arith::AddIOp::create(b, loop.getInductionVar(), ofGroup);
  SmallVector<Value> held;
  for (int64_t i = 0; i < 2 * together; ++i) {
    Value row = add(first, i * kShort);
    held.push_back(isWhole ? row : Value(arith::MinSIOp::create(b, row, last)));
  }
  bool isRowShort = isShort(matrix.element),
       isVectorShort = isShort(vectorElement);
  SmallVector<std::pair<unsigned, unsigned>, 3> products;
  // The smallest come first.
  if (!isVectorShort)
    products.emplace_back(0, 1);
  if (!isRowShort)
    products.emplace_back(1, 0);
  products.emplace_back(0, 0);
  // A product waits for the one that it is added to: with few tiles, products
  // of other parts have sums of their own.
  auto accumulator = VectorType::get({4}, f32);
  int64_t tilesAtOnce = together * vectorTiles;
  int64_t sumsOfTile =
      tilesAtOnce > 2 ? 1 : static_cast<int64_t>(products.size());
  SmallVector<Value> zeros(
      tilesAtOnce * sumsOfTile,
      arith::ConstantOp::create(b, b.getZeroAttr(accumulator)));
  auto slabs = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                  constantIndex(kSlab), zeros);
  if (tilesAtOnce <= 4)
    slabs->setAttr("ladle.unroll", b.getUnitAttr());
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(slabs.getBody());
    Value from = arith::AddIOp::create(
        b, slabs.getInductionVar(),
        arith::MulIOp::create(b, inGroup, constantIndex(kPart)));
    // Two products take a slab: each half of what a lane has of it.
    using Halves = std::array<Value, 2>;
    SmallVector<SmallVector<Halves, 2>> ofVectors;
    for (Value row : vectorRows) {
      auto &parts = ofVectors.emplace_back();
      for (Value each : split(vector::LoadOp::create(
               b, VectorType::get({kPart}, vectorElement), memory,
               ValueRange{row, from}))) {
        auto &halves = parts.emplace_back();
        for (int64_t half = 0; half < 2; ++half)
          halves[half] = vector::FromElementsOp::create(
              b, VectorType::get({2}, f32),
              ValueRange{element(each, 2 * half), element(each, 2 * half + 1)});
      }
    }
    SmallVector<Value> next(slabs.getRegionIterArgs());
    for (int64_t i = 0; i < together; ++i) {
      auto upper = split(matrix.load(held[2 * i], from, kPart));
      auto lower = split(matrix.load(held[2 * i + 1], from, kPart));
      for (int64_t half = 0; half < 2; ++half) {
        SmallVector<Value, 2> ofRows;
        for (auto [above, below] : llvm::zip(upper, lower))
          ofRows.push_back(vector::FromElementsOp::create(
              b, VectorType::get({4}, f32),
              ValueRange{element(above, 2 * half), element(below, 2 * half),
                         element(above, 2 * half + 1),
                         element(below, 2 * half + 1)}));
        for (int64_t j = 0; j < vectorTiles; ++j)
          for (auto [p, of] : llvm::enumerate(products)) {
            int64_t at = (i * vectorTiles + j) * sumsOfTile +
                         static_cast<int64_t>(p) % sumsOfTile;
            next[at] = multiplyShortTiles(
                ofRows[of.first], ofVectors[j][of.second][half], next[at]);
          }
      }
    }
    scf::YieldOp::create(b, next);
  }
  if (matrix.isOverwritten)
    gpu::BarrierOp::create(b)->setAttr(kOfWarpAttr, b.getUnitAttr());
  Value column = arith::AddIOp::create(
      b, firstVector, arith::MulIOp::create(b, inGroup, constantIndex(2)));
  for (int64_t i = 0; i < 2 * together; ++i) {
    Value row = add(first, i * kShort);
    Value isThere;
    if (!isWhole)
      isThere =
          arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row, matrix.rows);
    guarded(isThere, [&] {
      for (int64_t j = 0; j < vectorTiles; ++j)
        for (int64_t side = 0; side < 2; ++side) {
          Value sum;
          for (int64_t k = 0; k < sumsOfTile; ++k) {
            Value term = vector::ExtractOp::create(
                b, slabs.getResult((i / 2 * vectorTiles + j) * sumsOfTile + k),
                i % 2 * 2 + side);
            sum = sum ? Value(arith::AddFOp::create(b, sum, term)) : term;
          }
          Value at = add(column, j * kShort + side);
          guarded(count % kShort == 0 ? Value() : isBelow(at, count),
                  [&] { store(row, at, sum); });
        }
    });
  }
}

/// Elements that a lane has of a row of bf16 at a time.
int64_t GpuVerifyKernel::tokenPart() const { return keySize % 32 == 0 ? 8 : 4; }

/// What a lane has of a slab of 16 vectors, from `row` and from 8 rows further
/// on: a left operand for each product that takes the slab.
GpuKernel::Components GpuVerifyKernel::loadTokens(ArrayRef<Value> rows,
                                                  Value from) {
  int64_t part = tokenPart();
  auto type = VectorType::get({part}, b.getBF16Type());
  SmallVector<Value, 2> loaded;
  for (Value row : rows)
    loaded.push_back(
        vector::LoadOp::create(b, type, tokens, ValueRange{row, from}));
  Components result;
  for (int64_t at = 0; at < part; at += kPart) {
    SmallVector<Value> elements;
    for (int64_t pair : {0, 2})
      for (Value each : loaded)
        for (int64_t i = 0; i < 2; ++i)
          elements.push_back(vector::ExtractOp::create(b, each, at + pair + i));
    result.push_back(vector::FromElementsOp::create(
        b, VectorType::get({8}, b.getBF16Type()), elements));
  }
  return result;
}

void GpuVerifyKernel::multiplyTokens(ArrayRef<Stack> stacks,
                                     const Matrix &matrix, StoreProduct store) {
  int64_t count = countVectors(stacks), part = tokenPart(), slab = 4 * part;
  int64_t vectorTiles = llvm::divideCeil(count, kLong);
  int64_t warps = schedule.threads / kWarp;
  int64_t together = 1;
  while (together < 4 && matrix.mostRows >= 2 * together * kShort * warps)
    together *= 2;
  Value inGroup = arith::RemUIOp::create(b, warpLane, constantIndex(4));
  Value ofGroup = arith::DivUIOp::create(b, warpLane, constantIndex(4));
  SmallVector<Value> vectorRows;
  for (int64_t j = 0; j < 2 * vectorTiles; ++j)
    vectorRows.push_back(vectorRow(add(ofGroup, j * kShort), stacks));

  Value warp = arith::DivUIOp::create(b, thread, constantIndex(kWarp));
  int64_t stride = kShort * together;
  auto loop = scf::ForOp::create(
      b, arith::MulIOp::create(b, warp, constantIndex(stride)), matrix.rows,
      constantIndex(warps * stride));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  bool isWhole = matrix.mostRows % (warps * stride) == 0 &&
                 matrix.rows.getDefiningOp<arith::ConstantOp>();
  Value last = arith::SubIOp::create(b, matrix.rows, constantIndex(1));
  SmallVector<Value> held;
  for (int64_t i = 0; i < together; ++i) {
    Value row = add(arith::AddIOp::create(b, loop.getInductionVar(), ofGroup),
                    i * kShort);
    held.push_back(isWhole ? row : Value(arith::MinSIOp::create(b, row, last)));
  }
  auto accumulator = VectorType::get({4}, b.getF32Type());
  SmallVector<Value> zeros(
      together * vectorTiles,
      arith::ConstantOp::create(b, b.getZeroAttr(accumulator)));
  auto slabs = scf::ForOp::create(b, constantIndex(0), constantIndex(keySize),
                                  constantIndex(slab), zeros);
  // What is loaded ahead takes registers, which sums need, too.
  if (together * vectorTiles <= 2)
    slabs->setAttr("ladle.unroll", b.getUnitAttr());
  else if (together * vectorTiles <= 8)
    slabs->setAttr("ladle.unroll", b.getI32IntegerAttr(2));
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(slabs.getBody());
    Value from = arith::AddIOp::create(
        b, slabs.getInductionVar(),
        arith::MulIOp::create(b, inGroup, constantIndex(part)));
    SmallVector<Components> ofVectors;
    for (int64_t j = 0; j < vectorTiles; ++j)
      ofVectors.push_back(
          loadTokens(ArrayRef(vectorRows).slice(2 * j, 2), from));
    SmallVector<Value> next(slabs.getRegionIterArgs());
    for (auto [i, row] : llvm::enumerate(held)) {
      Value all = matrix.load(row, from, part);
      for (int64_t p = 0; p < part / kPart; ++p) {
        Value ofRow = vector::ExtractStridedSliceOp::create(
            b, all, ArrayRef<int64_t>{p * kPart}, ArrayRef<int64_t>{kPart},
            ArrayRef<int64_t>{1});
        for (int64_t j = 0; j < vectorTiles; ++j) {
          Value &sum = next[static_cast<int64_t>(i) * vectorTiles + j];
          sum = multiplyTiles(ofVectors[j][p], ofRow, sum);
        }
      }
    }
    scf::YieldOp::create(b, next);
  }
  if (matrix.isOverwritten)
    gpu::BarrierOp::create(b)->setAttr(kOfWarpAttr, b.getUnitAttr());
  Value column = arith::MulIOp::create(b, inGroup, constantIndex(2));
  for (int64_t i = 0; i < together; ++i)
    for (int64_t side = 0; side < 2; ++side) {
      Value row = add(arith::AddIOp::create(b, loop.getInductionVar(), column),
                      i * kShort + side);
      Value isThere;
      if (!isWhole)
        isThere = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, row,
                                        matrix.rows);
      guarded(isThere, [&] {
        for (int64_t j = 0; j < 2 * vectorTiles; ++j) {
          if (j * kShort >= count)
            continue;
          Value at = add(ofGroup, j * kShort);
          guarded((j + 1) * kShort <= count ? Value() : isBelow(at, count),
                  [&] {
                    store(row, at,
                          vector::ExtractOp::create(
                              b, slabs.getResult(i * vectorTiles + j / 2),
                              j % 2 * 2 + side));
                  });
        }
      });
    }
}
