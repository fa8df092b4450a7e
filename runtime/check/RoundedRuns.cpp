//===- RoundedRuns.cpp - what narrow storage costs ------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/RoundedRuns.h"

#include "runtime/check/Comparison.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cassert>
#include <cmath>

using namespace ladle::check;
using ladle::interpreter::Precision;
using ladle::interpreter::roundTo;
using ladle::interpreter::SpecInterpreter;
using ladle::interpreter::ValueInfo;

void ladle::check::roundAway(std::vector<double> &values,
                             llvm::ArrayRef<double> exact,
                             Precision precision) {
  assert(values.size() == exact.size());
  double largest = 0;
  for (double value : exact)
    largest = std::max(largest, std::abs(value));
  double slack = Bound::exact * largest;
  for (size_t i = 0; i < values.size(); ++i) {
    auto [low, high] = interpreter::findNeighbours(values[i], slack, precision);
    values[i] = exact[i] - low > high - exact[i] ? low : high;
  }
}

RoundedRuns::RoundedRuns(const SpecInterpreter &oracle)
    : rows{oracle.makeRow()} {
  auto isNarrow = [](const ValueInfo &info) {
    return info.precision != Precision::Float32;
  };
  if (!oracle.roundsEntries() && llvm::none_of(oracle.getStates(), isNarrow) &&
      llvm::none_of(oracle.getCarries(), isNarrow))
    return;
  rows.push_back(rows.front());
  rows.back().tieSlack = Bound::exact;
}

/// Rounds to the nearest value in the first run, away in the second.
static void store(size_t run, SpecInterpreter::Arrays &arrays,
                  const SpecInterpreter::Arrays &exact,
                  llvm::ArrayRef<ValueInfo> infos) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (run == 0)
      roundTo(arrays[i], infos[i].precision);
    else
      roundAway(arrays[i], exact[i], infos[i].precision);
  }
}

std::vector<double> RoundedRuns::step(const SpecInterpreter &oracle,
                                      Views params, Views tokens, Token token,
                                      const Row &exact,
                                      const Arrays &exactOutputs) {
  std::vector<double> errors(exactOutputs.size());
  for (size_t run = 0; run < rows.size(); ++run) {
    Arrays outputs(exactOutputs.size());
    rows[run].keepsEntry = token == Token::Kept;
    oracle.step(rows[run], params, tokens, outputs);
    for (size_t i = 0; i < outputs.size(); ++i)
      errors[i] =
          std::max(errors[i], relativeError(outputs[i], exactOutputs[i]));
    store(run, rows[run].carries, exact.carries, oracle.getCarries());
  }
  if (token == Token::Folded)
    storeStates(oracle, exact);
  return errors;
}

void RoundedRuns::storeStates(const SpecInterpreter &oracle, const Row &exact) {
  for (size_t run = 0; run < rows.size(); ++run)
    store(run, rows[run].states, exact.states, oracle.getStates());
}

double RoundedRuns::stateError(size_t state, const Row &exact) const {
  double error = 0;
  for (const Row &row : rows)
    error =
        std::max(error, relativeError(row.states[state], exact.states[state]));
  return error;
}

double RoundedRuns::carryError(size_t carry, const Row &exact) const {
  double error = 0;
  for (const Row &row : rows)
    error = std::max(error,
                     relativeError(row.carries[carry], exact.carries[carry]));
  return error;
}
