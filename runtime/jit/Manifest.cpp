//===- Manifest.cpp - plans and interfaces as JSON ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/jit/Manifest.h"

namespace json = llvm::json;

//===----------------------------------------------------------------------===//
// Values, found by LLVM's JSON library through their namespace
//===----------------------------------------------------------------------===//

namespace ladle {

static json::Value toJSON(RouteKind route) {
  return json::Value(llvm::StringRef(toString(route)));
}

static bool fromJSON(const json::Value &value, RouteKind &route,
                     json::Path path) {
  std::optional<llvm::StringRef> text = value.getAsString();
  std::optional<RouteKind> parsed =
      text ? parseRoute(std::string_view(*text)) : std::nullopt;
  if (!parsed)
    path.report("expected a route");
  else
    route = *parsed;
  return parsed.has_value();
}

json::Value toJSON(DType dtype) {
  return json::Value(llvm::StringRef(toString(dtype)));
}

bool fromJSON(const json::Value &value, DType &dtype, json::Path path) {
  std::optional<llvm::StringRef> text = value.getAsString();
  for (DType candidate : {DType::F32, DType::BF16, DType::F16})
    if (text && *text == llvm::StringRef(toString(candidate))) {
      dtype = candidate;
      return true;
    }
  path.report("expected a type");
  return false;
}

static json::Value toJSON(StateLayout layout) {
  return json::Value(llvm::StringRef(toString(layout)));
}

static bool fromJSON(const json::Value &value, StateLayout &layout,
                     json::Path path) {
  std::optional<llvm::StringRef> text = value.getAsString();
  std::optional<StateLayout> parsed =
      text ? parseStateLayout(std::string_view(*text)) : std::nullopt;
  if (!parsed)
    path.report("expected a layout");
  else
    layout = *parsed;
  return parsed.has_value();
}

static json::Value toJSON(const TensorSpec &spec) {
  return json::Object{{"name", spec.name},
                      {"dtype", toJSON(spec.dtype)},
                      {"shape", json::Array(spec.shape)}};
}

static bool fromJSON(const json::Value &value, TensorSpec &spec,
                     json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("name", spec.name) && map.map("dtype", spec.dtype) &&
         map.map("shape", spec.shape);
}

static json::Value toJSON(const StateSpec &spec) {
  return json::Object{{"name", spec.name},    {"dtype", toJSON(spec.dtype)},
                      {"heads", spec.heads},  {"dk", spec.keySize},
                      {"dv", spec.valueSize}, {"layout", toJSON(spec.layout)}};
}

static bool fromJSON(const json::Value &value, StateSpec &spec,
                     json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("name", spec.name) && map.map("dtype", spec.dtype) &&
         map.map("heads", spec.heads) && map.map("dk", spec.keySize) &&
         map.map("dv", spec.valueSize) && map.map("layout", spec.layout);
}

template <typename T> static json::Array toArray(const std::vector<T> &items) {
  json::Array array;
  for (const T &item : items)
    array.push_back(toJSON(item));
  return array;
}

json::Value toJSON(const Signature &signature) {
  return json::Object{{"name", signature.name},
                      {"heads", signature.heads},
                      {"params", toArray(signature.params)},
                      {"tokens", toArray(signature.tokens)},
                      {"carries", toArray(signature.carries)},
                      {"outputs", toArray(signature.outputs)},
                      {"states", toArray(signature.states)}};
}

bool fromJSON(const json::Value &value, Signature &signature, json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("name", signature.name) &&
         map.map("heads", signature.heads) &&
         map.map("params", signature.params) &&
         map.map("tokens", signature.tokens) &&
         map.map("carries", signature.carries) &&
         map.map("outputs", signature.outputs) &&
         map.map("states", signature.states);
}

namespace cuda {

json::Value toJSON(const KernelInfo &info) {
  return json::Object{{"name", info.name},
                      {"grid_blocks", info.gridBlocks},
                      {"threads", info.threads},
                      {"shared_bytes", info.sharedBytes},
                      {"programmatic", info.programmatic},
                      {"cluster", info.cluster},
                      {"runs", info.runs},
                      {"run_tokens", info.runTokens},
                      {"run_bytes", info.runBytes},
                      {"blocks_beside", info.blocksBeside}};
}

bool fromJSON(const json::Value &value, KernelInfo &info, json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("name", info.name) &&
         map.map("grid_blocks", info.gridBlocks) &&
         map.map("threads", info.threads) &&
         map.map("shared_bytes", info.sharedBytes) &&
         map.map("programmatic", info.programmatic) &&
         map.map("cluster", info.cluster) && map.map("runs", info.runs) &&
         map.map("run_tokens", info.runTokens) &&
         map.map("run_bytes", info.runBytes) &&
         map.map("blocks_beside", info.blocksBeside);
}

static json::Value toJSON(const std::optional<KernelInfo> &info) {
  return info ? toJSON(*info) : json::Value(nullptr);
}

static json::Value toJSON(const Argument &argument) {
  return json::Object{{"kind", static_cast<int64_t>(argument.kind)},
                      {"index", static_cast<int64_t>(argument.index)},
                      {"alignment", argument.alignment}};
}

static bool fromJSON(const json::Value &value, Argument &argument,
                     json::Path path) {
  json::ObjectMapper map(value, path);
  int64_t kind, index;
  if (!map || !map.map("kind", kind) || !map.map("index", index) ||
      !map.map("alignment", argument.alignment))
    return false;
  if (kind < 0 || kind > static_cast<int64_t>(Argument::Kind::Output) ||
      index < 0) {
    path.report("expected an argument");
    return false;
  }
  argument.kind = static_cast<Argument::Kind>(kind);
  argument.index = static_cast<size_t>(index);
  return true;
}

} // namespace cuda

namespace jit {

json::Object toJSON(const RouteSummary &summary) {
  return json::Object{{"route", toJSON(summary.route)},
                      {"fold_threshold", summary.foldThreshold},
                      {"seconds", summary.seconds},
                      {"bytes", summary.bytes},
                      {"flops", summary.flops}};
}

static bool fromJSON(const json::Value &value, RouteSummary &summary,
                     json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("route", summary.route) &&
         map.map("fold_threshold", summary.foldThreshold) &&
         map.map("seconds", summary.seconds) &&
         map.map("bytes", summary.bytes) && map.map("flops", summary.flops);
}

} // namespace jit
} // namespace ladle

using namespace ladle;

//===----------------------------------------------------------------------===//
// Documents
//===----------------------------------------------------------------------===//

/// `read` fills a T from the text; anything odd gives nothing.
template <typename T>
static std::optional<T>
parse(llvm::StringRef text,
      llvm::function_ref<bool(json::ObjectMapper &, T &)> read) {
  llvm::Expected<json::Value> value = json::parse(text);
  if (!value) {
    llvm::consumeError(value.takeError());
    return std::nullopt;
  }
  json::Path::Root root;
  json::ObjectMapper map(*value, root);
  T result;
  if (!map || !read(map, result))
    return std::nullopt;
  return result;
}

static std::string toText(const json::Value &value) {
  std::string text;
  llvm::raw_string_ostream(text) << value;
  return text;
}

std::string jit::serialize(const Plan &plan) {
  json::Array routes;
  for (const RouteSummary &summary : plan.routes)
    routes.push_back(toJSON(summary));
  return toText(json::Object{{"shape", plan.shape},
                             {"route", toJSON(plan.route)},
                             {"fold_threshold", plan.foldThreshold},
                             {"crossover", plan.crossover},
                             {"routes", std::move(routes)}});
}

std::optional<jit::Plan> jit::parsePlan(llvm::StringRef text) {
  return parse<Plan>(text, [](json::ObjectMapper &map, Plan &plan) {
    return map.map("shape", plan.shape) && map.map("route", plan.route) &&
           map.map("fold_threshold", plan.foldThreshold) &&
           map.map("crossover", plan.crossover) &&
           map.map("routes", plan.routes);
  });
}

std::string jit::serialize(const RouteObject &object) {
  return toText(json::Object{{"route", toJSON(object.route)},
                             {"gpu_step", toArray(object.gpuStep)},
                             {"gpu_fold", toJSON(object.gpuFold)},
                             {"gpu_verify", toJSON(object.gpuVerify)},
                             {"gpu_prefill", toJSON(object.gpuPrefill)},
                             {"gpu_prepare", toJSON(object.gpuPrepare)},
                             {"gpu_draft", toJSON(object.gpuDraft)},
                             {"gpu_draft_fold", toJSON(object.gpuDraftFold)},
                             {"gpu_arguments", toArray(object.gpuArguments)},
                             {"signature", toJSON(object.signature)},
                             {"fields", toArray(object.fields)},
                             {"head_group", object.headGroup},
                             {"decode", object.decode},
                             {"decode_fold", object.decodeFold},
                             {"fold", object.fold},
                             {"verify", object.verify},
                             {"verify_fold", object.verifyFold},
                             {"prefill_fold", object.prefillFold},
                             {"prefill_entries", object.prefillEntries},
                             {"workspace", object.workspaceBytes},
                             {"workspace_per_head", object.workspacePerHead},
                             {"warnings", object.warnings}});
}

std::optional<jit::RouteObject> jit::parseRouteObject(llvm::StringRef text) {
  return parse<RouteObject>(text, [](json::ObjectMapper &map,
                                     RouteObject &object) {
    return map.map("route", object.route) &&
           map.map("gpu_step", object.gpuStep) &&
           map.map("gpu_fold", object.gpuFold) &&
           map.map("gpu_verify", object.gpuVerify) &&
           map.map("gpu_prefill", object.gpuPrefill) &&
           map.map("gpu_prepare", object.gpuPrepare) &&
           map.map("gpu_draft", object.gpuDraft) &&
           map.map("gpu_draft_fold", object.gpuDraftFold) &&
           map.map("gpu_arguments", object.gpuArguments) &&
           map.map("signature", object.signature) &&
           map.map("fields", object.fields) &&
           map.map("head_group", object.headGroup) &&
           map.map("decode", object.decode) &&
           map.map("decode_fold", object.decodeFold) &&
           map.map("fold", object.fold) && map.map("verify", object.verify) &&
           map.map("verify_fold", object.verifyFold) &&
           map.map("prefill_fold", object.prefillFold) &&
           map.map("prefill_entries", object.prefillEntries) &&
           map.map("workspace", object.workspaceBytes) &&
           map.map("workspace_per_head", object.workspacePerHead) &&
           map.map("warnings", object.warnings);
  });
}
