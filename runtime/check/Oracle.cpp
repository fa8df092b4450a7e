//===- Oracle.cpp - from source text to the float64 oracle ----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Oracle.h"

#include "dialect/LadleDialect.h"
#include "dialect/LadleOps.h"
#include "frontend/DiagnosticPrinter.h"
#include "frontend/Frontend.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;
using namespace ladle;
using interpreter::Precision;
using interpreter::SpecInterpreter;

/// The values that a read of a state reaches. Only they are rounded to the
/// entry type: inputs are cached as they came.
static llvm::DenseSet<Value> findDependentValues(RecurrenceOp recurrence) {
  llvm::DenseSet<Value> dependent;
  for (Operation &op : recurrence.getBody().front()) {
    bool isReached =
        isa<ReadOp>(op) || llvm::any_of(op.getOperands(), [&](Value v) {
          return dependent.contains(v);
        });
    for (Value result : op.getResults())
      if (isReached && !isa<StateType>(result.getType()))
        dependent.insert(result);
  }
  return dependent;
}

namespace {
/// What both kinds of source need.
class Session {
public:
  Session(std::string_view name, std::string_view text, std::string &messages)
      : context(MLIRContext::Threading::DISABLED), stream(messages),
        handler(sourceManager, &context, stream) {
    context.printOpOnDiagnostic(false);
    context.loadDialect<LadleDialect, arith::ArithDialect, math::MathDialect>();
    frontend::printDiagnosticsInto(sourceManager, stream);
    sourceManager.AddNewSourceBuffer(
        llvm::MemoryBuffer::getMemBufferCopy(text, name), llvm::SMLoc());
  }

  std::optional<SpecInterpreter> interpret(ModuleOp module,
                                           Precision entryPrecision) {
    auto recurrences = module.getOps<RecurrenceOp>();
    if (recurrences.empty()) {
      module.emitError("holds no ladle.recurrence");
      return std::nullopt;
    }
    RecurrenceOp recurrence = *recurrences.begin();
    llvm::DenseSet<Value> dependent = findDependentValues(recurrence);
    FailureOr<SpecInterpreter> oracle = SpecInterpreter::create(
        recurrence, {entryPrecision, [&](WriteOp write) {
                       return dependent.contains(write.getValue());
                     }});
    if (failed(oracle))
      return std::nullopt;
    return std::optional<SpecInterpreter>(std::in_place, std::move(*oracle));
  }

  MLIRContext context;
  llvm::SourceMgr sourceManager;

private:
  llvm::raw_string_ostream stream;
  // What has no line of its own goes there, too.
  SourceMgrDiagnosticHandler handler;
};
} // namespace

std::optional<SpecInterpreter>
check::compileOracle(std::string_view path, std::string_view source,
                     const frontend::ElaborationOptions &options,
                     std::string &messages, Precision entryPrecision) {
  Session session(path, source, messages);
  OwningOpRef<ModuleOp> module =
      frontend::compileToSpec(session.context, session.sourceManager, options);
  if (!module)
    return std::nullopt;
  return session.interpret(*module, entryPrecision);
}

std::optional<SpecInterpreter> check::parseOracle(std::string_view ir,
                                                  std::string &messages,
                                                  Precision entryPrecision) {
  Session session("oracle.mlir", ir, messages);
  OwningOpRef<ModuleOp> module =
      parseSourceFile<ModuleOp>(session.sourceManager, &session.context);
  if (!module)
    return std::nullopt;
  return session.interpret(*module, entryPrecision);
}

std::map<std::string, int64_t>
check::readSizes(std::string_view path, std::string_view source,
                 const frontend::ElaborationOptions &options) {
  std::string messages;
  Session session(path, source, messages);
  auto recurrences = frontend::listRecurrences(session.sourceManager);
  if (!recurrences)
    return {};
  /// The item of that name; without a name the first.
  auto find = [](const auto &items, const std::string &name) {
    return llvm::find_if(items, [&](const auto &item) {
      return name.empty() || item.name == name;
    });
  };
  std::map<std::string, int64_t> sizes;
  auto recurrence = find(*recurrences, options.recurrence);
  if (recurrence == recurrences->end())
    return {};
  auto preset = find(recurrence->presets, options.preset);
  if (preset != recurrence->presets.end())
    for (const auto &[name, value] : preset->values)
      if (llvm::is_contained(recurrence->sizes, name))
        sizes[name] = static_cast<int64_t>(value);
  for (const auto &[name, value] : options.sizes)
    if (llvm::is_contained(recurrence->sizes, name))
      sizes[name] = value;
  return sizes;
}
