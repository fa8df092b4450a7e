//===- HostDecoder.h - steps on the CPU -------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_HOSTDECODER_H
#define LADLE_RUNTIME_HOSTDECODER_H

#include "runtime/DecoderImpl.h"
#include "runtime/HostPool.h"
#include "runtime/KernelCaller.h"

namespace ladle {

class HostDecoder final : public Decoder::Impl {
public:
  HostDecoder(const Program &program, HostPool &pool, HeadRange heads,
              int threadCount)
      : program(program), pool(pool), heads(heads),
        ownThreads(threadCount ? std::make_unique<ThreadPool>(threadCount)
                               : nullptr),
        threadPool(ownThreads ? *ownThreads : ThreadPool::shared()),
        caller(program, pool, threadPool.size()) {}

  int threads() const override { return threadPool.size(); }
  Status step(const StepArguments &arguments, void *) override;
  Status verify(const VerifyArguments &arguments, void *, Start) override;
  Status prefill(const PrefillArguments &arguments, void *) override;
  Result<BoundStep> bind(const StepArguments &arguments) override;
  const Signature &signature() const { return program.signature(); }

private:
  Status checkSlots(const StepArguments &arguments) const;
  Status checkConflicts(const StepArguments &arguments);
  const RouteKernels &kernelsOf(const Cursor &cursor) const {
    return program.getImpl().kernelsOf(program.route(), cursor.epoch);
  }
  /// A row that is no padding.
  struct StepRow {
    int64_t row = 0;
    int32_t read = 0, write = 0;
    const RouteKernels *kernels = nullptr;
    bool folds = false;
  };
  Status planRow(StepRow plan);
  Status takeTokens(const RouteKernels &route);
  RowTask stepTask(const StepRow &plan) const;
  void zeroOutputs(int64_t row);

  //===--- HostVerify.cpp -------------------------------------------------===//
  /// A row that is no padding.
  struct DraftRow {
    int32_t slot = 0;
    int64_t first = 0; ///< its first draft among all
    Drafts drafts;
    const RouteKernels *kernels = nullptr;
  };
  Status checkDrafts(const VerifyArguments &arguments) const;
  Status planDrafts(const VerifyArguments &arguments);
  void verifyAtOnce();
  void verifySerially();

  //===--- HostPrefill.cpp ------------------------------------------------===//
  /// A row that is no padding, and what is left of its prompt.
  struct PromptRow {
    int32_t slot = 0;
    int64_t first = 0, count = 0;
    const RouteKernels *kernels = nullptr; ///< that read what the slot holds
    bool keepsEntries = false; ///< the prompt ends as entries, of any number
    Cursor cursor;             ///< after what was planned, or has been done
    bool isFresh() const { return cursor.epoch == 0; }
  };
  Status checkPrompts(const PrefillArguments &arguments) const;
  Status planPrompts(const PrefillArguments &arguments);
  /// The tokens that `row` appends before its entries are folded, folds in
  /// chunks, and appends then.
  struct PromptParts {
    int64_t before = 0, folded = 0, after = 0;
    bool foldsEntries = false; ///< those from before, after the first part
  };
  PromptParts partsOf(const PromptRow &row) const;
  Cursors::Impl::Claim claimOf(const PromptRow &row) const;
  Cursor cursorAfter(const PromptRow &row) const;
  RowTask promptTask(const PromptRow &row, KernelFunction kernel,
                     bool usesBuffer, int64_t tokens) const;
  void appendEntries(PromptRow &row, int64_t tokens);
  void foldEntries(PromptRow &row);
  void foldTokens(PromptRow &row, int64_t tokens);
  void runTasks();
  void prefillAtOnce();
  void prefillSerially();

  Program program;
  HostPool &pool;
  HeadRange heads;
  std::unique_ptr<ThreadPool> ownThreads;
  ThreadPool &threadPool;
  KernelCaller caller;
  std::vector<RowTask> tasks; // of the rows that are no padding
  std::vector<StepRow> stepRows;
  std::vector<Cursors::Impl::Claim> claims; // of their slots
  /// [slots]: the rounds of drafts that were verified last. A second time is an
  /// error, but not by a decoder of another layer, or of other heads.
  std::vector<int64_t> verified;
  std::vector<int64_t> decoded; // the same of tokens, if layers share cursors
  std::vector<DraftRow> draftRows;
  std::vector<PromptRow> promptRows;
  std::vector<int32_t> pathOrders; // [rows, L], of drafts that go one by one
  std::vector<int64_t> paddedRows;
};

} // namespace ladle

#endif // LADLE_RUNTIME_HOSTDECODER_H
