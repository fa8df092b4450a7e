//===- ScheduleInfo.h - the schedule of a step ------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The attributes that ladle-schedule leaves on a step, and how to read them.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_PASSES_CPU_SCHEDULEINFO_H
#define LADLE_PASSES_CPU_SCHEDULEINFO_H

#include "dialect/LadleOps.h"

namespace ladle {

/// Even: complete for a head. Odd: along the rows of the state.
inline constexpr llvm::StringLiteral kPhaseAttr = "ladle.phase";
/// On the step: the last phase.
inline constexpr llvm::StringLiteral kLastPhaseAttr = "ladle.last_phase";
/// On the step: the head counts of its values, ascending; each divides the
/// next.
inline constexpr llvm::StringLiteral kLevelsAttr = "ladle.levels";
/// On the step: heads that one task must cover together.
inline constexpr llvm::StringLiteral kHeadGroupAttr = "ladle.head_group";
/// On the step: rows of the state in a tile.
inline constexpr llvm::StringLiteral kTileRowsAttr = "ladle.tile_rows";

/// On the function of a prefill step: bytes of its workspace, and how many of
/// them each head of the states takes besides.
inline constexpr llvm::StringLiteral kWorkspaceAttr = "ladle.workspace";
inline constexpr llvm::StringLiteral kWorkspacePerHeadAttr =
    "ladle.workspace_per_head";

/// What a chain of state operations starts from, or null for a chain that
/// starts from zero.
inline LoadStateOp findLoad(mlir::Value state) {
  mlir::Operation *op = state.getDefiningOp();
  while (op && !mlir::isa<LoadStateOp, ZeroStateOp>(op))
    op = op->getOperand(0).getDefiningOp();
  return mlir::dyn_cast_if_present<LoadStateOp>(op);
}

/// The pool of it, or null.
inline mlir::Value findLoadedPool(mlir::Value state) {
  LoadStateOp load = findLoad(state);
  return load ? load.getPool() : mlir::Value();
}

} // namespace ladle

#endif // LADLE_PASSES_CPU_SCHEDULEINFO_H
