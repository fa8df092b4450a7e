//===- Report.cpp - what a check found, as a table and as JSON ------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Check.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::check;
using nlohmann::ordered_json;

bool CheckReport::passed() const {
  auto passes = [](const auto &result) { return result.passed(); };
  return std::all_of(cases.begin(), cases.end(), passes) &&
         std::all_of(traces.begin(), traces.end(), passes);
}

namespace {
/// The cases of one route and one pair of storage types.
struct Line {
  size_t cases = 0, failures = 0, refusals = 0;

  std::string verdict() const {
    if (failures)
      return fmt::format("{} FAILED", failures);
    return refusals ? fmt::format("{} refused", refusals) : "ok";
  }

  std::array<FormResult, 7> worst;
  double margin = 0; ///< the largest error over its bound
};
} // namespace

/// Lines in the order of routes and types.
static std::map<std::tuple<RouteKind, DType, DType>, Line>
summarise(const std::vector<CaseResult> &cases) {
  std::map<std::tuple<RouteKind, DType, DType>, Line> lines;
  for (const CaseResult &result : cases) {
    const CheckCase &config = result.config;
    Line &line = lines[{config.route, config.stateType, config.entryType}];
    ++line.cases;
    line.failures += !result.passed() && !result.isRefused;
    line.refusals += result.isRefused;
    for (size_t form = 0; form < result.forms.size(); ++form) {
      const FormResult &from = result.forms[form];
      FormResult &to = line.worst[form];
      to.count += from.count;
      to.error.value = std::max(to.error.value, from.error.value);
      bool isFinite = std::isfinite(from.error.value);
      line.margin =
          std::max(line.margin, isFinite ? from.error.value / from.bound.value()
                                         : from.error.value);
    }
  }
  return lines;
}

static std::string showError(const FormResult &form) {
  return form.count ? fmt::format("{:.1e}", form.error.value) : "-";
}

/// Why a case failed, in a line.
static std::string explain(const CaseResult &result) {
  if (!result.failure.empty())
    return result.failure;
  for (size_t i = 0; i < result.forms.size(); ++i) {
    const FormResult &form = result.forms[i];
    if (!form.passed() && !std::isfinite(form.error.value))
      return fmt::format(
          "{}: '{}' is not finite in row {} at token {}{}",
          toString(static_cast<FormKind>(i)), form.error.tensor, form.error.row,
          form.error.token,
          std::isfinite(form.bound.rounded)
              ? ""
              : "; a float64 run that rounds what is stored overflows too");
    if (!form.passed())
      return fmt::format("{}: '{}' is off by {:.2e} (bound {:.2e}) in row {} "
                         "at token {}",
                         toString(static_cast<FormKind>(i)), form.error.tensor,
                         form.error.value, form.bound.value(), form.error.row,
                         form.error.token);
  }
  return "passed";
}

static void addTraces(std::string &text,
                      const std::vector<TraceResult> &traces) {
  if (traces.empty())
    return;
  text += fmt::format("\n{:<10} {:>7} {:>9} {:>9} {:>9} {:>9}\n", "trace",
                      "tokens", "outputs", "state", "stored", "stored");
  text += fmt::format("{:<10} {:>7} {:>9} {:>9} {:>9} {:>9}\n", "", "", "", "",
                      "outputs", "state");
  auto show = [](const WorstError &error) {
    return error.tensor.empty() ? "-" : fmt::format("{:.1e}", error.value);
  };
  for (const TraceResult &trace : traces)
    text += fmt::format("{:<10} {:>7} {:>9} {:>9} {:>9} {:>9}  {}\n",
                        toString(trace.route), trace.tokens,
                        show(trace.outputs), show(trace.states),
                        show(trace.storedOutputs), show(trace.storedStates),
                        trace.passed() ? "ok" : "FAILED " + trace.failure);
}

std::string CheckReport::table() const {
  std::string text = fmt::format(
      "{}: largest relative error against float64\n\n{:<10} {:>5} {:>7} {:>5} "
      "{:>8} {:>11} {:>8} {:>8} {:>11} {:>8} {:>8} {:>11}\n",
      name, "route", "state", "entries", "cases", "decode", "decode_fold",
      "fold", "verify", "verify_fold", "prefill", "entries", "error/bound");
  for (const auto &[key, line] : summarise(cases)) {
    auto [route, stateType, entryType] = key;
    text += fmt::format(
        "{:<10} {:>5} {:>7} {:>5} {:>8} {:>11} {:>8} {:>8} {:>11} {:>8} {:>8} "
        "{:>11.2f}  {}\n",
        toString(route), toString(stateType), toString(entryType), line.cases,
        showError(line.worst[0]), showError(line.worst[1]),
        showError(line.worst[2]), showError(line.worst[3]),
        showError(line.worst[4]), showError(line.worst[5]),
        showError(line.worst[6]), line.margin, line.verdict());
  }
  addTraces(text, traces);
  for (const MissingRoute &route : missing)
    text += fmt::format("\n{}: not a route of this recurrence: {}\n",
                        toString(route.route), route.reason);
  for (const CaseResult &result : cases)
    if (!result.passed())
      text += fmt::format("\n{}\n  repeat with: {} --case '{}'\n",
                          explain(result), reproducer, result.config.str());
  return text;
}

/// JSON has no infinity; null stands for it.
static ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

static ordered_json toJson(const WorstError &error) {
  return {{"value", number(error.value)},
          {"row", error.row},
          {"token", error.token},
          {"tensor", error.tensor}};
}

static ordered_json toJson(const CaseResult &result) {
  ordered_json forms = ordered_json::object();
  for (size_t i = 0; i < result.forms.size(); ++i) {
    const FormResult &form = result.forms[i];
    if (form.count)
      forms[std::string(toString(static_cast<FormKind>(i)))] = {
          {"compared", form.count},
          {"error", toJson(form.error)},
          {"bound", number(form.bound.value())}};
  }
  return {{"case", result.config.str()},
          {"route", toString(result.config.route)},
          {"state", toString(result.config.stateType)},
          {"entries", toString(result.config.entryType)},
          {"passed", result.passed()},
          {"refused", result.isRefused},
          {"failure", result.failure},
          {"forms", forms}};
}

static ordered_json toJson(const TraceResult &result) {
  ordered_json json = {
      {"route", toString(result.route)}, {"tokens", result.tokens},
      {"passed", result.passed()},       {"failure", result.failure},
      {"bound", result.bound.value()},   {"outputs", toJson(result.outputs)},
      {"states", toJson(result.states)}};
  if (!result.storedOutputs.tensor.empty())
    json["stored_outputs"] = toJson(result.storedOutputs);
  if (!result.storedStates.tensor.empty())
    json["stored_states"] = toJson(result.storedStates);
  return json;
}

std::string CheckReport::json() const {
  ordered_json all = {{"recurrence", name},
                      {"passed", passed()},
                      {"reproducer", reproducer},
                      {"cases", ordered_json::array()},
                      {"traces", ordered_json::array()},
                      {"missing", ordered_json::array()}};
  for (const CaseResult &result : cases)
    all["cases"].push_back(toJson(result));
  for (const TraceResult &result : traces)
    all["traces"].push_back(toJson(result));
  for (const MissingRoute &route : missing)
    all["missing"].push_back(
        {{"route", toString(route.route)}, {"reason", route.reason}});
  return all.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}
