//===- BoundedKernel.h - a step over a bounded cache ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step over a bounded cache becomes one function that does all of it for a
// row and a head of the cache; runtime/BoundedKernels.h says what it takes.
//
// Operations on the cache and the memory are emitted in their order, each for
// all heads of the query that share the head of the cache, and leave what they
// found in scratch memory. Arithmetic is emitted where it is asked for, for one
// head at a time.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_BOUNDEDKERNEL_H
#define LADLE_PASSES_CPU_BOUNDEDKERNEL_H

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/cpu/TokenBlocks.h"

namespace ladle {

class BoundedKernel : TokenBlocks {
public:
  BoundedKernel(AttentionStepOp step, mlir::OpBuilder &builder,
                const CpuVectors &vectors)
      : TokenBlocks(step.getLoc(), builder, vectors), step(step) {}

  /// Builds the function before the step. Diagnostics name what cannot be
  /// lowered.
  mlir::LogicalResult build();

private:
  //===--- BoundedKernel.cpp: arguments, the order of things --------------===//
  mlir::LogicalResult checkStep();
  void createFunction(llvm::StringRef name);
  mlir::LogicalResult emitAll();
  mlir::LogicalResult emit(mlir::Operation *op);
  mlir::LogicalResult emitAppend(AppendOp op);
  mlir::LogicalResult emitOutputs(YieldOp op);
  /// From here on the token is answered, if it is at all.
  void openAnswer();
  /// A loop over the heads of the query that share the head of the cache;
  /// stays in it, with `group` and `queryHead` set.
  mlir::scf::ForOp openGroup();
  void closeGroup(mlir::scf::ForOp loop);

  //===--- BoundedAttend.cpp: the softmax over what is kept ---------------===//
  /// What an operation found, for each head of the group.
  struct Found {
    mlir::Value sums;   ///< (m, Z) [group, 2]; null if it is no summary
    mlir::Value values; ///< [group, dv]
    mlir::Value scores; ///< [group, C], by entry; only if they are noted
  };
  mlir::LogicalResult emitAttend(AttendOp op);
  mlir::LogicalResult outline(mlir::scf::ForOp loop, llvm::StringRef suffix);
  bool isExactQuery(mlir::Value query) const;
  /// Evaluates a query for each head of the group, times `scale`.
  mlir::FailureOr<mlir::Value> gatherQueries(mlir::Value query, double scale);
  void addBlock(mlir::Value block, mlir::Value end, mlir::Value queries,
                mlir::Value keyScratch, mlir::Value valueScratch,
                const Found &found);
  /// The runs of entries that are attended to, [runs, 3] of index: begin, end,
  /// and where it goes on.
  mlir::Value keptRuns();
  /// The first entry that is attended to.
  mlir::Value firstKept();
  Summary loadSummary(const Found &found);
  mlir::FailureOr<Summary> summaryOf(mlir::Value value);

  //===--- BoundedValues.cpp: arithmetic ----------------------------------===//
  /// A value of a head: of the query if its heads are not among those of the
  /// cache. A number for [heads], and else the vector along the last dimension
  /// at `indices` of the dimensions between. In f32.
  mlir::FailureOr<mlir::Value> element(mlir::Value value,
                                       mlir::ValueRange indices = {});
  mlir::FailureOr<mlir::Value> compute(mlir::Value value,
                                       mlir::ValueRange indices);
  mlir::FailureOr<mlir::Value> loadArgument(mlir::BlockArgument argument,
                                            mlir::ValueRange indices);
  mlir::FailureOr<mlir::Value> broadcast(BroadcastOp op,
                                         mlir::ValueRange indices);
  mlir::FailureOr<mlir::Value> sum(SumOp op, mlir::ValueRange indices);
  mlir::FailureOr<mlir::Value> sumRows(SumOp op, mlir::ValueRange indices);
  mlir::FailureOr<mlir::Value> rotate(RotateOp op, mlir::ValueRange indices);
  mlir::FailureOr<mlir::Value> elementwise(mlir::Operation *op,
                                           mlir::ValueRange indices);
  mlir::Value remembers();
  mlir::FailureOr<mlir::Value> once(OnceOp op, mlir::ValueRange indices);
  /// Evaluates what a row of `value` is made of and does not depend on the row,
  /// before a loop over rows.
  mlir::LogicalResult prepare(mlir::Value value);
  /// Element `at` of the last dimension, which differs from row to row.
  mlir::FailureOr<mlir::Value>
  scalarAt(mlir::Value value, mlir::ValueRange indices, mlir::Value at);
  /// What has been evaluated can be used again until the scope ends.
  struct Scope {
    explicit Scope(BoundedKernel &kernel) : kernel(kernel) {
      kernel.evaluated.emplace_back();
      kernel.spilled.emplace_back();
    }
    ~Scope() {
      kernel.evaluated.pop_back();
      kernel.spilled.pop_back();
    }
    BoundedKernel &kernel;
  };

  //===--- BoundedProducts.cpp: matrices that heads share -----------------===//
  /// A matrix of a parameter times a vector of each head of the query.
  struct Product {
    SumOp sum;
    mlir::Value matrix, vector;
    int64_t rows;
  };
  std::optional<Product> productOf(SumOp op);
  mlir::LogicalResult emitProducts(YieldOp op);
  mlir::LogicalResult emitProduct(const Product &product, int64_t round,
                                  int64_t rounds);
  int64_t rowsOfTile() const;
  /// Lines of a memory that the head before asks for.
  int64_t linesBefore() const;
  void prefetchNextMemory(mlir::Value round, int64_t rounds, int64_t part,
                          int64_t parts);
  void prefetchRest(mlir::Value row);

  //===--- BoundedSegments.cpp: segments and their memory -----------------===//
  mlir::LogicalResult emitFold(FoldFromOp op);
  mlir::LogicalResult foldBlock(FoldFromOp op, mlir::Value block,
                                mlir::Value end, mlir::Value matrix,
                                mlir::Value sums);
  mlir::LogicalResult emitRecall(RecallOp op);

  //===--- BoundedEviction.cpp: the least salient token leaves -----------===//
  void takeEntry();
  mlir::LogicalResult emitEvict(EvictFromOp op);
  mlir::Value pooledSaliences(EvictFromOp op, mlir::Value held);
  mlir::Value salienceOf(mlir::Value block, mlir::Value noted, double variance);
  mlir::Value placeOfLeast(mlir::Value pooled, mlir::Value first,
                           mlir::Value last);
  void removeEntry(mlir::Value held, mlir::Value place, mlir::Value victim);
  mlir::LogicalResult emitNote(NoteWeightsOp op);
  mlir::Value sharedWeights(const Found &attended, mlir::Value at,
                            int64_t width);
  mlir::scf::ForOp openEntries(mlir::Value end, mlir::Value &block);
  int64_t entryWidth() const;
  mlir::Value toFloat(mlir::Value value);
  void storeIndex(mlir::Value value, mlir::Value memory,
                  mlir::ValueRange indices);

  //===--- BoundedTaylor.cpp: what is left of evicted tokens --------------===//
  void foldEntry(mlir::Value victim);
  void countEvicted(mlir::Value key, mlir::Value value);
  void addProducts(mlir::Value blockKeys, mlir::Value blockValues,
                   int64_t tokens);
  mlir::LogicalResult emitTaylor(TaylorOp op);

  //===--- BoundedPrompt.cpp: prompts of a cache that evicts --------------===//
  /// Which tokens such a step keeps is not among its operations.
  mlir::LogicalResult findEviction();
  mlir::LogicalResult buildPrompt();
  mlir::LogicalResult emitPromptTokens(AttendOp op, mlir::Value queries,
                                       const Found &result);
  void addPromptSums(const Found &result, mlir::Value end);
  mlir::LogicalResult emitFoldList(AppendOp append);
  /// Key and value of a row of the prompt.
  mlir::FailureOr<std::pair<mlir::Value, mlir::Value>>
  promptToken(AppendOp append, mlir::Value row);

  AttentionStepOp step;
  mlir::func::FuncOp function;
  int64_t heads = 0, cacheHeads = 0, capacity = 0;
  BufferType cacheType;
  MemoryType memoryType; ///< null without a memory
  bool isEvicting = false, isAnswering = false;
  /// Of a cache that evicts; 0 stands for all since the token came.
  int64_t queries = 0;
  bool notesWeights = false;
  bool isPrompt = false; ///< of a cache that evicts

  // The arguments of the function.
  mlir::Value row, slot, head, position, appends, answers, entry, holds,
      isFirst, budget;
  llvm::SmallVector<mlir::Value> kept, folded;
  llvm::DenseMap<mlir::Value, mlir::Value> memory; ///< of params and tokens
  llvm::SmallVector<mlir::Value> outputs;
  mlir::Value keys, values;               ///< of the cache
  mlir::Value matrix;                     ///< of the memory
  mlir::Value featureSums;                ///< z of a linear memory
  mlir::Value keySums, valueSums, spread; ///< of a Taylor memory
  mlir::Value counts, order, positions, weights, seen, weightSums; ///< evicting
  /// Of a prompt of a cache that evicts.
  mlir::Value firstRow, listed, promptScores, promptSums, list;

  // The head of the query whose values are evaluated, and its place in the
  // group; null where there is none.
  mlir::Value group, queryHead;
  llvm::DenseMap<mlir::Value, Found> found; ///< by result of an operation
  /// What products are for all heads, [group, rows].
  llvm::DenseMap<mlir::Operation *, mlir::Value> products;
  llvm::SmallVector<llvm::DenseMap<mlir::Value, mlir::Value>> evaluated,
      spilled;
};

} // namespace ladle

#endif // LADLE_PASSES_CPU_BOUNDEDKERNEL_H
