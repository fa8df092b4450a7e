//===- AttentionOracle.cpp - the oracle of an attention -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/BoundedCheck.h"

#include "dialect/LadleOps.h"
#include "frontend/DiagnosticPrinter.h"
#include "frontend/Frontend.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace ladle;

/// Has what is said of a text printed into `stream`.
static void collectInto(llvm::SourceMgr &sourceManager, std::string_view path,
                        std::string_view source, llvm::raw_ostream &stream) {
  sourceManager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(source, path), llvm::SMLoc());
  frontend::printDiagnosticsInto(sourceManager, stream);
}

/// What `make` makes of the attention of a text; nothing, and diagnostics in
/// `messages`, if it does not compile.
template <typename Made>
static std::optional<Made>
withAttention(std::string_view path, std::string_view source,
              frontend::ElaborationOptions options, std::string &messages,
              llvm::function_ref<llvm::FailureOr<Made>(AttentionOp)> make) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  llvm::SourceMgr sourceManager;
  llvm::raw_string_ostream stream(messages);
  collectInto(sourceManager, path, source, stream);
  mlir::SourceMgrDiagnosticHandler handler(sourceManager, &context, stream);
  options.takesAttention = true;
  mlir::OwningOpRef<mlir::ModuleOp> module =
      frontend::compileToSpec(context, sourceManager, options);
  if (!module || module->getOps<AttentionOp>().empty())
    return std::nullopt;
  auto made = make(*module->getOps<AttentionOp>().begin());
  if (failed(made))
    return std::nullopt;
  return std::optional<Made>(std::in_place, std::move(*made));
}

std::optional<interpreter::AttentionInterpreter>
check::compileAttentionOracle(std::string_view path, std::string_view source,
                              frontend::ElaborationOptions options,
                              std::string &messages,
                              interpreter::Precision precision) {
  return withAttention<interpreter::AttentionInterpreter>(
      path, source, std::move(options), messages, [&](AttentionOp attention) {
        return interpreter::AttentionInterpreter::create(attention, precision);
      });
}

std::optional<interpreter::BoundedInterpreter>
check::compileBoundedOracle(std::string_view path, std::string_view source,
                            frontend::ElaborationOptions options,
                            std::string &messages,
                            const std::optional<SegmentSettings> &segments) {
  return withAttention<interpreter::BoundedInterpreter>(
      path, source, std::move(options), messages, [&](AttentionOp attention) {
        if (segments)
          attention.setSegments(segments->sinks, segments->window,
                                segments->segment);
        return interpreter::BoundedInterpreter::create(attention);
      });
}

std::optional<bool>
check::hasBoundedCache(std::string_view path, std::string_view source,
                       const frontend::ElaborationOptions &options) {
  // Whoever compiles the file reports what is wrong with it.
  std::string messages;
  return withAttention<bool>(
      path, source, options, messages, [](AttentionOp attention) {
        return llvm::FailureOr<bool>(attention.isBounded());
      });
}

check::AttentionSizeNames
check::attentionSizeNames(std::string_view path, std::string_view source,
                          const interpreter::AttentionInterpreter &oracle) {
  AttentionSizeNames names;
  llvm::SourceMgr sourceManager;
  sourceManager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(source, path), llvm::SMLoc());
  auto all = frontend::listRecurrences(sourceManager);
  if (!all)
    return names;
  for (const frontend::RecurrenceInfo &info : *all) {
    if (info.name != oracle.name)
      continue;
    auto nameOf = [&](const interpreter::ValueInfo &token, size_t dim) {
      for (const frontend::TokenInfo &each : info.tokens)
        if (each.name == token.name && dim < each.dims.size() &&
            llvm::is_contained(info.sizes, each.dims[dim]))
          return each.dims[dim];
      return std::string();
    };
    names = {nameOf(oracle.getQuery(), 0), nameOf(oracle.getKey(), 0),
             nameOf(oracle.getKey(), 1), nameOf(oracle.getValue(), 1)};
  }
  return names;
}

std::string check::parseErrors(std::string_view path, std::string_view source) {
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  llvm::SourceMgr sourceManager;
  collectInto(sourceManager, path, source, stream);
  if (frontend::listRecurrences(sourceManager))
    messages.clear(); // of warnings
  return messages;
}

bool check::choosesAttention(std::string_view path, std::string_view source,
                             const frontend::ElaborationOptions &options) {
  llvm::SourceMgr sourceManager;
  sourceManager.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(source, path), llvm::SMLoc());
  // Whoever compiles the file reports what is wrong with it.
  sourceManager.setDiagHandler([](const llvm::SMDiagnostic &, void *) {});
  auto all = frontend::listRecurrences(sourceManager);
  if (!all || all->empty())
    return false;
  for (const frontend::RecurrenceInfo &info : *all)
    if (info.name == options.recurrence)
      return info.isAttention;
  return options.recurrence.empty() && all->front().isAttention;
}
