//===- Diagnostics.cpp - errors at the user's source ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "frontend/Diagnostics.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Unicode.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

using namespace ladle::frontend;

bool Diagnostics::comesOfAnother(llvm::SMLoc loc) const {
  const char *from = brokenFrom.getPointer(), *at = loc.getPointer();
  return from && from < at && std::find(from, at, '\n') == at;
}

void Diagnostics::error(llvm::SMLoc loc, const llvm::Twine &message,
                        llvm::SMRange range) {
  if (numErrors == maxErrors || comesOfAnother(loc)) {
    dropNotes = true;
    return;
  }
  dropNotes = false;
  ++numErrors;
  llvm::SmallVector<llvm::SMRange, 1> ranges;
  if (range.isValid())
    ranges.push_back(range);
  sourceManager.PrintMessage(loc, llvm::SourceMgr::DK_Error, message, ranges);
  if (numErrors == maxErrors)
    sourceManager.PrintMessage(loc, llvm::SourceMgr::DK_Note,
                               "too many errors; further ones are not shown");
}

void Diagnostics::warning(llvm::SMLoc loc, const llvm::Twine &message) {
  dropNotes = isFull();
  if (!dropNotes)
    sourceManager.PrintMessage(loc, llvm::SourceMgr::DK_Warning, message);
}

void Diagnostics::note(llvm::SMLoc loc, const llvm::Twine &message) {
  if (!dropNotes)
    sourceManager.PrintMessage(loc, llvm::SourceMgr::DK_Note, message);
}

std::string ladle::frontend::quote(llvm::StringRef text) {
  constexpr size_t maxShown = 40;
  constexpr unsigned char kind = 0xC0, continues = 0x80; // of a UTF-8 byte
  size_t size = std::min(text.size(), maxShown);
  while (size > 0 && size < text.size() && (text[size] & kind) == continues)
    --size;
  llvm::StringRef shown = text.take_front(size);
  // Letters of any alphabet, as the user wrote them.
  bool prints = llvm::sys::unicode::columnWidthUTF8(shown) >= 0;
  std::string result;
  llvm::raw_string_ostream os(result);
  os << '\'';
  for (char byte : shown)
    if (prints && !llvm::isASCII(byte))
      os << byte;
    else
      os.write_escaped(llvm::StringRef(&byte, 1), /*UseHexEscapes=*/true);
  os << (size < text.size() ? "...'" : "'");
  return result;
}

std::string ladle::frontend::formatNumber(double value) {
  constexpr double exactIntegers = 1e15;
  if (std::abs(value) < exactIntegers && value == std::trunc(value))
    return std::to_string(static_cast<int64_t>(value));
  std::string result;
  llvm::raw_string_ostream(result) << llvm::format("%g", value);
  return result;
}

void Suggestion::consider(llvm::StringRef candidate) {
  // A third of the letters may be wrong (two exchanged ones count as two), but
  // a single letter is no hint.
  unsigned limit = (name.size() + 2) / 3;
  unsigned distance = candidate.lower() == name.lower()
                          ? 0
                          : name.edit_distance(candidate, true, limit);
  if (name.size() < 2 && distance != 0)
    return;
  if (distance <= limit && distance < bestDistance) {
    best = candidate;
    bestDistance = distance;
  }
}
