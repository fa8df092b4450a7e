//===- Frontend.cpp - from a .ladle file to the spec stage ------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Frontend.h"

#include "dialect/LadleOps.h"
#include "frontend/ExprChecker.h"
#include "frontend/IRGen.h"
#include "frontend/Parser.h"
#include "frontend/Sema.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace ladle::frontend;

mlir::OwningOpRef<mlir::ModuleOp>
ladle::frontend::compileToSpec(mlir::MLIRContext &context,
                               llvm::SourceMgr &sourceManager,
                               const ElaborationOptions &options) {
  context.loadDialect<ladle::LadleDialect, mlir::arith::ArithDialect,
                      mlir::math::MathDialect>();
  Diagnostics diagnostics(sourceManager);
  SourceFile file = parse(diagnostics);
  Recurrence *recurrence = selectRecurrence(file, options, diagnostics);
  if (!recurrence)
    return {};
  std::optional<Configuration> configuration =
      configure(*recurrence, options, diagnostics);
  if (!configuration)
    return {};
  std::optional<Scope> scope =
      checkRecurrence(*recurrence, *configuration, options, diagnostics);
  if (!scope)
    return {};
  return recurrence->isAttention
             ? generateAttention(context, sourceManager, *recurrence, *scope)
             : generateSpec(context, sourceManager, *recurrence, *scope);
}

std::optional<std::vector<RecurrenceInfo>>
ladle::frontend::listRecurrences(llvm::SourceMgr &sourceManager) {
  Diagnostics diagnostics(sourceManager);
  SourceFile file = parse(diagnostics);
  Scope empty(diagnostics);
  ExprChecker checker(empty, diagnostics);
  std::vector<RecurrenceInfo> result;
  for (Recurrence &recurrence : file.recurrences) {
    RecurrenceInfo &info = result.emplace_back();
    info.name = recurrence.name.str();
    info.isAttention = recurrence.isAttention;
    for (const SizeParameter &size : recurrence.sizes)
      info.sizes.push_back(size.name.str());
    for (const Statement &statement : recurrence.statements) {
      if (statement.kind != Statement::Kind::Declare ||
          statement.storage != Statement::Storage::Token)
        continue;
      for (const ArrayDecl &array : statement.arrays) {
        TokenInfo &token = info.tokens.emplace_back();
        token.name = array.name.str();
        for (const DimExpr &dim : array.dims)
          token.dims.push_back(dim.name);
      }
    }
    for (Preset &preset : recurrence.presets) {
      PresetInfo &presetInfo = info.presets.emplace_back();
      presetInfo.name = preset.name.str();
      for (PresetEntry &entry : preset.entries)
        if (auto value = checker.checkConstant(*entry.value, "the value"))
          presetInfo.values.emplace_back(entry.name.str(), *value);
    }
  }
  if (diagnostics.hasErrors())
    return std::nullopt;
  return result;
}
