//===- CheckCase.cpp - one configuration of a check -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/CheckCase.h"

#include <charconv>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::check;

std::optional<DType> ladle::check::parseStorageType(std::string_view text) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    if (text == toString(dtype))
      return dtype;
  return std::nullopt;
}

namespace {
/// Visits every key of a case with its name, so that reading and writing
/// cannot differ.
template <typename Case, typename Visitor>
void visitKeys(Case &c, Visitor visit) {
  visit("route", c.route);
  visit("state", c.stateType);
  visit("entries", c.entryType);
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

std::string show(RouteKind value) { return std::string(toString(value)); }
std::string show(DType value) { return std::string(toString(value)); }
std::string show(StateLayout value) { return std::string(toString(value)); }
std::string show(bool value) { return value ? "1" : "0"; }
template <typename T> std::string show(T value) {
  return fmt::format("{}", value);
}

template <typename T> bool read(std::string_view text, T &value) {
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}
bool read(std::string_view text, bool &value) {
  value = text == "1";
  return value || text == "0";
}
bool read(std::string_view text, RouteKind &value) {
  std::optional<RouteKind> route = parseRoute(text);
  value = route.value_or(value);
  return route.has_value();
}
bool read(std::string_view text, DType &value) {
  std::optional<DType> dtype = parseStorageType(text);
  value = dtype.value_or(value);
  return dtype.has_value();
}
bool read(std::string_view text, StateLayout &value) {
  std::optional<StateLayout> layout = parseStateLayout(text);
  value = layout.value_or(value);
  return layout.has_value();
}

constexpr std::string_view sizePrefix = "size.";

Status fail(std::string message) {
  return {ErrorCode::InvalidArgument, std::move(message)};
}

Status setKey(CheckCase &result, std::string_view key, std::string_view value) {
  bool isKnown = false, isRead = false;
  if (key.starts_with(sizePrefix)) {
    isKnown = true;
    key.remove_prefix(sizePrefix.size());
    isRead = read(value, result.sizes[std::string(key)]);
  }
  visitKeys(result, [&](std::string_view name, auto &field) {
    if (key == name && !isKnown) {
      isKnown = true;
      isRead = read(value, field);
    }
  });
  if (!isKnown)
    return fail(fmt::format("a case has no key '{}'", key));
  if (!isRead)
    return fail(fmt::format("case key '{}' cannot be '{}'", key, value));
  return {};
}
} // namespace

std::string CheckCase::str() const {
  const CheckCase initial;
  std::map<std::string_view, std::string> defaults;
  visitKeys(initial, [&](std::string_view name, const auto &field) {
    defaults[name] = show(field);
  });
  std::string text;
  auto append = [&](std::string_view prefix, std::string_view name,
                    const std::string &value) {
    text +=
        fmt::format("{}{}{}={}", text.empty() ? "" : ",", prefix, name, value);
  };
  visitKeys(*this, [&](std::string_view name, const auto &field) {
    std::string value = show(field);
    if (name == "route" || value != defaults[name])
      append("", name, value);
  });
  for (const auto &[name, size] : sizes)
    append(sizePrefix, name, show(size));
  return text;
}

Result<CheckCase> CheckCase::parse(std::string_view text) {
  CheckCase result;
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      return fail(fmt::format("'{}' in a case is not key=value", part));
    if (Status status =
            setKey(result, part.substr(0, equals), part.substr(equals + 1));
        !status)
      return status;
  }
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
  if (result.page < 0 || (result.page && result.capacity % result.page))
    return fail(fmt::format("page = {} of a case is no part of L = {}",
                            result.page, result.capacity));
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
