//===- CaseText.h - cases of checks as text ---------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// "key=value,key=value" of the fields that a case names by a visitor
//
//   template <typename Case, typename Visitor>
//   void visitKeys(Case &config, Visitor visit) {
//     visit("rows", config.rows);
//   }
//
// so that reading and writing cannot differ. Its map `sizes` is size.NAME.
// Other types of fields bring showValue and readValue in their namespace.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_CASETEXT_H
#define LADLE_RUNTIME_CHECK_CASETEXT_H

#include "frontend/Options.h"
#include "ladle/status.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ladle::check {

inline std::string showValue(bool value) { return value ? "1" : "0"; }
template <typename T> std::string showValue(const T &value) {
  return fmt::format("{}", value);
}

template <typename T> bool readValue(std::string_view text, T &value) {
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}
inline bool readValue(std::string_view text, bool &value) {
  value = text == "1";
  return value || text == "0";
}
inline bool readValue(std::string_view text, std::string &value) {
  value = text;
  return !text.empty();
}

inline constexpr std::string_view sizePrefix = "size.";

/// What differs from a default case, the first key always.
template <typename Case> std::string writeCase(const Case &config) {
  const Case initial;
  std::map<std::string_view, std::string> defaults;
  visitKeys(initial, [&](std::string_view name, const auto &field) {
    defaults[name] = showValue(field);
  });
  std::string text;
  visitKeys(config, [&](std::string_view name, const auto &field) {
    std::string value = showValue(field);
    if (text.empty() || value != defaults[name])
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  });
  for (const auto &[name, size] : config.sizes)
    text += fmt::format(",{}{}={}", sizePrefix, name, size);
  return text;
}

template <typename Case>
Status setCaseKey(Case &config, std::string_view key, std::string_view value) {
  bool isKnown = false, isRead = false;
  if (key.starts_with(sizePrefix)) {
    isKnown = true;
    key.remove_prefix(sizePrefix.size());
    isRead = readValue(value, config.sizes[std::string(key)]);
  }
  visitKeys(config, [&](std::string_view name, auto &field) {
    if (key == name && !isKnown) {
      isKnown = true;
      isRead = readValue(value, field);
    }
  });
  if (!isKnown)
    return {ErrorCode::InvalidArgument,
            fmt::format("a case has no key '{}'", key)};
  if (!isRead)
    return {ErrorCode::InvalidArgument,
            fmt::format("case key '{}' cannot be '{}'", key, value)};
  return {};
}

/// Keys in any order; those left out keep what `config` has.
template <typename Case> Status readCase(std::string_view text, Case &config) {
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      return {ErrorCode::InvalidArgument,
              fmt::format("'{}' in a case is not key=value", part)};
    if (Status status =
            setCaseKey(config, part.substr(0, equals), part.substr(equals + 1));
        !status)
      return status;
  }
  return {};
}

inline Status checkTypeKey(std::string_view key, std::string_view type) {
  if (type == "f32" || type == "bf16" || type == "f16")
    return {};
  return {ErrorCode::InvalidArgument,
          fmt::format("case key '{}' cannot be '{}'", key, type)};
}

/// The command that checks a file so.
std::string showCommand(std::string_view path, std::string_view target,
                        const frontend::ElaborationOptions &options);

/// Runs the cases that are planned, or the one that is asked for, into a
/// report.
template <typename Request, typename Case, typename Report, typename Run>
Status runCases(const Request &request, std::vector<Case> cases, Report &report,
                Run run) {
  if (!request.only.empty()) {
    Result<Case> only = Case::parse(request.only);
    if (!only)
      return only.status();
    cases = {std::move(*only)};
  }
  for (Case &one : cases) {
    auto result = run(one);
    if (!result)
      return result.status();
    report.cases.push_back(std::move(*result));
    if (request.progress)
      request.progress(report.cases.size(), cases.size());
  }
  return {};
}

/// How to run again what has failed, one after another.
template <typename CaseResult>
std::string showRepeats(const std::vector<CaseResult> &cases,
                        std::string_view reproducer) {
  std::string text;
  for (const CaseResult &one : cases)
    if (!one.passed())
      text += fmt::format("\n{}\n  repeat with: {} --case '{}'\n", one.failure,
                          reproducer, one.config.str());
  return text;
}

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_CASETEXT_H
