//===- TunedTable.h - what was chosen, by shape and batch -------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_TUNE_TUNEDTABLE_H
#define LADLE_RUNTIME_TUNE_TUNEDTABLE_H

#include "ladle/status.h"
#include "runtime/tune/Candidate.h"
#include "runtime/tune/Problem.h"

#include <optional>

namespace ladle::tune {

/// What tuning has chosen for a shape on a device.
struct TunedChoice {
  std::string device, shape, entryType;
  int64_t batch = 1;
  Candidate candidate;
  /// Of steps that verify so many a row, of which this part is accepted; 0:
  /// steps of a token.
  int64_t drafts = 0;
  double acceptance = 0;
  double seconds = 0, limit = 0; ///< a step, amortised over the cycle
  std::string date;
};

class TunedTable {
public:
  /// InvalidData says what is wrong.
  static Result<TunedTable> parse(const std::string &text);
  /// The tables that are compiled in.
  static const TunedTable &builtIn();

  /// The choice for the batch that is nearest: by ratio, at most four times as
  /// large or small. Beyond a batch that fills the device, no matter how far.
  /// Of so many drafts, no others.
  std::optional<TunedChoice> lookup(const std::string &device,
                                    const std::string &shape,
                                    const std::string &entryType, int64_t batch,
                                    int64_t drafts = 0) const;
  /// Replaces the choice for the same shape, batch and number of drafts.
  void add(TunedChoice choice);
  void add(const TunedTable &other);
  /// One choice a line, sorted.
  std::string str() const;
  size_t size() const { return choices.size(); }

private:
  std::vector<TunedChoice> choices;
};

/// What the user has tuned on this machine, and for what is not there the
/// tables that are compiled in. Nothing for a device or a shape that nobody has
/// tuned: then the cost model decides.
std::optional<TunedChoice> lookupTuned(const std::string &device,
                                       const Signature &signature,
                                       const std::string &entryType,
                                       int64_t batch, int64_t drafts = 0);

/// The same for describe(signature).
std::optional<TunedChoice> lookupTuned(const std::string &device,
                                       const std::string &shape,
                                       const std::string &entryType,
                                       int64_t batch, int64_t drafts = 0);

/// Adds a choice to the table at `path`, which need not be there yet.
Status addToTable(const std::string &path, const TunedChoice &choice);

/// $LADLE_TUNE_DIR, or `ladle/tune` in the user's cache. Empty if there is
/// none.
std::string defaultTuneFolder();
/// The user's table in a folder.
std::string userTable(const std::string &folder);

} // namespace ladle::tune

#endif // LADLE_RUNTIME_TUNE_TUNEDTABLE_H
