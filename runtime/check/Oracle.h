//===- Oracle.h - from source text to the float64 oracle --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_ORACLE_H
#define LADLE_RUNTIME_CHECK_ORACLE_H

#include "codegen/interpreter/SpecInterpreter.h"
#include "frontend/Options.h"

#include <optional>
#include <string>
#include <string_view>

namespace ladle::check {

/// The oracle of a .ladle file whose text is `source` and whose name in
/// messages is `path`. If `entryPrecision` is given, it rounds what a buffer
/// entry would round. Nothing, and the diagnostics in `messages`, on an error.
std::optional<interpreter::SpecInterpreter> compileOracle(
    std::string_view path, std::string_view source,
    const frontend::ElaborationOptions &options, std::string &messages,
    interpreter::Precision entryPrecision = interpreter::Precision::Float64);

/// The same of a module in MLIR's text form that holds one recurrence.
std::optional<interpreter::SpecInterpreter> parseOracle(
    std::string_view ir, std::string &messages,
    interpreter::Precision entryPrecision = interpreter::Precision::Float64);

/// The sizes that compileOracle elaborates with; none if the file is wrong.
std::map<std::string, int64_t>
readSizes(std::string_view path, std::string_view source,
          const frontend::ElaborationOptions &options);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_ORACLE_H
