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
#include "passes/gpu/KernelInfo.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace ladle;
using namespace ladle::jit;

static_assert(BoundedCursor::length == size_t(BoundedNumber::Length) &&
              BoundedCursor::count == size_t(BoundedNumber::Count) &&
              BoundedCursor::victim == size_t(BoundedNumber::Victim) &&
              BoundedCursor::folds == size_t(BoundedNumber::Folds) &&
              DeviceAttentionPool::cursorNumbers == kBoundedNumbers);

static GpuAttentionStep::Kernel describe(gpu::GPUFuncOp function) {
  GpuAttentionStep::Kernel kernel;
  kernel.info = {function.getName().str(), /*gridBlocks=*/1,
                 static_cast<unsigned>((*function.getKnownBlockSize())[0]),
                 static_cast<unsigned>(dynamicSharedBytes(function)),
                 function->hasAttr(kStartsEarlyAttr)};
  for (unsigned i = 0, e = function.getNumArguments(); i < e; ++i)
    kernel.arguments.push_back(
        function.getArgAttrOfType<StringAttr>(i, kArgumentAttr).str());
  return kernel;
}

Result<std::string>
jit::buildGpuAttention(ModuleOp module, int64_t shared,
                       std::vector<GpuAttentionStep> &steps) {
  std::vector<std::string> names;
  for (AttentionStepOp step : module.getOps<AttentionStepOp>())
    for (AttentionForm form :
         {AttentionForm::Decode, AttentionForm::PrefillAmend}) {
      // What evicts chooses among the tokens of a prompt, which no kernel does.
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
  PassManager manager(module.getContext());
  ConvertLadleAttentionToGPUOptions lowering;
  lowering.shared = shared;
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
      if (suffix == "_find" || suffix == "_append")
        step.first = describe(function);
      else if (suffix == "_plan")
        step.plan = describe(function);
      else if (suffix == "_attend")
        step.attend = describe(function);
      else if (suffix == "_finish")
        step.finish = describe(function);
    }
  });
  return text;
}

Result<std::shared_ptr<const GpuAttentionCode>>
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
    for (auto [from, to] : {std::pair(&step.first, &form.first),
                            std::pair(&step.plan, &form.plan),
                            std::pair(&step.attend, &form.attend),
                            std::pair(&step.finish, &form.finish)}) {
      if (from->info.name.empty())
        continue;
      Result<cuda::Kernel> kernel = module->kernel(from->info);
      if (!kernel)
        return kernel.status();
      *to = {std::move(*kernel), from->arguments};
    }
    (step.decodes ? code->decode : code->prefill) = std::move(form);
  }
  code->share = attentionShare(made.signature.heads / made.cacheHeads);
  code->tasksOfRow = made.signature.heads / code->share;
  code->piecesOfTask =
      attentionPieces(code->tasksOfRow) + static_cast<int64_t>(mostAttends);
  code->section = kAttentionSection;
  if (made.bounded) {
    const BoundedProgram &bounded = *made.bounded;
    code->piecesOfTask = (bounded.capacity + kBoundedPiece - 1) / kBoundedPiece;
    code->stride = boundedStride(bounded.capacity);
  }
  return std::shared_ptr<const GpuAttentionCode>(std::move(code));
}
