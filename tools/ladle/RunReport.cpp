//===- RunReport.cpp - what a run found -----------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/RunReport.h"

#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tool;
using check::WorstError;
using nlohmann::ordered_json;

/// Bytes a second that a route moved, all rows.
static double rateOf(const RouteReport &route) {
  return route.plan.bytes * route.batch.rows / route.batch.seconds;
}

/// What a GPU's memory gives is not known if it could not be measured.
static bool isMeasured(const Bandwidth &bandwidth) {
  return bandwidth.read > 0 && bandwidth.update > 0;
}

/// The part of the ceiling that a route reached, by its mix of bytes.
static double partOfCeiling(const RouteReport &route,
                            const Bandwidth &bandwidth) {
  return route.plan.leastSeconds(bandwidth) * route.batch.rows /
         route.batch.seconds;
}

static bool ran(const RouteReport &route) {
  return route.program && route.failure.empty() && route.batch.steps > 0;
}

bool RunReport::passed() const {
  for (const RouteReport &route : routes)
    if (route.plan.isLegal() && (!ran(route) || !route.errors.passed()))
      return false;
  return true;
}

//===----------------------------------------------------------------------===//
// For people
//===----------------------------------------------------------------------===//

std::string RunReport::header() const {
  std::string text = fmt::format("{} of {} on {}\n", recurrence, file, inputs);
  text +=
      arch.empty()
          ? fmt::format("{}, {} threads; ", host.processor, threads)
          : fmt::format("{}, {}, driver for CUDA {}.{}; ", host.processor, arch,
                        driverVersion / 1000, driverVersion % 1000 / 10);
  text += isMeasured(bandwidth)
              ? fmt::format("memory reads at {:.1f} GB/s, updates in place at "
                            "{:.1f} GB/s\n",
                            bandwidth.read / 1e9, bandwidth.update / 1e9)
              : std::string("memory was not measured\n");
  if (!note.empty())
    text += fmt::format("note: {}\n", note.substr(0, note.find('\n')));
  double state = static_cast<double>(rows) * stateBytes;
  text +=
      fmt::format("{} rows with {} of state each, {}: {:.1f} times the "
                  "last-level cache of {}\n",
                  rows, formatBytes(stateBytes), formatBytes(state),
                  state / host.cacheBytes(), formatBytes(host.cacheBytes()));
  if (isCapped)
    text += fmt::format("fewer rows than four times the cache would take, "
                        "because only {} of memory are free\n",
                        formatBytes(host.availableMemory));
  std::string context =
      arch.empty() ? ""
                   : fmt::format(" and loaded (after {} for the context of the "
                                 "device)",
                                 formatTime(contextSeconds));
  text += fmt::format("compiled in {}{}; errors over {} tokens of {} rows at "
                      "spread offsets\n\n",
                      formatTime(compileSeconds), context, comparedTokens,
                      comparedRows);
  return text;
}

static std::string showError(const WorstError &error) {
  return error.tensor.empty() ? "-" : fmt::format("{:.1e}", error.value);
}

std::string RunReport::choice() const {
  const RouteReport &best = routes[chosen];
  std::string m = best.plan.hasBuffer
                      ? fmt::format(" with m = {}", best.plan.threshold)
                      : "";
  std::string text = fmt::format("chosen: {}{}, ", best.plan.route, m);
  text += isForced ? "as asked for; predicted for a step of all rows: "
                   : "the simplest of the least times predicted for a step of "
                     "all rows: ";
  text += formatTime(best.plan.seconds);
  for (size_t i = 0; i < routes.size(); ++i)
    if (i != chosen && routes[i].plan.isLegal() &&
        routes[i].plan.route != "kv_only")
      text += fmt::format(", {} {}", routes[i].plan.route,
                          formatTime(routes[i].plan.seconds));
  text += "\n";
  if (ran(best))
    text += fmt::format("{} tokens of every row were decoded by {}, {} tokens "
                        "of one row\n",
                        best.batch.steps, best.plan.route, best.single.steps);
  for (const RouteReport &route : routes) {
    if (!route.plan.isLegal())
      text += fmt::format("{} is not legal: {}\n", route.plan.route,
                          route.plan.obstacle);
    if (route.plan.isLegal() && route.plan.route == "kv_only")
      text += fmt::format("kv_only: contexts that grow from nothing to {} "
                          "tokens; it cannot be chosen for longer ones\n",
                          route.plan.bytesByFill.size());
  }
  return text;
}

std::string RunReport::promptLine() const {
  const RouteReport &best = routes[chosen];
  if (prompt.rows == 0 || !ran(best))
    return "";
  double decode = best.batch.seconds / static_cast<double>(best.batch.rows);
  return fmt::format(
      "a prompt of {} tokens in chunks of {}: {} a token, {:.0f} tokens a "
      "second, {:.1f} times as fast as decoding in a step of all rows, {:.1f} "
      "as one cache-resident row\n",
      prompt.steps, chunk, formatTime(prompt.seconds), 1 / prompt.seconds,
      decode / prompt.seconds, best.single.seconds / prompt.seconds);
}

/// Errors that break their bound, and routes that did not run.
std::string RunReport::problems() const {
  std::string text;
  for (const RouteReport &route : routes) {
    if (!route.plan.isLegal())
      continue;
    if (!route.failure.empty())
      text += fmt::format("error: {}: {}\n", route.plan.route, route.failure);
    auto check = [&](const WorstError &error, double bound, const char *what) {
      if (!(error.value <= bound))
        text += fmt::format("error: {}: '{}' of row {} at token {} differs "
                            "from {} by {:.2e}, more than {:.2e}\n",
                            route.plan.route, error.tensor, error.row,
                            error.token, what, error.value, bound);
    };
    const RouteErrors &errors = route.errors;
    check(errors.outputs, errors.outputBound, "the oracle");
    check(errors.states, errors.stateBound, "the oracle");
    check(errors.storedOutputs, errors.outputBound, "the trace");
    check(errors.storedStates, errors.stateBound, "the trace");
  }
  return text;
}

std::string RunReport::table() const {
  Table table({"\nroute", "\nm", "bytes a\ntoken", "a step,\npredicted",
               "a step,\nmeasured", "a token,\nmeasured", "\nGB/s",
               "of the\nceiling", "one row,\ncache-resident",
               "error to\noracle", "its final\nstate", "stored\noutputs",
               "stored\nstate", ""});
  for (size_t i = 0; i < routes.size(); ++i) {
    const RouteReport &route = routes[i];
    if (!route.plan.isLegal())
      continue;
    std::vector<std::string> cells{
        route.plan.route,
        route.plan.hasBuffer ? std::to_string(route.plan.threshold) : "-",
        fmt::format("{:.0f}", route.plan.bytes),
        formatTime(route.plan.seconds)};
    if (ran(route)) {
      const RouteErrors &errors = route.errors;
      cells.insert(
          cells.end(),
          {formatTime(route.batch.seconds),
           formatTime(route.batch.seconds / route.batch.rows),
           fmt::format("{:.1f}", rateOf(route) / 1e9),
           isMeasured(bandwidth)
               ? fmt::format("{:.0f} %", 100 * partOfCeiling(route, bandwidth))
               : "-",
           formatTime(route.single.seconds), showError(errors.outputs),
           showError(errors.states), showError(errors.storedOutputs),
           showError(errors.storedStates), i == chosen ? "chosen" : ""});
    } else {
      cells.push_back("failed");
    }
    table.add(std::move(cells));
  }
  return header() + table.str() + "\n" + choice() + promptLine() + problems();
}

//===----------------------------------------------------------------------===//
// For programs
//===----------------------------------------------------------------------===//

/// JSON has no infinity.
static ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json("inf");
}

static ordered_json toJSON(const WorstError &error, double bound) {
  if (error.tensor.empty())
    return nullptr;
  return {{"relative", number(error.value)},
          {"bound", number(bound)},
          {"tensor", error.tensor},
          {"row", error.row},
          {"token", error.token}};
}

static ordered_json toJSON(const Timing &timing) {
  return {{"rows", timing.rows},
          {"steps", timing.steps},
          {"seconds_a_step", timing.seconds},
          {"seconds_a_token", timing.seconds / timing.rows}};
}

static ordered_json toJSON(const RouteReport &route,
                           const Bandwidth &bandwidth) {
  ordered_json json = {{"route", route.plan.route},
                       {"legal", route.plan.isLegal()}};
  if (!route.plan.isLegal()) {
    json["reason"] = route.plan.obstacle;
    return json;
  }
  json["m"] = route.plan.threshold;
  json["bytes_a_token"] = route.plan.bytes;
  json["flops_a_token"] = route.plan.flops;
  json["predicted_seconds_a_step"] = route.plan.seconds;
  if (!ran(route)) {
    json["failure"] = route.failure;
    return json;
  }
  json["measured"] = toJSON(route.batch);
  json["bytes_a_second"] = rateOf(route);
  if (isMeasured(bandwidth))
    json["part_of_ceiling"] = partOfCeiling(route, bandwidth);
  json["cache_resident"] = toJSON(route.single);
  const RouteErrors &errors = route.errors;
  json["errors"] = {
      {"outputs", toJSON(errors.outputs, errors.outputBound)},
      {"states", toJSON(errors.states, errors.stateBound)},
      {"stored_outputs", toJSON(errors.storedOutputs, errors.outputBound)},
      {"stored_states", toJSON(errors.storedStates, errors.stateBound)}};
  json["passed"] = errors.passed();
  return json;
}

std::string RunReport::json() const {
  ordered_json list = ordered_json::array();
  for (const RouteReport &route : routes)
    list.push_back(toJSON(route, bandwidth));
  ordered_json json = {{"file", file},
                       {"recurrence", recurrence},
                       {"inputs", inputs},
                       {"target", arch.empty() ? "cpu" : "cuda"},
                       {"processor", host.processor},
                       {"threads", threads},
                       {"last_level_cache_bytes", host.cacheBytes()},
                       {"read_bytes_a_second", bandwidth.read},
                       {"update_bytes_a_second", bandwidth.update},
                       {"rows", rows},
                       {"state_bytes_a_row", stateBytes},
                       {"rows_capped_by_memory", isCapped},
                       {"compared_rows", comparedRows},
                       {"compared_tokens", comparedTokens},
                       {"compile_seconds", compileSeconds},
                       {"context_seconds", contextSeconds},
                       {"chosen", routes[chosen].plan.route},
                       {"chosen_by", isForced ? "user" : "cost model"},
                       {"passed", passed()},
                       {"routes", list}};
  if (prompt.rows > 0)
    json["prompt"] = {{"tokens", prompt.steps},
                      {"chunk", chunk},
                      {"seconds_a_token", prompt.seconds}};
  return json.dump(2) + "\n";
}
