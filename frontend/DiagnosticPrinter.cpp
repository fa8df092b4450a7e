//===- DiagnosticPrinter.cpp - messages as they are shown -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/DiagnosticPrinter.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Unicode.h"
#include "llvm/Support/WithColor.h"

#include <algorithm>

using namespace ladle;

/// Columns that the first bytes of a line take as LLVM prints them, which goes
/// on at the next eighth byte behind a tab.
static size_t columnsOf(llvm::StringRef text) {
  constexpr size_t tabStop = 8;
  size_t bytes = 0, columns = 0;
  while (!text.empty()) {
    auto [part, rest] = text.split('\t');
    // What is no UTF-8 or does not print is taken for a column a byte.
    int width = llvm::sys::unicode::columnWidthUTF8(part);
    columns += width < 0 ? part.size() : static_cast<size_t>(width);
    bytes += part.size();
    if (part.size() != text.size()) {
      size_t spaces = tabStop - bytes % tabStop;
      bytes += spaces;
      columns += spaces;
    }
    text = rest;
  }
  return columns;
}

void frontend::printDiagnostic(const llvm::SMDiagnostic &diagnostic,
                               llvm::raw_ostream &stream) {
  diagnostic.print(nullptr, stream);
  llvm::StringRef line = diagnostic.getLineContents();
  if (diagnostic.getLineNo() < 0 || diagnostic.getColumnNo() < 0 ||
      llvm::all_of(line, [](char c) { return llvm::isASCII(c); }))
    return;
  std::string marks;
  auto mark = [&](size_t from, size_t to, char with) {
    size_t first = columnsOf(line.take_front(from));
    size_t last = std::max(columnsOf(line.take_front(to)), first + 1);
    marks.resize(std::max(marks.size(), last), ' ');
    std::fill(marks.begin() + static_cast<ptrdiff_t>(first),
              marks.begin() + static_cast<ptrdiff_t>(last), with);
  };
  for (auto [from, to] : diagnostic.getRanges())
    mark(from, to, '~');
  auto caret = static_cast<size_t>(diagnostic.getColumnNo());
  mark(caret, caret, '^');
  llvm::WithColor(stream, llvm::raw_ostream::GREEN, /*Bold=*/true) << marks;
  stream << '\n';
}

void frontend::printDiagnosticsInto(llvm::SourceMgr &sourceManager,
                                    llvm::raw_ostream &stream) {
  sourceManager.setDiagHandler(
      [](const llvm::SMDiagnostic &diagnostic, void *into) {
        printDiagnostic(diagnostic, *static_cast<llvm::raw_ostream *>(into));
      },
      &stream);
}
