//===- Target.cpp - what kernels are compiled for and run on --------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/Target.h"
#include "codegen/cpu/CpuTarget.h"
#include "codegen/cuda/Prelude.h"
#include "codegen/cuda/RegisterBounds.h"
#include "runtime/jit/AttentionDiagnostics.h"
#include "runtime/jit/Cursors.h"
#include "llvm/Support/FormatVariadic.h"

using namespace ladle;
using namespace ladle::jit;

//===----------------------------------------------------------------------===//
// The choice
//===----------------------------------------------------------------------===//

Result<Target> Target::choose(const CompileOptions &options) {
  if (options.target != "cpu" && options.target != "cuda" &&
      options.target != "auto")
    return Status(ErrorCode::InvalidArgument, "target is '" + options.target +
                                                  "', expected cpu, cuda or "
                                                  "auto");
  Target target;
  Status missing;
  if (options.target != "cpu") {
    Result<cuda::Device> device = cuda::Device::shared(options.device);
    missing = device.status();
    target.start = Clock::now();
    if (device) {
      auto nvrtc = Nvrtc::open();
      if (nvrtc) {
        target.device = *device;
        target.nvrtc = std::move(*nvrtc);
      } else {
        missing = Status(ErrorCode::NotFound,
                         "no compiler for " + device->name() + ": " +
                             llvm::toString(nvrtc.takeError()));
      }
    }
    if (!missing && options.target == "cuda")
      return missing;
  }
  if (target.isGpu()) {
    auto [major, minor] = target.nvrtc->version();
    target.about = {target.device->name(), target.device->memoryBandwidth(),
                    /*read=*/0, /*update=*/0, target.device->multiprocessors()};
    target.parts = {"cuda", target.device->arch(),
                    llvm::formatv("{0}.{1}", major, minor)};
    return target;
  }
  target.reason = missing.message();
  const CpuTarget &host = CpuTarget::host();
  target.parts = {"cpu", host.triple, host.cpu, host.features};
  return target;
}

std::string Target::warning() const {
  return reason.empty() ? ""
                        : "warning: kernels run on the CPU: " + reason + "\n";
}

void Target::describe(llvm::json::Object &manifest) const {
  if (!isGpu()) {
    manifest["target"] = CpuTarget::host().cpu;
    return;
  }
  manifest["target"] = device->arch();
  manifest["device"] = device->name();
  manifest["driver"] = device->driverVersion();
  manifest["nvrtc"] = parts.back();
  manifest["context_milliseconds"] = 1e3 * device->openSeconds();
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

Result<std::string> Target::makeCubin(llvm::StringRef text,
                                      llvm::StringRef name, bool splits) const {
  auto cubin =
      compileWithinRegisters(*nvrtc, text, name, {device->arch(), {}, splits});
  if (!cubin)
    return Status(ErrorCode::Internal, llvm::toString(cubin.takeError()));
  return std::move(cubin->image);
}

Result<RouteObject> Target::compile(RouteKind route, Compiler &compiler,
                                    const GpuLayout &layout,
                                    bool answersShortRows) const {
  if (!isGpu())
    return compiler.compile(route);
  Result<RouteObject> object = compiler.compileForGpu(
      route, fittingLayout(layout, device->arch()), answersShortRows);
  if (!object)
    return object.status();
  std::string name =
      object->signature.name + "_" + std::string(toString(route)) + ".cu";
  Result<std::string> cubin = makeCubin(object->object, name);
  if (!cubin)
    return cubin.status();
  object->object = std::move(*cubin);
  return object;
}

static Result<LoadedRoute> loadOnHost(RouteObject object) {
  llvm::Expected<LoadedObject> code =
      loadObject(object.object, object.symbols());
  if (!code)
    return Status(ErrorCode::Internal, llvm::toString(code.takeError()));
  LoadedRoute loaded;
  loaded.object = std::move(object);
  loaded.code = std::move(*code);
  return loaded;
}

Result<LoadedRoute> Target::load(RouteObject object) const {
  if (!isGpu())
    return loadOnHost(std::move(object));
  Result<cuda::Module> module = cuda::Module::load(*device, object.object);
  if (!module)
    return module.status();
  auto route = std::make_shared<GpuRoute>();
  route->arguments = object.gpuArguments;
  for (const cuda::KernelInfo &info : object.gpuStep) {
    Result<cuda::Kernel> kernel = module->kernel(info);
    if (!kernel)
      return kernel.status();
    route->step.push_back(std::move(*kernel));
  }
  for (auto [info, to] : {std::pair(&object.gpuFold, &route->fold),
                          std::pair(&object.gpuVerify, &route->verify),
                          std::pair(&object.gpuDraft, &route->draft),
                          std::pair(&object.gpuDraftFold, &route->draftFold),
                          std::pair(&object.gpuPrefill, &route->prefill),
                          std::pair(&object.gpuPrepare, &route->prepare)}) {
    if (!*info)
      continue;
    Result<cuda::Kernel> kernel = module->kernel(**info);
    if (!kernel)
      return kernel.status();
    *to = std::move(*kernel);
  }
  LoadedRoute loaded;
  loaded.object = std::move(object);
  loaded.gpu = std::move(route);
  return loaded;
}

Result<cuda::Module> Target::loadText(llvm::StringRef name,
                                      llvm::StringRef text,
                                      const DiskCache &cache) const {
  llvm::SmallVector<llvm::StringRef> key(parts.begin(), parts.end());
  key.append({name, cudaPrelude(), text});
  std::string hash = DiskCache::makeKey(key);
  std::string image;
  if (std::optional<DiskCache::Entry> entry = cache.lookup(hash);
      entry && entry->parts.size() == 1) {
    image = entry->parts[0].str();
  } else {
    Result<std::string> cubin =
        makeCubin(text, ("ladle_" + name + ".cu").str());
    if (!cubin)
      return cubin.status();
    image = std::move(*cubin);
    llvm::consumeError(cache.store(hash, {image}));
  }
  return cuda::Module::load(*device, image);
}

Result<cuda::Kernel> Target::diagnostics(const DiskCache &cache) const {
  Result<cuda::Module> module =
      loadText("diagnostics", diagnosticsText(), cache);
  if (!module)
    return module.status();
  return module->kernel(diagnosticsKernelInfo());
}

Result<std::shared_ptr<const GpuCode>>
Target::shared(const DiskCache &cache) const {
  Result<cuda::Module> module = loadText("cursors", cursorsText(), cache);
  if (!module)
    return module.status();
  Result<cuda::Kernel> advance = module->kernel(cursorsKernelInfo());
  if (!advance)
    return advance.status();
  Result<cuda::Kernel> commit = module->kernel(commitKernelInfo());
  if (!commit)
    return commit.status();
  Result<cuda::Kernel> keep = module->kernel(keepCarriesKernelInfo());
  if (!keep)
    return keep.status();
  Result<cuda::Kernel> note = module->kernel(notePromptsKernelInfo());
  if (!note)
    return note.status();
  Result<cuda::Kernel> clear = module->kernel(clearRowsKernelInfo());
  if (!clear)
    return clear.status();
  Result<cuda::Kernel> reset = module->kernel(resetCursorsKernelInfo());
  if (!reset)
    return reset.status();
  return std::make_shared<const GpuCode>(GpuCode{
      *device, std::move(*advance), std::move(*commit), std::move(*keep),
      std::move(*note), std::move(*clear), std::move(*reset)});
}
