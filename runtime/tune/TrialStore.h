//===- TrialStore.h - what was measured, on disk ----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_TUNE_TRIALSTORE_H
#define LADLE_RUNTIME_TUNE_TRIALSTORE_H

#include "runtime/tune/Problem.h"
#include "runtime/tune/Tuner.h"

namespace ladle::tune {

/// One file a problem, one entry a configuration, with its raw samples. Entries
/// of another driver or other kernels are not taken over.
class TrialStore {
public:
  /// Makes the folder. A file that cannot be read counts as empty.
  static Result<TrialStore> open(const std::string &folder,
                                 const Problem &problem);

  const std::vector<Trial> &trials() const { return known; }
  const std::string &path() const { return file; }
  /// Replaces the entry of a configuration, and writes the file.
  Status record(const Trial &trial);

private:
  Status save() const;
  std::string file;
  Problem problem;
  std::vector<Trial> known;
};

} // namespace ladle::tune

#endif // LADLE_RUNTIME_TUNE_TRIALSTORE_H
