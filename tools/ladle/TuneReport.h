//===- TuneReport.h - what tuning has found, as text ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_TUNEREPORT_H
#define LADLE_TOOLS_LADLE_TUNEREPORT_H

#include "runtime/tune/Tuner.h"

#include <string>

namespace ladle::tool {

/// The five best, their share of the limit, how well the model ranked, and why
/// each of the others was not timed.
std::string explainOutcome(const tune::Outcome &outcome);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_TUNEREPORT_H
