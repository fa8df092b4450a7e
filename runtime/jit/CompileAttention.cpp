//===- CompileAttention.cpp - from a .ladle file to an attention ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks into the cache first, and starts a compiler only when nothing is there.
//
//===----------------------------------------------------------------------===//

#include "codegen/DiskCache.h"
#include "ladle/version.h"
#include "runtime/jit/AttentionCompiler.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace ladle;
namespace json = llvm::json;

/// A number in full precision.
static std::string exactText(double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%a", value);
  return text;
}

/// All that the code depends on. The name of the file is not part of it: it
/// shows in diagnostics alone, and nothing with an error is stored.
static std::string keyOf(std::string_view text,
                         const AttentionCompileOptions &options,
                         const jit::Target &target) {
  std::vector<std::string> parts{"attention",
                                 version(),
                                 jit::compilerFingerprint(),
                                 LLVM_VERSION_STRING,
                                 std::string(text),
                                 options.attention,
                                 options.preset,
                                 options.summaryType,
                                 std::to_string(options.pageSize)};
  auto add = [&](const auto &map, auto toText) {
    parts.push_back(std::to_string(map.size()));
    for (const auto &[name, value] : map) {
      parts.push_back(name);
      parts.push_back(toText(value));
    }
  };
  add(options.sizes, [](int64_t size) { return std::to_string(size); });
  add(options.options, exactText);
  auto same = [](const std::string &value) { return value; };
  add(options.tokenTypes, same);
  add(options.stateTypes, same);
  parts.push_back(std::to_string(options.segments.has_value()));
  if (options.segments)
    for (int64_t each : {options.segments->sinks, options.segments->window,
                         options.segments->segment})
      parts.push_back(std::to_string(each));
  llvm::append_range(parts, target.keyParts());
  llvm::SmallVector<llvm::StringRef> views(parts.begin(), parts.end());
  return DiskCache::makeKey(views);
}

static std::string makeManifest(const jit::AttentionObject &object,
                                const jit::Target &target, bool isCached) {
  json::Object manifest{{"version", version()},
                        {"bytes", static_cast<int64_t>(object.image.size())},
                        {"cached", isCached},
                        {"warnings", object.program.warnings},
                        {"milliseconds", target.milliseconds()}};
  target.describe(manifest);
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(manifest));
  return text;
}

static Result<AttentionProgram> load(jit::AttentionObject object,
                                     const jit::Target &target,
                                     const DiskCache &cache, bool isCached) {
  AttentionProgramImpl &made = object.program;
  if (target.isGpu()) {
    const cuda::Device &device = target.gpu();
    Result<std::shared_ptr<GpuAttentionCode>> code =
        jit::loadGpuAttention(device, object.image, object.steps, made);
    if (!code)
      return code.status();
    (*code)->compileDiagnostics = [target, cache] {
      return target.diagnostics(cache);
    };
    made.gpu = std::move(*code);
    made.device = device.id();
  } else {
    std::vector<std::string> symbols;
    for (const jit::AttentionSymbol &each : object.symbols)
      symbols.push_back(each.symbol);
    llvm::Expected<LoadedObject> code = loadObject(object.image, symbols);
    if (!code)
      return Status(ErrorCode::Internal, llvm::toString(code.takeError()));
    for (auto [each, address] :
         llvm::zip_equal(object.symbols, code->addresses))
      *jit::placeOf(made, each.place) =
          reinterpret_cast<KernelFunction>(address);
    if (!made.hasRing)
      made.prefill = made.decode;
    made.code = std::move(code->owner);
  }
  made.manifest = makeManifest(object, target, isCached);
  return AttentionProgram(std::move(made));
}

Result<AttentionProgram>
ladle::compileAttention(std::string_view text, std::string_view name,
                        const AttentionCompileOptions &options) {
  if (options.target != "cpu" && options.target != "cuda")
    return Status(ErrorCode::InvalidArgument,
                  "target is '" + options.target + "', expected cpu or cuda");
  CompileOptions where;
  where.target = options.target;
  where.device = options.device;
  Result<jit::Target> target = jit::Target::choose(where);
  if (!target)
    return target.status();
  DiskCache cache =
      options.useDiskCache ? DiskCache::openDefault() : DiskCache("");
  std::string key = keyOf(text, options, *target);
  if (std::optional<DiskCache::Entry> entry = cache.lookup(key);
      entry && entry->parts.size() == 2)
    if (std::optional<jit::AttentionObject> object =
            jit::parseAttentionObject(entry->parts[0])) {
      object->image = entry->parts[1].str();
      if (Result<AttentionProgram> program =
              load(std::move(*object), *target, cache, /*isCached=*/true))
        return program;
    }
  Result<jit::AttentionObject> object =
      jit::compileAttentionObject(text, name, options, *target);
  if (!object)
    return object.status();
  // A cache that cannot be written costs time, and is no error.
  if (options.useDiskCache)
    llvm::consumeError(
        cache.store(key, {jit::serialize(*object), object->image}));
  return load(std::move(*object), *target, cache, /*isCached=*/false);
}
