//===- AttentionCompiler.cpp - attentions into programs -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/AttentionCompiler.h"
#include "codegen/cpu/CpuTarget.h"
#include "codegen/cpu/LowerToLLVM.h"
#include "codegen/cpu/ObjectEmitter.h"
#include "dialect/LadleOps.h"
#include "frontend/DiagnosticPrinter.h"
#include "frontend/Frontend.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Diagnostics.h"
#include "passes/Pipelines.h"
#include "runtime/jit/Interface.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace ladle;

namespace {

class AttentionCompiler {
public:
  AttentionCompiler(std::string_view text, std::string_view name,
                    const AttentionCompileOptions &options);
  Result<jit::AttentionObject> run(const jit::Target &target);

private:
  Status runPasses(llvm::function_ref<void(mlir::OpPassManager &)> build);
  Status failure() const {
    if (diagnostics.empty())
      return Status(ErrorCode::Internal,
                    "the compiler failed without a reason");
    return Status(ErrorCode::InvalidArgument, diagnostics);
  }
  void describe(AttentionOp attention);
  void describeBounds(AttentionOp attention);
  void describe(AttentionStepOp step);
  Status compileForHost();
  Status compileForGpu(const jit::Target &target);

  const AttentionCompileOptions &options;
  mlir::MLIRContext context;
  llvm::SourceMgr sourceManager;
  std::string diagnostics;
  llvm::raw_string_ostream stream;
  std::unique_ptr<mlir::SourceMgrDiagnosticHandler> handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  jit::AttentionObject object;
  AttentionProgramImpl &made = object.program;
};

} // namespace

AttentionCompiler::AttentionCompiler(std::string_view text,
                                     std::string_view name,
                                     const AttentionCompileOptions &options)
    : options(options), context(mlir::MLIRContext::Threading::DISABLED),
      stream(diagnostics) {
  mlir::DialectRegistry registry;
  registerCpuCodegenDialects(registry);
  registry.insert<LadleDialect>();
  context.appendDialectRegistry(registry);
  context.printOpOnDiagnostic(false);
  sourceManager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(text, name), llvm::SMLoc());
  frontend::printDiagnosticsInto(sourceManager, stream);
  handler = std::make_unique<mlir::SourceMgrDiagnosticHandler>(
      sourceManager, &context, stream, [](mlir::Location) { return true; });
  context.getDiagEngine().registerHandler([](mlir::Diagnostic &diagnostic) {
    return mlir::success(diagnostic.getSeverity() ==
                         mlir::DiagnosticSeverity::Remark);
  });
}

Status AttentionCompiler::runPasses(
    llvm::function_ref<void(mlir::OpPassManager &)> build) {
  mlir::PassManager manager(&context);
  manager.enableVerifier(false);
  build(manager);
  return succeeded(manager.run(*module)) ? Status() : failure();
}

/// What the file says of a match, if there is one.
static AttentionSettings settingsOf(AttentionOp attention) {
  AttentionSettings settings;
  attention.walk([&](MatchOp match) {
    settings.tau = match.getTau().convertToDouble();
    settings.window = static_cast<int64_t>(match.getWindow());
    settings.maxGap = static_cast<int64_t>(match.getMaxGap());
    settings.maxChain = static_cast<int64_t>(match.getMaxChain());
    settings.skip = static_cast<int64_t>(match.getSkip());
    if (match.getDrift())
      settings.drift = match.getDrift()->convertToDouble();
  });
  attention.walk([&](CompleteOp complete) {
    settings.band = static_cast<int64_t>(complete.getBand());
    settings.sinks = static_cast<int64_t>(complete.getSinks());
    settings.wideBand =
        static_cast<int64_t>(complete.getWideBand().value_or(0));
    settings.wideGap = static_cast<int64_t>(complete.getWideGap().value_or(0));
  });
  return settings;
}

/// The token behind a value that is widened at most; empty if it is computed.
static std::string tokenName(AttentionOp attention, mlir::Value value) {
  if (auto extended = value.getDefiningOp<mlir::arith::ExtFOp>())
    value = extended.getIn();
  auto argument = llvm::dyn_cast<mlir::BlockArgument>(value);
  if (!argument)
    return "";
  return attention.getArgumentName(argument.getArgNumber()).str();
}

void AttentionCompiler::describe(AttentionOp attention) {
  made.settings = settingsOf(attention);
  made.pageSize = static_cast<int64_t>(attention.getPageSize());
  Signature &signature = made.signature;
  signature.name = attention.getSymName().str();
  for (mlir::BlockArgument argument : attention.getBody().getArguments()) {
    unsigned index = argument.getArgNumber();
    if (!llvm::isa<mlir::RankedTensorType>(argument.getType()))
      continue;
    TensorSpec spec =
        jit::specOf(attention.getArgumentName(index), argument.getType());
    (attention.getArgumentKind(index) == ArgumentKind::Param ? signature.params
                                                             : signature.tokens)
        .push_back(spec);
  }
  for (auto [name, type] :
       llvm::zip(attention.getOutputNames().getAsValueRange<mlir::StringAttr>(),
                 attention.getOutputTypes().getAsValueRange<mlir::TypeAttr>()))
    signature.outputs.push_back(jit::specOf(name, type));
  signature.heads = signature.outputs.front().shape.front();
  auto cache = llvm::cast<BufferType>(attention.getCache().getType());
  made.cacheHeads = cache.getFields()[0].getShape()[0];
  made.keySize = cache.getFields()[0].getShape()[1];
  made.valueSize = cache.getFields()[1].getShape()[1];
  made.keyType = jit::dtypeOf(cache.getFields()[0].getElementType());
  made.valueType = jit::dtypeOf(cache.getFields()[1].getElementType());
  attention.walk([&](CacheTokenOp append) {
    made.keyName = tokenName(attention, append.getValues()[0]);
    made.valueName = tokenName(attention, append.getValues()[1]);
  });
  if (attention.isBounded())
    describeBounds(attention);
}

void AttentionCompiler::describeBounds(AttentionOp attention) {
  BoundedProgram &bounded = made.bounded.emplace();
  bounded.capacity =
      llvm::cast<BufferType>(attention.getCache().getType()).getCapacity();
  attention.walk([&](FoldSegmentOp fold) {
    bounded.kind = BoundedKind::Segmented;
    bounded.sinks = static_cast<int64_t>(fold.getSinks());
    bounded.window = static_cast<int64_t>(fold.getWindow());
    bounded.segment = static_cast<int64_t>(fold.getSegment());
  });
  attention.walk([&](EvictOp evict) {
    bounded.kind = BoundedKind::Evicting;
    bounded.sinks = static_cast<int64_t>(evict.getSinks());
    bounded.budget = static_cast<int64_t>(evict.getBudget());
    bounded.recent = static_cast<int64_t>(evict.getRecent());
    bounded.queries = static_cast<int64_t>(evict.getQueries());
    bounded.variance = evict.getVariance().convertToDouble();
    bounded.pool = static_cast<int64_t>(evict.getPool());
  });
  attention.walk([&](ObserveOp) { bounded.observes = true; });
  attention.walk([&](TaylorOp taylor) {
    bounded.scale = taylor.getScale().convertToDouble();
    bounded.limit = taylor.getLimit().convertToDouble();
    bounded.queryName = tokenName(attention, taylor.getQuery());
  });
  if (mlir::Value memory = attention.getMemory()) {
    auto type = llvm::cast<MemoryType>(memory.getType());
    bounded.memory = type.getKind() == MemoryKind::Linear
                         ? BoundedMemory::Linear
                         : BoundedMemory::Taylor;
    bounded.memoryKeySize = type.getKeySize();
    bounded.memoryType = jit::dtypeOf(type.getElementType());
  }
}

void AttentionCompiler::describe(AttentionStepOp step) {
  if (made.bounded) {
    bool decodes = step.getForm() == ladle::AttentionForm::Decode;
    object.symbols.push_back({decodes ? "bounded.decode" : "bounded.select",
                              (step.getSymName() + kPackedSuffix).str()});
    if (!decodes && made.bounded->memory != BoundedMemory::None)
      object.symbols.push_back(
          {"bounded.fold",
           (step.getSymName() + "_fold" + kPackedSuffix).str()});
    return;
  }
  bool decodes = step.getForm() == ladle::AttentionForm::Decode;
  AttentionFormKernels &form = decodes ? made.decode : made.prefill;
  bool finds = false;
  step.walk([&](FindOp) { finds = true; });
  step.walk([&](AttendOp attend) {
    form.pieces.push_back({static_cast<BoundKind>(attend.getBegin()),
                           static_cast<BoundKind>(attend.getEnd()),
                           attend.getAfter() != nullptr});
  });
  auto add = [&](llvm::StringRef kernel) {
    object.symbols.push_back(
        {((decodes ? "decode." : "prefill.") + kernel).str(),
         (step.getSymName() + "_" + kernel + kPackedSuffix).str()});
  };
  if (finds)
    add("find");
  add("attend");
  add("finish");
  if (!step.getRing())
    return;
  auto ring = llvm::cast<RingType>(step.getRing().getType());
  made.hasRing = true;
  made.isRotated = ring.getRotated();
  made.estimates = ring.getEstimates();
  made.parts = ring.getParts();
  made.queryType = jit::dtypeOf(ring.getQueryType());
  made.summaryType = jit::dtypeOf(ring.getValueType());
}

static Status setSegments(AttentionOp attention,
                          const SegmentSettings &segments) {
  if (segments.sinks < 0 || segments.window < 0 || segments.segment < 1)
    return Status(ErrorCode::InvalidArgument,
                  "segments: sinks, window and segment are " +
                      std::to_string(segments.sinks) + ", " +
                      std::to_string(segments.window) + " and " +
                      std::to_string(segments.segment) +
                      ", wanted 0, 0 and 1 at least");
  if (attention.setSegments(segments.sinks, segments.window, segments.segment))
    return Status();
  return Status(ErrorCode::InvalidArgument,
                "segments are given, but the cache of '" +
                    attention.getSymName().str() + "' is not segmented");
}

Result<jit::AttentionObject> AttentionCompiler::run(const jit::Target &target) {
  if (options.pageSize < 0)
    return Status(ErrorCode::InvalidArgument,
                  "pageSize is " + std::to_string(options.pageSize) +
                      ", wanted 0 at least");
  frontend::ElaborationOptions elaboration;
  elaboration.recurrence = options.attention;
  elaboration.preset = options.preset;
  elaboration.sizes = options.sizes;
  elaboration.options = options.options;
  elaboration.tokenTypes = options.tokenTypes;
  elaboration.stateTypes = options.stateTypes;
  elaboration.takesAttention = true;
  module = frontend::compileToSpec(context, sourceManager, elaboration);
  if (!module)
    return failure();
  if (module->getOps<AttentionOp>().empty())
    return Status(ErrorCode::InvalidArgument,
                  "the file declares a recurrence, wanted an attention: "
                  "recurrences are compiled by compileSource");
  AttentionOp attention = *module->getOps<AttentionOp>().begin();
  if (options.pageSize && attention.isBounded())
    return Status(ErrorCode::InvalidArgument,
                  "pageSize is " + std::to_string(options.pageSize) +
                      ", wanted 0: the cache is bounded, and has no pages");
  if (options.pageSize)
    attention.setPageSize(static_cast<uint64_t>(options.pageSize));
  if (options.segments)
    if (Status status = setSegments(attention, *options.segments); !status)
      return status;
  describe(attention);

  AttentionPipelineOptions pipeline;
  pipeline.summaryType = options.summaryType;
  if (Status status = runPasses([&](mlir::OpPassManager &manager) {
        buildAttentionPipeline(manager, pipeline);
      });
      !status)
    return status;
  for (AttentionStepOp step : module->getOps<AttentionStepOp>())
    describe(step);
  // Without summaries a prompt's token is like any other.
  if (!made.hasRing)
    made.settings = {};

  if (Status status = target.isGpu() ? compileForGpu(target) : compileForHost();
      !status)
    return status;
  made.warnings = diagnostics;
  return std::move(object);
}

Status AttentionCompiler::compileForHost() {
  const CpuTarget &host = CpuTarget::host();
  LowerToLLVMOptions lowering(host);
  ConvertLadleAttentionToCPUOptions kernel;
  kernel.lanes = host.lanes();
  kernel.dotsBF16 = host.dotsBF16();
  kernel.asksAgain = host.forgetsRequests();
  if (Status status = runPasses([&](mlir::OpPassManager &manager) {
        buildAttentionKernelPipeline(manager, kernel);
        buildLowerToLLVMPipeline(manager, lowering);
      });
      !status)
    return status;
  auto emitted = emitObject(*module);
  if (failed(emitted))
    return failure();
  object.image.assign(emitted->begin(), emitted->end());
  return Status();
}

Status AttentionCompiler::compileForGpu(const jit::Target &target) {
  Result<std::string> text =
      jit::buildGpuAttention(*module, target.gpu().arch(), object.steps);
  if (!text)
    return diagnostics.empty() ? text.status() : failure();
  Result<std::string> cubin =
      target.makeCubin(*text, made.signature.name + ".cu", /*splits=*/true);
  if (!cubin)
    return cubin.status();
  object.image = std::move(*cubin);
  return Status();
}

Result<jit::AttentionObject>
jit::compileAttentionObject(std::string_view text, std::string_view name,
                            const AttentionCompileOptions &options,
                            const Target &target) {
  return AttentionCompiler(text, name, options).run(target);
}
