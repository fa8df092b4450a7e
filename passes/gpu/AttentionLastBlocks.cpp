//===- AttentionLastBlocks.cpp - answers by who comes last ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Of few rows, `_attend` answers. Warps of a block have portions one behind
// another, so that most blocks attend to one task: they merge what their warps
// have, and leave one piece. Other blocks leave what each warp has. Each block
// then arrives at its tasks; the last one to arrive merges all pieces of one in
// their order, whoever it is, attends to the token itself, and
// answers. Who is the last of all moves the cursors, which then nobody needs
// any more.

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/gpu/AttentionKernels.h"

using namespace mlir;
using namespace ladle;

//===----------------------------------------------------------------------===//
// Pieces of a task
//===----------------------------------------------------------------------===//

GpuAttention::FewPieces GpuAttention::piecesOfTask(const FewPiece &piece,
                                                   Value portion,
                                                   Value allTiles) {
  Value one = index(1), none = index(0), ofBlock = mul(portion, warps);
  Value begin = piece.firstOfRange, end = piece.endOfRange;
  Value last = sub(end, one);
  FewPieces list;
  list.rank = piece.rank;
  list.first = div(begin, portion);
  Value behind = add(div(last, portion), one);
  Value firstWhole = div(add(begin, sub(ofBlock, one)), ofBlock);
  // The last block of all is whole if its tiles are.
  Value isEnd = equal(end, allTiles);
  Value wholeEnd =
      div(add(end, select(isEnd, sub(ofBlock, one), none)), ofBlock);
  list.whole = maximum(sub(wholeEnd, firstWhole), none);
  list.firstWhole = mul(firstWhole, warps);
  list.leading = sub(minimum(list.firstWhole, behind), list.first);
  list.rest = mul(maximum(firstWhole, wholeEnd), warps);
  list.count =
      add(add(list.leading, list.whole), maximum(sub(behind, list.rest), none));
  list.blocks = add(sub(div(last, ofBlock), div(begin, ofBlock)), one);
  return list;
}

Value GpuAttention::pieceOf(const FewPieces &list, Value which) {
  Value ofWhole = sub(which, list.leading);
  Value ofRest = sub(ofWhole, list.whole);
  Value ofWarp =
      select(less(ofRest, index(0)), add(list.firstWhole, mul(ofWhole, warps)),
             add(list.rest, ofRest));
  ofWarp = select(less(ofWhole, index(0)), add(list.first, which), ofWarp);
  return add(ofWarp, list.rank);
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

/// Of a block whose warps attend to one task, where tiles were.
void GpuAttention::mergeBlock(Value piece, ValueRange sums) {
  Type f32 = b.getF32Type();
  int64_t width = valueSize / kWarp;
  SumsMemory own{
      sharedInPlaceOf(values, "block_values", f32, {warps, share * valueSize}),
      sharedArray("block_sums", f32, {warps, 2 * share})};
  leaveSums(own, warp, sums);
  barrier();
  SumsMemory memory = pieceMemory();
  loop(warp, index(share), index(warps), [&](Value local) {
    Value element = add(mul(local, valueSize), mul(lane, width));
    Summary all = emptySummary();
    Values pairs;
    for (int64_t each = 0; each < warps; ++each) {
      pairs.push_back(loadVector(own.pairs, {index(each), mul(local, 2)}, 2));
      all.most = larger(all.most, extract(pairs.back(), 0));
    }
    Value base = finite(all.most);
    for (auto [each, pair] : llvm::enumerate(pairs)) {
      Value place = index(static_cast<int64_t>(each));
      Value weight = exp(arith::SubFOp::create(b, extract(pair, 0), base));
      all.sum = sum(all.sum, product(extract(pair, 1), weight));
      all.values = vector::FMAOp::create(
          b, loadVector(own.values, {place, element}, width),
          splat(weight, width), all.values);
    }
    storeVector(all.values, memory.values, {piece, element});
    ifThen(equal(lane, index(0)), [&] {
      storeVector(fromElements({all.most, all.sum}), memory.pairs,
                  {piece, mul(local, 2)});
    });
  });
}

/// Adds one to a counter; whether all others have.
Value GpuAttention::arrivesLast(Value counter, Value all) {
  Value counters = array("arrivals", b.getI32Type());
  Value one = arith::ConstantIntOp::create(b, 1, /*width=*/32);
  Value before = memref::AtomicRMWOp::create(b, arith::AtomicRMWKind::addi, one,
                                             counters, counter);
  before = arith::IndexCastOp::create(b, b.getIndexType(), before);
  Value isLast = equal(before, sub(all, index(1)));
  // For the next step.
  ifThen(isLast, [&] { store(index(0), counters, counter); });
  return isLast;
}

/// By the last warp of the last block that knows where rows stand.
void GpuAttention::moveFewCursors(ValueRange ofLane) {
  ifThen(equal(warp, index(warps - 1)), [&] {
    Value blocks = gpu::GridDimOp::create(b, gpu::Dimension::x);
    Value isLast = ifElse(
                       equal(lane, index(0)),
                       [&]() -> Values {
                         return {select(arrivesLast(index(0), blocks), index(1),
                                        index(0))};
                       },
                       [&]() -> Values { return {index(0)}; })
                       .front();
    isLast = less(index(0), this->ofLane(isLast, index(0)));
    Value isRow =
        both(less(lane, scalar("rows")), notLess(ofLane[0], index(0)));
    ifThen(both(isLast, isRow), [&] {
      store(add(ofLane[1], 1), array("cursors", b.getI32Type(), kSlotNumbers),
            {ofLane[0], index(0)});
    });
  });
}

void GpuAttention::answerFewRows(ValueRange found, ValueRange planned,
                                 ValueRange sums) {
  FewRows rows = rowsOfPlan(found, planned);
  Value one = index(1), none = index(0);
  Value blocks = gpu::GridDimOp::create(b, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  Value portion = planned[5], ofBlock = mul(portion, warps);
  Value firstTile = mul(block, ofBlock);
  Value endTile = minimum(add(firstTile, ofBlock), rows.all);
  FewPiece first = pieceAt(rows, firstTile, endTile);
  FewPiece last = pieceAt(rows, sub(endTile, one), endTile);
  Value tasks = select(less(firstTile, rows.all),
                       add(sub(last.rank, first.rank), one), none);
  Value lastFlag = sharedArray("is_last", b.getI32Type(), {1});
  // Nobody needs tiles any more, and all know where rows stand.
  barrier();
  ifThen(isWhole,
         [&] { mergeBlock(add(mul(block, warps), first.rank), sums); });
  waitForPrevious();
  barrier();
  moveFewCursors(found);
  loop(none, tasks, one, firstTile, [&](Value, ValueRange carried) -> Values {
    FewPiece piece = pieceAt(rows, carried[0], endTile);
    FewPieces list = piecesOfTask(piece, portion, rows.all);
    auto field = [&](int64_t which) -> Value {
      return arith::IndexCastOp::create(b, b.getIndexType(),
                                        extract(piece.record, which));
    };
    Value task = field(0), row = div(task, tasksOfRow);
    FewTask its{row, div(field(3), 2), mul(rem(task, tasksOfRow), share), {}};
    loadTokenOfTask(its);
    ifThen(equal(thread, none), [&] {
      Value isLast = arrivesLast(add(task, one), list.blocks);
      store(select(isLast, one, none), lastFlag, none);
    });
    barrier();
    ifThen(less(none, load(lastFlag, none)), [&] { answerTask(its, &list); });
    barrier();
    return {piece.endTile};
  });
  // The last blocks, some of which may have nothing else to do, put tokens into
  // pages. Padding, and rows whose first token this is, have no pieces.
  Value behind = sub(sub(blocks, one), block);
  loop(behind, mul(scalar("rows"), tasksOfRow), blocks, [&](Value task) {
    Value row = div(task, tasksOfRow);
    FewTask its{
        row, ofLane(rows.slot, row), mul(rem(task, tasksOfRow), share), {}};
    appendToken(its, ofLane(rows.position, row));
    ifThen(equal(ofLane(rows.tiles, row), none), [&] {
      loadTokenOfTask(its);
      answerTask(its, nullptr);
    });
  });
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

/// Key and value of the token itself, and the queries of the heads that a warp
/// answers, long before they are needed.
void GpuAttention::loadTokenOfTask(FewTask &task) {
  AppendOp op;
  step.walk([&](AppendOp each) { op = each; });
  Value ofCache = div(task.firstHead, plan.group());
  AttendOp attend = plan.attends.front();
  auto load = [&](Value value, Value its, int64_t size) {
    return loadVector(tensor(value), {task.row, its, mul(lane, size / kWarp)},
                      size / kWarp);
  };
  task.loaded = {load(op.getValues()[0], ofCache, keySize),
                 load(op.getValues()[1], ofCache, valueSize)};
  for (int64_t at = 0; at < share; at += warps) {
    Value local = minimum(add(warp, at), index(share - 1));
    task.loaded.push_back(
        load(attend.getQuery(), add(task.firstHead, local), keySize));
  }
}

/// As the cache has it.
GpuAttention::Summary GpuAttention::summaryOfToken(Value key, Value value,
                                                   Value query) {
  auto stored = [&](Value each, Type type) {
    auto vector = cast<VectorType>(each.getType());
    if (vector.getElementType() != type)
      each = arith::TruncFOp::create(b, vector.clone(type), each);
    return widen(each);
  };
  Value score = vector::ReductionOp::create(
      b, vector::CombiningKind::ADD,
      product(stored(key, plan.keyType), widen(query)));
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    score = sum(score, exchange(score, mask));
  double scale = plan.attends.front().getScale().convertToDouble();
  return {product(score, number(scale)), number(1),
          stored(value, plan.valueType)};
}

void GpuAttention::answerHead(const FewTask &task, const FewPieces *list,
                              Value local, Value query) {
  constexpr int64_t registers = 128;
  int64_t width = valueSize / kWarp;
  int64_t together = std::min(registers / width, kWarp);
  Value ofHead = add(task.firstHead, local);
  Summary all = emptySummary();
  if (list) {
    Values merged = loop(
        index(0), list->count, index(together), {all.most, all.sum, all.values},
        [&](Value at, ValueRange carried) -> Values {
          Summary more = mergePieces(
              at, list->count, local, {carried[0], carried[1], carried[2]},
              together, [&](Value which) { return pieceOf(*list, which); });
          return {more.most, more.sum, more.values};
        });
    all = {merged[0], merged[1], merged[2]};
  }
  all = merge(all, summaryOfToken(task.loaded[0], task.loaded[1], query));
  // Padding is answered by zeros.
  Values answer = ifElse(
      notLess(task.slot, index(0)),
      [&]() -> Values { return {normalize(all)}; },
      [&]() -> Values { return {splat(number(0), width)}; });
  storeVector(answer[0], outputMemory(), {task.row, ofHead, mul(lane, width)});
}

void GpuAttention::answerTask(const FewTask &task, const FewPieces *list) {
  for (int64_t at = 0; at < share; at += warps) {
    Value local = add(warp, at), query = task.loaded[2 + at / warps];
    ifThen(less(local, index(share)),
           [&] { answerHead(task, list, local, query); });
  }
}

/// For the first heads of a group.
void GpuAttention::appendToken(const FewTask &task, Value position) {
  Value isFirst = equal(rem(task.firstHead, plan.group()), index(0));
  ifThen(both(notLess(task.slot, index(0)), isFirst), [&] {
    Row row;
    row.slot = task.slot;
    row.token = task.row;
    row.position = position;
    append(row, div(task.firstHead, plan.group()));
  });
}
