//===- ConvertLadleToGPU.cpp - steps to kernels ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/LadleOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/Passes.h"
#include "passes/gpu/ChunkKernel.h"
#include "passes/gpu/DraftKernel.h"
#include "passes/gpu/KernelInfo.h"
#include "passes/gpu/ScanKernel.h"
#include "passes/gpu/VerifyKernel.h"

namespace ladle {
#define GEN_PASS_DEF_CONVERTLADLETOGPU
#include "passes/Passes.h.inc"
} // namespace ladle

using namespace mlir;
using namespace ladle;

namespace {
struct ConvertLadleToGPU
    : ladle::impl::ConvertLadleToGPUBase<ConvertLadleToGPU> {
  using ConvertLadleToGPUBase::ConvertLadleToGPUBase;

  /// Whether kernels hold a form.
  bool keeps(Form form) const {
    if (form == Form::Verify || form == Form::VerifyFold)
      return true;
    int64_t number = form == Form::Decode       ? kDecodeForm
                     : form == Form::DecodeFold ? kDecodeFoldForm
                     : form == Form::Fold       ? kFoldForm
                                                : kPrefillForm;
    return forms == 0 || (forms & number);
  }
  /// Prompts that carry no state along become entries on the CPU alone.
  bool keeps(StepOp step) const {
    return keeps(step.getForm()) &&
           (step.getForm() != Form::PrefillEntries ||
            !step.getBody().front().getOps<FoldDraftsOp>().empty());
  }

  /// The slots of a route, by all of its forms: those of one that verifies keep
  /// what drafts need, and those of one that has pages are known by tables.
  GpuSlots slotsOf(ModuleOp module, StepOp step) const {
    GpuSlots slots;
    for (StepOp other : module.getOps<StepOp>()) {
      if (other.getRecurrence() != step.getRecurrence() ||
          other.getRoute() != step.getRoute())
        continue;
      if (other.getForm() == Form::Verify)
        slots.drafts = cast<DraftsType>(other.getDrafts().getType()).getMost();
      for (Type type : other.getBody().getArgumentTypes())
        if (auto buffer = dyn_cast<BufferType>(type))
          slots.entries = buffer;
    }
    if (slots.entries && slots.entries.getOrder() == BufferOrder::Indexed &&
        !slots.drafts)
      slots.drafts = drafts;
    // Without entries a slot keeps a state for each draft.
    if (!slots.entries && !slots.drafts)
      slots.drafts = drafts;
    return slots;
  }

  /// Whether the drafts of a route go one after another, by this form.
  bool isForDrafts(ModuleOp module, StepOp step, const GpuSlots &slots) const {
    bool verifies = llvm::any_of(module.getOps<StepOp>(), [&](StepOp other) {
      return other.verifies() && other.getRoute() == step.getRoute() &&
             other.getRecurrence() == step.getRecurrence();
    });
    return slots.drafts && !verifies && forms == 0 &&
           (step.getForm() == Form::Decode || step.getForm() == Form::Fold);
  }

  /// Another form of a route, for the rows that fold: a branch of its kernel.
  StepOp find(ModuleOp module, StepOp step, Form form) const {
    for (StepOp other : module.getOps<StepOp>())
      if (other.getForm() == form && keeps(form) &&
          other.getRecurrence() == step.getRecurrence() &&
          other.getRoute() == step.getRoute())
        return other;
    return StepOp();
  }

  /// The kernel that verifies drafts by a route.
  LogicalResult verify(ModuleOp module, StepOp step,
                       const GpuSchedule &schedule, OpBuilder &builder) const {
    auto sourceOf = [&](StepOp of) {
      GpuVerifyKernel::Source source{of, StepOp(), slotsOf(module, of)};
      // In pages, rows fold where those with a state are.
      if (of.getRoute() != Route::KvOnly || !source.slots.arePaged())
        source.fold = find(module, of, Form::VerifyFold);
      return source;
    };
    GpuVerifyKernel::Source source = sourceOf(step);
    bool isStateless = step.getRoute() == Route::KvOnly;
    for (StepOp other : module.getOps<StepOp>()) {
      // A route may keep other entries.
      if (!source.slots.arePaged() || other.getForm() != step.getForm() ||
          other.getRecurrence() != step.getRecurrence() ||
          other.getRoute() == step.getRoute() ||
          other.getBody().getArgumentTypes() !=
              step.getBody().getArgumentTypes())
        continue;
      // Rows without a state are a branch of the kernels of other routes.
      if (isStateless)
        return success();
      if (other.getRoute() == Route::KvOnly)
        return GpuVerifyKernel::buildForAllRows(source, sourceOf(other),
                                                schedule, builder);
    }
    return GpuVerifyKernel(step, source.fold, schedule, source.slots, builder)
        .build();
  }

  /// A route without the forms that are wanted.
  LogicalResult checkForms(ModuleOp module) {
    for (StepOp step : module.getOps<StepOp>()) {
      bool isKept = false;
      for (StepOp other : module.getOps<StepOp>())
        isKept |= other.getRoute() == step.getRoute() && keeps(other);
      if (isKept)
        continue;
      InFlightDiagnostic diag =
          step.emitError("route '")
          << stringifyRoute(step.getRoute())
          << "' has none of the forms that kernels are to hold";
      diag.attachNote()
          << (step.getRoute() == Route::KvOnly
                  ? "its prompts become entries, on a GPU in pages alone"
              : step.getRoute() == Route::Recurrent
                  ? "a route without a buffer has the form decode alone"
                  : "drafts, and tokens of a prompt, that wait for those "
                    "before them are decoded one after another");
      return failure();
    }
    return success();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    constexpr int64_t mostParts = 16;
    if (pieces < 0 || pieces > mostParts || stages < 0 || stages > mostParts) {
      module.emitError("pieces and stages must be 0 to ")
          << mostParts << ", got " << pieces.getValue() << " and "
          << stages.getValue();
      return signalPassFailure();
    }
    if (forms < 0 || forms > (kDecodeForm | kDecodeFoldForm | kFoldForm |
                              kPrefillForm | kVerifyForm)) {
      module.emitError("forms must be a sum of 1, 2, 4, 8 and 16, got ")
          << forms.getValue();
      return signalPassFailure();
    }
    if (drafts < 0 || drafts > kMostDrafts) {
      module.emitError("drafts must be 0 to ")
          << kMostDrafts << ", got " << drafts.getValue();
      return signalPassFailure();
    }
    if (failed(checkForms(module)))
      return signalPassFailure();
    for (int64_t each : {threads.getValue(), verifyThreads.getValue()})
      if (each < 0 || each > 512 || each % 32) {
        module.emitError("threads must be a multiple of 32 up to 512, got ")
            << each;
        return signalPassFailure();
      }
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(module.getBody());
    auto kernels =
        gpu::GPUModuleOp::create(builder, module.getLoc(), "kernels");
    builder.setInsertionPointToStart(kernels.getBody());
    for (StepOp step : module.getOps<StepOp>()) {
      if (step.verifies() &&
          llvm::any_of(step.getBody().getArgumentTypes(), [](Type type) {
            auto pool = dyn_cast<PoolType>(type);
            return pool && pool.getLayout() == PoolLayout::DkDv;
          })) {
        step.emitError("cannot be lowered for GPUs: drafts of states that lie "
                       "[dk, dv] are not verified on a GPU yet")
                .attachNote()
            << "lay states out dv_dk";
        return signalPassFailure();
      }
      // With decode, or verify, it is a branch of that.
      if (!keeps(step) || step.getForm() == Form::VerifyFold ||
          (step.getForm() == Form::DecodeFold && keeps(Form::Decode)))
        continue;
      GpuSlots slots = slotsOf(module, step);
      if (step.prefills() || step.getForm() == Form::PrefillScan) {
        // Those of decoding are no good for prompts.
        GpuSchedule schedule;
        schedule.batch = batch;
        schedule.shared = shared;
        schedule.cluster = cluster;
        schedule.productWarps = productWarps;
        if (forms == kPrefillForm) {
          schedule.threads = threads;
          schedule.tileRows = tileRows;
        }
        FailureOr<gpu::GPUFuncOp> kernel =
            step.prefills()
                ? GpuChunkKernel::buildBest(step, schedule, slots, builder)
                : GpuScanKernel(step, schedule, slots, builder).build();
        if (failed(kernel))
          return signalPassFailure();
        continue;
      }
      GpuSchedule schedule;
      // Those of decoding are no good for drafts, either.
      schedule.threads = step.verifies() ? verifyThreads : threads;
      schedule.tileRows = step.verifies() ? verifyTileRows : tileRows;
      schedule.batch = batch;
      schedule.shared = shared;
      if (step.verifies())
        schedule.heads = verifyHeads;
      // A flush comes once in a sequence, and drafts need a state as a whole.
      if (step.getForm() != Form::Fold && !step.verifies()) {
        schedule.pieces = std::max<int64_t>(1, pieces);
        schedule.stages = std::max<int64_t>(1, stages);
      }
      OpBuilder::InsertionGuard guard(builder);
      if (step.verifies()) {
        if (failed(verify(module, step, schedule, builder)))
          return signalPassFailure();
        continue;
      }
      StepOp fold;
      if (step.getForm() == Form::Decode)
        fold = find(module, step, Form::DecodeFold);
      if (failed(GpuKernel(step, fold, schedule, slots, builder).build()))
        return signalPassFailure();
      if (isForDrafts(module, step, slots)) {
        FailureOr<gpu::GPUFuncOp> drafts =
            GpuDraftKernel(step, schedule, slots, builder).build();
        if (failed(drafts))
          return signalPassFailure();
        drafts->setName(draftNameOf(step));
      }
    }
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (isa<StepOp, RecurrenceOp>(op))
        op.erase();
  }
};
} // namespace
