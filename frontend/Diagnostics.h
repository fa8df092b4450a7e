//===- Diagnostics.h - errors at the user's source ----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_FRONTEND_DIAGNOSTICS_H
#define LADLE_FRONTEND_DIAGNOSTICS_H

#include "llvm/ADT/Twine.h"
#include "llvm/Support/SourceMgr.h"

#include <string>

namespace ladle::frontend {

/// Reports to a source manager, and counts.
///
/// Messages are lower case without a full stop and quote the actual text; a
/// note that follows says the way out. After `maxErrors` errors the rest is
/// dropped, because one mistake may be repeated on every line.
class Diagnostics {
public:
  static constexpr unsigned maxErrors = 20;

  explicit Diagnostics(llvm::SourceMgr &sourceManager)
      : sourceManager(sourceManager) {}

  /// Reports an error; `range` is underlined when given.
  void error(llvm::SMLoc loc, const llvm::Twine &message,
             llvm::SMRange range = {});
  void warning(llvm::SMLoc loc, const llvm::Twine &message);
  /// Belongs to the error or warning just reported, and is dropped with it.
  void note(llvm::SMLoc loc, const llvm::Twine &message);
  /// What else is wrong behind an error in its line comes of it.
  void dropRestOfLine(llvm::SMLoc loc) { brokenFrom = loc; }

  bool hasErrors() const { return numErrors != 0; }
  bool isFull() const { return numErrors >= maxErrors; }

  llvm::SourceMgr &getSourceManager() { return sourceManager; }

private:
  bool comesOfAnother(llvm::SMLoc loc) const;

  llvm::SourceMgr &sourceManager;
  llvm::SMLoc brokenFrom;
  unsigned numErrors = 0;
  bool dropNotes = false;
};

/// `text` in quotes, clipped, with escapes for what does not print.
std::string quote(llvm::StringRef text);

/// A number as a person writes it: 16, 0.5, 1e-06.
std::string formatNumber(double value);

/// Finds the candidate that `name` is probably a misspelling of.
class Suggestion {
public:
  explicit Suggestion(llvm::StringRef name) : name(name) {}
  void consider(llvm::StringRef candidate);
  /// Empty if nothing is close.
  llvm::StringRef get() const { return best; }

private:
  llvm::StringRef name;
  llvm::StringRef best;
  unsigned bestDistance = ~0u;
};

} // namespace ladle::frontend

#endif // LADLE_FRONTEND_DIAGNOSTICS_H
