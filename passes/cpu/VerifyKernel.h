//===- VerifyKernel.h - a verify step as a function -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The number of drafts is known when the kernel runs, so that stacks lie in
// scratch memory of the current head, [drafts × components, D], and every
// operation on them is a loop over the drafts. A state is passed over once: the
// rows of a tile stay in registers while all vectors read them.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_VERIFYKERNEL_H
#define LADLE_PASSES_CPU_VERIFYKERNEL_H

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/cpu/Kernel.h"

namespace ladle {

class VerifyKernel : public Kernel {
public:
  using Kernel::Kernel;

  mlir::FailureOr<mlir::func::FuncOp> buildVerify();

protected:
  //===--- VerifyKernel.cpp: regions, and what ends in memory -------------===//
  mlir::LogicalResult emitLevels(unsigned level);
  virtual mlir::LogicalResult emitOp(mlir::Operation *op, unsigned level);
  unsigned levelOfOp(mlir::Operation *op) const;
  mlir::LogicalResult emitEachDraft(EachDraftOp op, unsigned level);
  mlir::FailureOr<Components> draftOperand(EachDraftOp op, mlir::Value value,
                                           mlir::Value draft);
  mlir::Value carryIndex(mlir::Value draft);
  /// What the parent of a draft left behind.
  virtual Components loadCarryOfParent(mlir::BlockArgument carry,
                                       mlir::Value draft);
  virtual void storeCarry(mlir::BlockArgument carry, mlir::Value draft,
                          const Components &components);
  void storeDrafts(
      mlir::Value stack, mlir::Value memory,
      llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value)> prefix);

  //===--- Stacks ---------------------------------------------------------===//
  /// Scratch for a stack, [T × components, D] of a head.
  mlir::Value scratchOf(mlir::Value stack);
  mlir::FailureOr<mlir::Value> findStack(mlir::Value stack);
  /// Rows of scratch that a draft has.
  static int64_t rowsOf(mlir::Type stack);
  mlir::Value rowOf(mlir::Value draft, int64_t rows, int64_t component);
  Components loadRows(mlir::Value scratch, mlir::RankedTensorType type,
                      mlir::Value draft);
  mlir::scf::ForOp openDrafts();
  mlir::Value parentOf(mlir::Value draft);
  /// Drafts that a stack has room for.
  virtual int64_t roomFor(int64_t most) const { return most; }

  //===--- VerifyPaths.cpp: sums along ancestors --------------------------===//
  mlir::LogicalResult emitPathDecay(PathDecayOp op);
  virtual mlir::LogicalResult emitPathGram(PathGramOp op);
  virtual mlir::LogicalResult emitPathProduct(PathProductOp op);
  virtual mlir::LogicalResult emitPathSolve(PathSolveOp op);
  /// Walks from a draft to the ancestor without a parent: `body` gets an
  /// ancestor and the values so far, and returns the next.
  llvm::SmallVector<mlir::Value> walkAncestors(
      mlir::Value draft, mlir::ValueRange initial,
      llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value,
                                                        mlir::ValueRange)>
          body);
  /// A Gram product and the values that it weighs.
  struct Weighed {
    mlir::Value gram, values; // scratch
    int64_t ranks, keys;      // R and K
  };
  mlir::FailureOr<Weighed> weigh(mlir::Value gram, mlir::Value values);
  /// `initial` and the weighed values of the ancestors, for one row.
  mlir::Value accumulate(mlir::Value draft, int64_t component,
                         mlir::Value initial, llvm::ArrayRef<Weighed> terms);

  //===--- VerifyReads.cpp: states and entries ----------------------------===//
  virtual mlir::LogicalResult emitRead(ReadOp op);
  mlir::LogicalResult passOver(mlir::Value state, StoreStateOp store);
  mlir::LogicalResult emitStackedReads(ReadBufferOp op);
  mlir::LogicalResult emitStackedTransport(TransportOp op);
  mlir::Value
  passEntry(const Entry &entry, mlir::Value buffer, TransitionAttr transition,
            EntryPlace place, mlir::Value query,
            llvm::function_ref<void(mlir::Value, mlir::Value)> answer);

  llvm::DenseMap<mlir::Value, mlir::Value> stacks;
  llvm::DenseSet<mlir::Value> passed; // states that were passed over
};

} // namespace ladle

#endif // LADLE_PASSES_CPU_VERIFYKERNEL_H
