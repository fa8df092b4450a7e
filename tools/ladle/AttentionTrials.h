//===- AttentionTrials.h - what was measured of an attention ----*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_ATTENTIONTRIALS_H
#define LADLE_TOOLS_LADLE_ATTENTIONTRIALS_H

#include "ladle/attention.h"

#include <string>
#include <vector>

namespace ladle::tool {

/// What a layer is tuned in; tau = 1 is exact attention.
struct AttentionCandidate {
  double tau = 1;
  int64_t window = 1, band = 0, maxChain = 0;

  bool isExact() const { return tau >= 1; }
  /// "tau=0.45 window=1024 band=256 max_chain=16", or "exact".
  std::string str() const;
  /// Takes the place of these numbers in `settings`.
  AttentionSettings in(AttentionSettings settings) const;
  bool operator==(const AttentionCandidate &) const = default;
};

/// One candidate on the traces of a layer.
struct AttentionTrial {
  AttentionCandidate candidate;
  /// The largest mean error of a trace. If the run was cut short, what it is
  /// sure to exceed.
  double error = 0;
  bool isCutShort = false;
  double bytes = 0, exactBytes = 0; ///< of all steps; none if cut short
  double hits = 0;                  ///< share of heads of tokens

  bool holds(double bound) const { return !isCutShort && error <= bound; }
  /// Whether it says what a run with this bound would.
  bool settles(double bound) const { return !isCutShort || error >= bound; }
};

/// Trials on disk: one file for a program and the traces of a layer, an entry a
/// candidate, written as they come.
class AttentionTrials {
public:
  /// Makes the folder. `problem` says what the trials hold for; a file of
  /// another one, or one that cannot be read, counts as empty.
  static Result<AttentionTrials> open(const std::string &folder,
                                      const std::string &name,
                                      const std::string &problem);
  const AttentionTrial *find(const AttentionCandidate &candidate) const;
  /// Replaces the trial of a candidate, and writes the file.
  Status record(const AttentionTrial &trial);
  void forget() { known.clear(); }

private:
  std::string path, problem;
  std::vector<AttentionTrial> known;
};

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_ATTENTIONTRIALS_H
