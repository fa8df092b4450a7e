//===- CheckCase.cpp - one configuration of a check -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/CheckCase.h"

#include "runtime/check/CaseText.h"

using namespace ladle;
using namespace ladle::check;

std::optional<DType> ladle::check::parseStorageType(std::string_view text) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    if (text == toString(dtype))
      return dtype;
  return std::nullopt;
}

// Found by their arguments' namespace.
namespace ladle {
static std::string showValue(RouteKind value) {
  return std::string(toString(value));
}
static std::string showValue(DType value) {
  return std::string(toString(value));
}
static std::string showValue(StateLayout value) {
  return std::string(toString(value));
}

static bool readValue(std::string_view text, RouteKind &value) {
  std::optional<RouteKind> route = parseRoute(text);
  value = route.value_or(value);
  return route.has_value();
}
static bool readValue(std::string_view text, DType &value) {
  std::optional<DType> dtype = check::parseStorageType(text);
  value = dtype.value_or(value);
  return dtype.has_value();
}
static bool readValue(std::string_view text, StateLayout &value) {
  std::optional<StateLayout> layout = parseStateLayout(text);
  value = layout.value_or(value);
  return layout.has_value();
}

} // namespace ladle

namespace ladle::check {
template <typename Case, typename Visitor>
static void visitKeys(Case &c, Visitor visit) {
  visit("route", c.route);
  visit("state", c.stateType);
  visit("entries", c.entryType);
  visit("outputs", c.outputType);
  visit("layout", c.layout);
  visit("L", c.capacity);
  visit("m", c.threshold);
  visit("page", c.page);
  visit("crossover", c.crossover);
  visit("drafts", c.drafts);
  visit("trees", c.trees);
  visit("prompts", c.prompts);
  visit("chunk", c.chunk);
  visit("by_chunk", c.byChunk);
  visit("batch", c.batch);
  visit("rows", c.rows);
  visit("tokens", c.tokens);
  visit("staggered", c.staggered);
  visit("moves", c.moves);
  visit("pads", c.pads);
  visit("resets", c.resets);
  visit("forks", c.forks);
  visit("takes_states", c.takesStates);
  visit("padding", c.slotPadding);
  visit("packed", c.packed);
  visit("seed", c.seed);
}
} // namespace ladle::check

static Status fail(std::string message) {
  return {ErrorCode::InvalidArgument, std::move(message)};
}

std::string CheckCase::str() const { return writeCase(*this); }

Result<CheckCase> CheckCase::parse(std::string_view text) {
  CheckCase result;
  if (Status status = readCase(text, result); !status)
    return status;
  if (result.rows < 1 || result.tokens < 1 || result.capacity < 1)
    return fail("a case needs at least one row, token and entry");
  if (result.batch < 0)
    return fail(
        fmt::format("batch = {} of a case is not 0 at least", result.batch));
  if (result.drafts < 0 || 2 * result.drafts > result.capacity)
    return fail(
        fmt::format("drafts = {} of a case is not between 0 and half of "
                    "L = {}",
                    result.drafts, result.capacity));
  constexpr int64_t mostInChunk = 256;
  if (result.prompts < 0 || result.chunk < 1 || result.chunk > mostInChunk)
    return fail(fmt::format("prompts = {} and chunk = {} of a case are not "
                            "0 at least and between 1 and {}",
                            result.prompts, result.chunk, mostInChunk));
  if (result.byChunk &&
      (result.capacity != result.chunk || result.threshold != result.chunk ||
       result.drafts || result.moves))
    return fail(fmt::format("by_chunk of a case needs L = m = chunk = {}, no "
                            "drafts and no moves",
                            result.chunk));
  int64_t most = result.capacity - result.drafts;
  if (result.threshold < 1 || result.threshold > most)
    return fail(fmt::format("m = {} of a case is not between 1 and {} = {}",
                            result.threshold,
                            result.drafts ? "L - drafts" : "L", most));
  if (result.page < 0)
    return fail(fmt::format("page = {} of a case is negative", result.page));
  if (result.crossover < 0 || result.crossover > most)
    return fail(fmt::format("crossover = {} of a case is not between 0 and "
                            "{} = {}",
                            result.crossover,
                            result.drafts ? "L - drafts" : "L", most));
  if (result.takesStates && result.slotPadding)
    return fail("takes_states of a case needs padding = 0: states that slots "
                "take are the pool's own");
  if (result.slotPadding < 0)
    return fail(
        fmt::format("padding = {} of a case is negative", result.slotPadding));
  return result;
}
