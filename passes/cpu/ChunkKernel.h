//===- ChunkKernel.h - a prefill step as a function -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// A verify kernel in a loop over the chunks of a row, whose drafts are a chain
// and many: what a verify kernel walks is here a product of matrices, in blocks
// of registers. A step that folds keeps the states of its heads in the
// workspace from the first chunk to the last, in f32 and transposed, [dk, dv],
// so that reads and folds both run along dv.
//
// Rows of a stack that have no token, up to the next multiple of kStackRows,
// are zero: sums may run over them.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_CHUNKKERNEL_H
#define LADLE_PASSES_CPU_CHUNKKERNEL_H

#include "passes/cpu/VerifyKernel.h"

namespace ladle {

class ChunkKernel final : public VerifyKernel {
public:
  using VerifyKernel::VerifyKernel;

  mlir::FailureOr<mlir::func::FuncOp> buildPrefill();

private:
  /// Rows and columns of a product that stay in registers.
  static constexpr int64_t kBlockRows = 8, kBlockColumns = 32;
  /// Tokens whose dependencies are solved one by one, and between which the
  /// decays of a vector are multiplied pair by pair.
  static constexpr int64_t kSubBlock = 16;
  static constexpr int64_t kStackRows = 32;

  //===--- ChunkKernel.cpp: chunks, carries, states -----------------------===//
  mlir::Value allocateScratch(llvm::ArrayRef<int64_t> shape,
                              mlir::Type element = {}) override;
  int64_t roomFor(int64_t most) const override {
    return llvm::alignTo(most, kStackRows);
  }
  mlir::Value viewWorkspace(mlir::Value offset, int64_t rows, int64_t width);
  mlir::LogicalResult emitOp(mlir::Operation *op, unsigned level) override;
  mlir::LogicalResult emitRead(ReadOp op) override;
  Components loadCarryOfParent(mlir::BlockArgument carry,
                               mlir::Value draft) override;
  void storeCarry(mlir::BlockArgument carry, mlir::Value draft,
                  const Components &components) override;
  void beginCarries(EachDraftOp op, unsigned level);
  void endCarries(EachDraftOp op, unsigned level);
  void clearRest(mlir::Value stack);
  bool foldsState();
  bool isHeldHere(mlir::Value state);
  /// The state of the current head in the workspace, [dk, dv].
  mlir::Value heldState(mlir::Value pool);
  mlir::LogicalResult emitStateOp(mlir::Operation *op);
  void moveState(mlir::Value pool, bool isLoad);
  mlir::LogicalResult emitFoldDrafts(FoldDraftsOp op);

  //===--- ChunkPaths.cpp: sums along the chain ---------------------------===//
  mlir::LogicalResult emitPathGram(PathGramOp op) override;
  mlir::LogicalResult emitPathProduct(PathProductOp op) override;
  mlir::LogicalResult emitPathSolve(PathSolveOp op) override;
  void emitVectorGram(PathGramOp op, mlir::Value queries, mlir::Value keys,
                      mlir::Value decays, mlir::Value result);
  void emitPairs(mlir::Value first, mlir::Value last, int64_t ranks,
                 int64_t rankKeys, mlir::Value queries, mlir::Value keys,
                 mlir::Value decays, mlir::Value result);
  void solveBlock(PathSolveOp op,
                  llvm::ArrayRef<llvm::SmallVector<Weighed>> terms,
                  mlir::Value first, mlir::Value last);
  /// Keys as [dk, tokens × K].
  mlir::Value transposeKeys(mlir::Value keys);
  /// The decays between two tokens, [tokens, tokens × K]: 0 unless the second
  /// comes before the first.
  mlir::Value maskOf(mlir::Value decays, int64_t rankKeys);
  void transposeInto(mlir::Value from, mlir::Value fromRow, mlir::Value into,
                     mlir::Value intoColumn);

  //===--- MatrixProducts.cpp ---------------------------------------------===//
  /// A product to be added: Σ_k left(i, k) right[k, n], for k < `depth`.
  struct Factor {
    std::function<mlir::Value(mlir::Value, mlir::Value)> left;
    mlir::Value right, depth;
  };
  struct Product {
    mlir::Value firstRow, endRow; ///< a multiple of `blockRows` apart
    int64_t blockRows = kBlockRows;
    int64_t width = 0;
    /// In place of `width`: columns that the block at a row has, a multiple of
    /// kBlockColumns.
    std::function<mlir::Value(mlir::Value)> columns = nullptr;
    std::function<llvm::SmallVector<Factor>(mlir::Value)> factors;
    /// What row i has from column n on before the products; null is zero.
    std::function<mlir::Value(mlir::Value, mlir::Value, int64_t)> start =
        nullptr;
    std::function<void(mlir::Value, mlir::Value, mlir::Value)> finish;
  };
  void emitProduct(const Product &product);
  void emitProductTile(const Product &product, llvm::ArrayRef<Factor> factors,
                       mlir::Value firstRow, mlir::Value firstColumn,
                       int64_t width);
  /// `left`[i, k] of scratch memory.
  std::function<mlir::Value(mlir::Value, mlir::Value)>
  elementsOf(mlir::Value scratch);
  /// Stores into rows of scratch memory.
  std::function<void(mlir::Value, mlir::Value, mlir::Value)>
  storesInto(mlir::Value scratch);
  /// The rows of all tokens of the chunk, up to a whole block.
  mlir::Value rowsOfTokens(int64_t rowsOfToken);
  /// Index arithmetic with numbers.
  mlir::Value times(mlir::Value value, int64_t factor);
  mlir::Value plus(mlir::Value value, int64_t summand);
  mlir::Value roundUp(mlir::Value value, int64_t multiple);
  mlir::Value smaller(mlir::Value first, mlir::Value second);
  /// Opens a loop and stays in it until the guard of the caller ends.
  mlir::Value openLoop(mlir::Value first, mlir::Value end, int64_t step = 1);

  mlir::Value chunkStart, isFirst, isLast;
  llvm::DenseMap<mlir::Value, mlir::Value> carryVersions;
  llvm::DenseMap<mlir::Value, mlir::Value> transposed; // keys -> [dk, T × K]
  llvm::DenseMap<std::pair<mlir::Value, int64_t>, mlir::Value> masks;
  int64_t scratchBytes = 0, stateBytes = 0;
  llvm::DenseMap<mlir::Value, int64_t> stateOffsets; // pool -> bytes
  mlir::Operation *scratchSize = nullptr; // its value is known in the end
};

} // namespace ladle

#endif // LADLE_PASSES_CPU_CHUNKKERNEL_H
