//===- GpuAttention.cpp - an attention as CUDA text -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/GpuAttention.h"
#include "codegen/cuda/CudaPrinter.h"
#include "dialect/LadleOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Pipelines.h"
#include "passes/gpu/AttentionInfo.h"
#include "passes/gpu/BoundedInfo.h"
#include "passes/gpu/BoundedPrompts.h"
#include "passes/gpu/KernelInfo.h"
#include "runtime/Eviction.h"
#include "runtime/jit/Budgets.h"
#include "runtime/jit/GpuLayout.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace ladle;
using namespace ladle::jit;

static_assert(BoundedCursor::length == size_t(BoundedNumber::Length) &&
              BoundedCursor::count == size_t(BoundedNumber::Count) &&
              BoundedCursor::place == size_t(BoundedNumber::Place) &&
              BoundedCursor::victim == size_t(BoundedNumber::Victim) &&
              BoundedCursor::seen == size_t(BoundedNumber::Seen) &&
              BoundedCursor::evicted == size_t(BoundedNumber::Evicted) &&
              BoundedCursor::budget == size_t(BoundedNumber::Budget) &&
              BoundedCursor::folds == size_t(BoundedNumber::Folds) &&
              DeviceAttentionPool::cursorNumbers == kBoundedNumbers);
static_assert(negligibleDistance == kNegligibleDistance);

/// Of Budgets.cuh.
static constexpr llvm::StringLiteral kShareSuffix = "_share";

/// Where a kernel goes; null if it is none that a step has.
static GpuAttentionKernel GpuAttentionForm::*placeOf(StringRef suffix) {
  using Form = GpuAttentionForm;
  return llvm::StringSwitch<GpuAttentionKernel Form::*>(suffix)
      .Cases({"_find", "_append"}, &Form::first)
      .Case("_plan", &Form::plan)
      .Cases({"_attend", ""}, &Form::attend)
      .Case("_few", &Form::few)
      .Cases({"_finish", "_keep"}, &Form::finish)
      .Case("_finish_slices", &Form::finishSlices)
      .Case("_score", &Form::score)
      .Case("_select", &Form::select)
      .Case("_fold", &Form::fold)
      .Case("_scan", &Form::scan)
      .Case("_lower", &Form::lower)
      .Case("_pack", &Form::pack)
      .Case("_mark", &Form::mark)
      .Case("_prefer", &Form::prefer)
      .Case(kShareSuffix, &Form::share)
      .Default(nullptr);
}

const GpuAttentionStep::Kernel *GpuAttentionStep::find(StringRef suffix) const {
  for (const Kernel &kernel : kernels)
    if (kernel.suffix == suffix)
      return &kernel;
  return nullptr;
}

static GpuAttentionStep::Kernel describe(gpu::GPUFuncOp function,
                                         StringRef suffix) {
  GpuAttentionStep::Kernel kernel;
  kernel.suffix = suffix.str();
  kernel.info = {function.getName().str(), /*gridBlocks=*/1,
                 static_cast<unsigned>((*function.getKnownBlockSize())[0]),
                 static_cast<unsigned>(dynamicSharedBytes(function)),
                 function->hasAttr(kStartsEarlyAttr)};
  if (auto cluster = function->getAttrOfType<IntegerAttr>(kClusterAttr))
    kernel.info.cluster = static_cast<unsigned>(cluster.getInt());
  for (unsigned i = 0, e = function.getNumArguments(); i < e; ++i)
    kernel.arguments.push_back(
        function.getArgAttrOfType<StringAttr>(i, kArgumentAttr).str());
  return kernel;
}

Result<std::string>
jit::buildGpuAttention(ModuleOp module, StringRef arch,
                       std::vector<GpuAttentionStep> &steps) {
  std::vector<std::string> names;
  for (AttentionStepOp step : module.getOps<AttentionStepOp>()) {
    if (BoundedPromptPlan::of(step)) {
      steps.emplace_back().decodes = false;
      steps.back().kernels.push_back(
          {kShareSuffix.str(), budgetsKernelInfo(), {}});
      names.push_back(step.getSymName().str());
      continue;
    }
    for (AttentionForm form :
         {AttentionForm::Decode, AttentionForm::PrefillAmend}) {
      if (step.isBounded() && step.getForm() != AttentionForm::Decode)
        continue;
      bool isFolding = false;
      step.walk([&](FoldFromOp) { isFolding = true; });
      if (step.isBounded() && form != AttentionForm::Decode && !isFolding)
        continue;
      // Without summaries a prompt's token is like any other.
      if (form != step.getForm() && step.getRing())
        continue;
      GpuAttentionStep &each = steps.emplace_back();
      names.push_back(
          (step.getAttention() + "_" + stringifyAttentionForm(form)).str());
      each.decodes = form == AttentionForm::Decode;
      step.walk([&](FindOp) { each.finds = true; });
    }
  }
  PassManager manager(module.getContext());
  ConvertLadleAttentionToGPUOptions lowering;
  lowering.shared = sharedBytesOf(arch);
  lowering.cluster = clusterBlocksOf(arch);
  buildAttentionGPUPipeline(manager, lowering);
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (failed(manager.run(module)) || failed(printCuda(module, stream)))
    return Status(ErrorCode::InvalidArgument,
                  "the attention cannot be lowered for GPUs");
  module.walk([&](gpu::GPUFuncOp function) {
    for (auto [name, step] : llvm::zip_equal(names, steps)) {
      StringRef suffix = function.getName();
      if (!suffix.consume_front(name))
        continue;
      if (placeOf(suffix))
        step.kernels.push_back(describe(function, suffix));
      if (auto least = function->getAttrOfType<IntegerAttr>(kLeastBlocksAttr))
        step.leastBlocks = least.getInt();
      // Of what takes a step's tokens.
      auto blocks = function->getAttrOfType<IntegerAttr>(kBlocksAttr);
      if (blocks && (suffix.empty() || suffix == "_attend"))
        step.blocksAtOnce = blocks.getInt();
    }
  });
  for (const GpuAttentionStep &step : steps)
    if (step.find(kShareSuffix))
      text += budgetsText();
  return text;
}

Result<std::shared_ptr<GpuAttentionCode>>
jit::loadGpuAttention(const cuda::Device &device, const std::string &image,
                      const std::vector<GpuAttentionStep> &steps,
                      const AttentionProgramImpl &made) {
  Result<cuda::Module> module = cuda::Module::load(device, image);
  if (!module)
    return module.status();
  auto code = std::make_shared<GpuAttentionCode>(device);
  for (const GpuAttentionStep &step : steps) {
    GpuAttentionForm form;
    form.finds = step.finds;
    form.leastBlocks = step.leastBlocks;
    form.blocksAtOnce = step.blocksAtOnce;
    for (const GpuAttentionStep::Kernel &made : step.kernels) {
      Result<cuda::Kernel> kernel = module->kernel(made.info);
      if (!kernel)
        return kernel.status();
      form.*placeOf(made.suffix) = {std::move(*kernel), made.arguments};
    }
    if (llvm::is_contained(form.attend.arguments, "few_rows"))
      form.fewRows = kAttentionFewRows;
    if (form.hasFew())
      form.fewRows = std::min(kAttentionFewRows,
                              kAttentionFewHeads / made.signature.heads);
    (step.decodes ? code->decode : code->prefill) = std::move(form);
  }
  code->share = attentionShare(made.signature.heads / made.cacheHeads);
  code->tasksOfRow = made.signature.heads / code->share;
  code->piecesOfTask =
      attentionPieces(code->tasksOfRow) + static_cast<int64_t>(mostAttends);
  code->section = kAttentionSection;
  code->findBlocks = kAttentionFindBlocks;
  code->queriesOfWarp = kAttentionWarpQueries;
  if (made.bounded) {
    code->stride = boundedStride(made.bounded->capacity);
    code->mostBlocks = clusterBlocksOf(device.arch());
    code->keysOfTile = kPromptTileKeys;
    code->rowsOfFold = kFoldRows;
    code->spreadParts = kSpreadParts;
    code->tokensOfBlock =
        preferenceTokens(made.signature.heads / made.cacheHeads);
    code->preferenceNumbers = kPreferenceNumbers;
    code->rowsOfSegment = kSegmentRows;
    code->elementsOfScan = kScanElements;
  }
  return code;
}
