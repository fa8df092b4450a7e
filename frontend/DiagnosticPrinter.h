//===- DiagnosticPrinter.h - messages as they are shown -----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_DIAGNOSTICPRINTER_H
#define LADLE_FRONTEND_DIAGNOSTICPRINTER_H

#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace ladle::frontend {

/// Prints a message with its line and a caret, which is where the character
/// stands in a terminal: LLVM leaves it out where a line has others than ASCII,
/// and comments have Greek ones.
void printDiagnostic(const llvm::SMDiagnostic &diagnostic,
                     llvm::raw_ostream &stream);

/// Has whatever is said of the buffers of a source manager printed into
/// `stream`, which outlives it, in colors where the stream has any.
void printDiagnosticsInto(llvm::SourceMgr &sourceManager,
                          llvm::raw_ostream &stream);

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_DIAGNOSTICPRINTER_H
