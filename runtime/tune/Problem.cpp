//===- Problem.cpp - what is tuned for ------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/tune/Problem.h"

#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace ladle;
using namespace ladle::tune;

static std::string describeAll(const std::vector<TensorSpec> &specs) {
  std::vector<std::string> texts;
  for (const TensorSpec &spec : specs)
    texts.push_back(fmt::format("{}:{}[{}]", spec.name, toString(spec.dtype),
                                fmt::join(spec.shape, ",")));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string tune::describe(const Signature &signature) {
  std::string text =
      fmt::format("{}({}; {})", signature.name, describeAll(signature.params),
                  describeAll(signature.tokens));
  if (!signature.carries.empty())
    text += " " + describeAll(signature.carries);
  for (const StateSpec &spec : signature.states)
    text += fmt::format(
        " {}:{}[{},{},{}]{}", spec.name, toString(spec.dtype), spec.heads,
        spec.keySize, spec.valueSize,
        // Tables of earlier versions know the other one alone.
        spec.layout == StateLayout::DvDk ? "" : toString(spec.layout));
  return text + " -> " + describeAll(signature.outputs);
}

/// FNV-1a: it tells texts apart, it protects nothing.
std::string tune::fingerprintOf(const std::string &text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char byte : text)
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string Problem::fileName() const {
  std::string readable = device + "-" + shape.substr(0, shape.find('('));
  for (char &c : readable)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-')
      c = '_';
  std::string ofDrafts =
      drafts ? fmt::format("-t{}-{:.0f}", drafts, 100 * acceptance) : "";
  return fmt::format("{}-b{}{}-{}", readable, batch, ofDrafts,
                     fingerprintOf(shape + "|" + entryType));
}
