//===- DraftKernel.h - one draft of each row as a GPU kernel ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Drafts that wait for their parents go one after another, a launch each: the
// decode form, for the draft of that number of every row. Its history is the
// committed entries and those of the path to it, which places put side by side,
// and its carries are those that its parent has left. Rows that fold before
// their drafts do so in a launch ahead of the first, which is the fold form.
//
// All of them decide alike, from what the cursor says until the commit, which
// rows fold. Of a program of kv_only there are two such kernels: that of
// kv_only takes the rows without a state, and the one of the other route those
// that have one, or are given one by this fold.

#ifndef LADLE_PASSES_GPU_DRAFTKERNEL_H
#define LADLE_PASSES_GPU_DRAFTKERNEL_H

#include "passes/gpu/Kernel.h"

namespace ladle {

class GpuDraftKernel final : public GpuKernel {
public:
  /// `step` is of the form decode or fold.
  GpuDraftKernel(StepOp step, const GpuSchedule &schedule,
                 const GpuSlots &slots, mlir::OpBuilder &builder)
      : GpuKernel(step, StepOp(), schedule, slots, builder) {}

private:
  bool isFold() const {
    return const_cast<StepOp &>(step).getForm() == Form::Fold;
  }
  void addArguments(llvm::SmallVectorImpl<mlir::Type> &types,
                    llvm::SmallVectorImpl<std::string> &names) override;
  void takeArguments(unsigned &next) override;
  bool startsEarly() override { return false; }
  bool findsTokens() override { return true; }
  void emitRowStart() override;
  void emitPaddedRow() override;
  mlir::Value emitCursor() override;
  void emitPlaces() override;
  mlir::Value tokenRow() override;
  mlir::Value parentOf(mlir::Value of);
  mlir::Value versionAfter(mlir::Value of, mlir::Value version);
  mlir::Value entryAt(mlir::Value position);
  void storeWaiting();
  void takeParent();

  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value lhs,
                      mlir::Value rhs);

  // Arguments: where the drafts of rows are, which of them is at hand, and of
  // which rows; 1 is those without a state and 2 those with one, 0 all.
  mlir::Value cuSeqlens, parents, hasParents, number, rowsOf;
  mlir::Value firstDraft, draftCount, draft;
  mlir::Value foldsBefore; ///< whether the row folds ahead of its drafts
};

/// What the kernel is called that takes a draft of each row, or folds before.
std::string draftNameOf(StepOp step);

} // namespace ladle

#endif // LADLE_PASSES_GPU_DRAFTKERNEL_H
