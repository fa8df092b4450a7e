//===- SourceChoices.cpp - what a command compiles ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/SourceChoices.h"

using namespace ladle;

frontend::ElaborationOptions tool::elaborationOf(const SourceOptions &source) {
  frontend::ElaborationOptions elaboration;
  elaboration.recurrence = source.recurrence;
  elaboration.takesAttention = source.takesAttention;
  elaboration.preset = source.preset;
  elaboration.sizes = source.sizes;
  elaboration.options = source.options;
  return elaboration;
}

CompileOptions tool::compileOptionsOf(const SourceOptions &source) {
  CompileOptions compile;
  compile.recurrence = source.recurrence;
  compile.preset = source.preset;
  compile.sizes = source.sizes;
  compile.options = source.options;
  compile.stateType = source.stateType;
  compile.entryType = source.entryType;
  compile.stateLayout = source.stateLayout;
  compile.capacity = source.capacity;
  return compile;
}
