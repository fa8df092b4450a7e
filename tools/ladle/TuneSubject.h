//===- TuneSubject.h - what steps are tuned ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_TUNESUBJECT_H
#define LADLE_TOOLS_LADLE_TUNESUBJECT_H

#include "runtime/tune/Tuner.h"
#include "tools/ladle/DraftTimer.h"

namespace ladle::tool {

/// The steps of a file that are tuned: what a candidate stands for, what it
/// should take, and where it runs.
class TuneSubject {
public:
  virtual ~TuneSubject() = default;

  /// Whether the file has no errors; they are on stderr.
  virtual bool isValid(const tune::Candidate &candidate) = 0;
  /// Why a candidate is not legal; empty if it is.
  virtual std::string obstacle(const tune::Candidate &candidate) = 0;
  virtual tune::Expectation expect(const tune::Candidate &candidate,
                                   const Rates &rates, int64_t batch) = 0;
  /// What the model chooses on a card, whatever a run measures there. None if
  /// none is legal.
  virtual std::optional<tune::Candidate>
  choose(const std::vector<tune::Candidate> &candidates,
         const std::string &card, int64_t batch) = 0;
  virtual Result<jit::GpuProgram> compile(const tune::Candidate &candidate) = 0;
  virtual std::unique_ptr<tune::Measurer>
  makeMeasurer(const measure::Gpu &gpu, const Rates &rates, int64_t batch) = 0;
};

/// Steps of a token.
std::unique_ptr<TuneSubject> tuneTokens(const SourceOptions &source);
/// Steps that verify so many drafts a row, of which this part is accepted.
std::unique_ptr<TuneSubject> tuneDrafts(const SourceOptions &source,
                                        int64_t drafts, double acceptance);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_TUNESUBJECT_H
