//===- SpecInterpreter.cpp - the float64 oracle ---------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/interpreter/SpecInterpreter.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <functional>
#include <numeric>

using namespace ladle::interpreter;
using llvm::ArrayRef;
using llvm::MutableArrayRef;

size_t ValueInfo::size() const {
  return std::accumulate(shape.begin(), shape.end(), size_t(1),
                         std::multiplies<>());
}

SpecInterpreter::Row SpecInterpreter::makeRow() const {
  Row row;
  for (const ValueInfo &carry : carries)
    row.carries.emplace_back(carry.size(), 0.0);
  for (const ValueInfo &state : states)
    row.states.emplace_back(state.size(), 0.0);
  row.values = initialValues;
  for (size_t size : spareSizes)
    row.spares.emplace_back(size, 0.0);
  return row;
}

void SpecInterpreter::step(Row &row, ArrayRef<ArrayRef<double>> paramValues,
                           ArrayRef<ArrayRef<double>> tokenValues,
                           MutableArrayRef<std::vector<double>> results) const {
  assert(paramValues.size() == params.size() && "one array a parameter");
  assert(tokenValues.size() == tokens.size() && "one array a token");
  assert(results.size() == outputs.size() && "one vector an output");

  auto load = [&](ArrayRef<double> source, size_t offset) {
    llvm::copy(source, row.values.begin() + offset);
  };
  for (size_t i = 0; i < params.size(); ++i)
    load(paramValues[i], paramOffsets[i]);
  for (size_t i = 0; i < tokens.size(); ++i)
    load(tokenValues[i], tokenOffsets[i]);
  for (size_t i = 0; i < carries.size(); ++i)
    load(row.carries[i], carryOffsets[i]);

  if (row.keepsTerms && row.squares.empty()) {
    row.squares.resize(states.size() + spareSizes.size());
    for (size_t i = 0; i < row.squares.size(); ++i)
      if (isSum[i])
        row.squares[i].resize(i < states.size()
                                  ? states[i].size()
                                  : spareSizes[i - states.size()]);
  }
  for (const Instruction &instruction : instructions)
    instruction(row);

  auto store = [&](size_t offset, size_t size, std::vector<double> &target) {
    auto begin = row.values.begin() + offset;
    target.assign(begin, begin + size);
  };
  for (size_t i = 0; i < outputs.size(); ++i)
    store(outputOffsets[i], outputs[i].size(), results[i]);
  row.terms.resize(row.keepsTerms ? outputs.size() : 0);
  for (size_t i = 0; i < row.terms.size(); ++i)
    store(termOffsets[i], outputs[i].size(), row.terms[i]);
  for (size_t i = 0; i < carries.size(); ++i)
    store(nextCarryOffsets[i], carries[i].size(), row.carries[i]);
}

void SpecInterpreter::step(Row &row, const Arrays &paramValues,
                           const Arrays &tokenValues, Arrays &results) const {
  std::vector<ArrayRef<double>> paramViews(paramValues.begin(),
                                           paramValues.end());
  std::vector<ArrayRef<double>> tokenViews(tokenValues.begin(),
                                           tokenValues.end());
  results.resize(outputs.size());
  step(row, paramViews, tokenViews, MutableArrayRef(results));
}
