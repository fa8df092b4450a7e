//===- ScanKernel.h - prompts token by token as a GPU kernel ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Where the tokens of a prompt wait for one another, or a head is a channel and
// no tensor core has anything to multiply, a block goes from token to token. It
// has the heads and rows that it has when it decodes by the route recurrent,
// and all that a token hands to the next in registers: rows of states, in f32,
// and carries, wherever these are asked for. What tokens are loaded of is asked
// for some tokens ahead.

#ifndef LADLE_PASSES_GPU_SCANKERNEL_H
#define LADLE_PASSES_GPU_SCANKERNEL_H

#include "passes/gpu/Kernel.h"

namespace ladle {

class GpuScanKernel final : public GpuKernel {
public:
  /// `step` is of the form prefill_scan.
  GpuScanKernel(StepOp step, const GpuSchedule &schedule, const GpuSlots &slots,
                mlir::OpBuilder &builder)
      : GpuKernel(step, StepOp(), schedule, slots, builder) {}

private:
  mlir::LogicalResult check() override;
  void chooseSizes() override;
  /// Rows stay with their threads from the first token to the last.
  bool readsMaterialisedState() override { return true; }
  int64_t blocksAtOnce() override;
  /// All blocks of some prompts at once gain more than a few bytes cost.
  int64_t bytesToSpill() const override { return 32; }
  int64_t fewestLanes() override;
  bool approximates() override { return true; }
  bool startsEarly() override { return false; }
  bool findsTokens() override { return true; }
  void addArguments(llvm::SmallVectorImpl<mlir::Type> &types,
                    llvm::SmallVectorImpl<std::string> &names) override;
  void takeArguments(unsigned &next) override;
  void emitRowStart() override;
  void emitPaddedRow() override;
  mlir::LogicalResult emitRow() override;
  mlir::Value tokenRow() override;
  mlir::Operation *tokenLoads() override { return startOfToken; }
  Components loadArgument(mlir::BlockArgument argument,
                          const Place &place) override;

  /// A carry at a place: what the token before has left there.
  struct Carried {
    mlir::BlockArgument argument;
    Place place;
    Components initial; ///< of the first token, ahead of the loop
    Components current; ///< stand for what the loop has of it
  };
  bool areFew() const;
  mlir::Value nextOf(mlir::BlockArgument carry);
  Place storedPlace(mlir::BlockArgument carry);
  mlir::FailureOr<mlir::scf::ForOp> emitTokens();
  mlir::LogicalResult emitToken(const Sheet &sheet);
  mlir::FailureOr<mlir::scf::ForOp> carryAlong(mlir::scf::ForOp loop);
  mlir::FailureOr<mlir::scf::ForOp> loadAhead(mlir::scf::ForOp loop);
  mlir::LogicalResult storeResults(mlir::ValueRange results);

  mlir::Value cuSeqlens, firstToken, tokenCount;
  mlir::Value token;       ///< of the row
  bool loadsToken = false; ///< which may be behind the last one
  mlir::Operation *startOfToken = nullptr;
  llvm::SmallVector<Carried> carried;
  llvm::SmallVector<mlir::Value> nextCarries; ///< memory of what is left behind
};

} // namespace ladle

#endif // LADLE_PASSES_GPU_SCANKERNEL_H
