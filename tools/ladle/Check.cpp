//===- Check.cpp - ladle check --------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Check.h"
#include "runtime/check/BoundedCheck.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Errors.h"
#include "tools/ladle/Files.h"
#include "tools/ladle/SourceChoices.h"
#include "tools/ladle/Table.h"

#include <cstdio>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

static Status invalid(std::string message) {
  return Status(ErrorCode::InvalidArgument, std::move(message));
}

/// "name=range" into `ranges`.
static Status parseRange(const std::string &text, check::InputRanges &ranges) {
  size_t equals = text.find('=');
  std::optional<check::InputRange> range;
  if (equals != std::string::npos && equals > 0)
    range = check::InputRange::parse(text.substr(equals + 1));
  if (!range)
    return invalid(fmt::format("--range takes name=low:high, name=normal or "
                               "name=unit, got '{}'\nnote: for instance "
                               "--range g=-3:0",
                               text));
  ranges[text.substr(0, equals)] = *range;
  return Status();
}

static Result<check::CheckRequest> makeRequest(const CheckOptions &options) {
  check::CheckRequest request;
  request.path = options.source.file;
  Result<std::string> text = readFile(options.source.file);
  if (!text)
    return text.status();
  request.source = std::move(*text);
  request.elaboration = elaborationOf(options.source);
  for (const std::string &range : options.ranges)
    if (Status status = parseRange(range, request.ranges); !status)
      return status;
  request.seed = options.seed;
  request.full = options.full;
  request.trace = options.trace;
  request.target = options.target;
  request.drafts = options.drafts;
  request.page = options.page;
  return request;
}

/// Options that a recurrence's cases leave without a use.
static Status refuseIdle(const CheckOptions &options) {
  for (auto [flag, key] : {std::pair{"--state", "state=bf16"},
                           {"--entry", "entries=bf16"},
                           {"--capacity", "L=32"},
                           {"--state-layout", "layout=dk_dv"}})
    if (Status status = refuse(
            options.source, {flag},
            {"programs that are compiled",
             fmt::format("check goes through all of them: --case {}, say, is "
                         "one",
                         key)});
        !status)
      return status;
  if (options.only.empty())
    return Status();
  return refuse(options.source, {"--drafts", "--pages", "--full", "--trace"},
                {"all cases", "--case says all of one"});
}

/// All cases, or the one that the user names.
static Result<check::CheckReport> runCases(const check::CheckRequest &request,
                                           const std::string &only) {
  if (only.empty())
    return check::check(request);
  Result<check::CheckCase> config = check::CheckCase::parse(only);
  if (!config)
    return config.status();
  return check::checkCases(request, {*config});
}

static int fail(const Status &status) {
  printError(status);
  return 2;
}

/// An attention; the options that are for recurrences are errors.
static int checkAttention(const check::CheckRequest &from,
                          const CheckOptions &options) {
  if (Status status =
          refuse(options.source, {"--trace", "--drafts", "--range", "--pages",
                                  "--capacity", "--state-layout"});
      !status)
    return fail(status);
  if (Status status =
          refuse(options.source, {"--entry"},
                 {"recurrences",
                  "check goes through the types of an attention's summaries: "
                  "--case summaries=bf16, say, is one"});
      !status)
    return fail(status);
  check::AttentionRequest request;
  request.path = from.path;
  request.source = from.source;
  request.elaboration = from.elaboration;
  if (!options.source.stateType.empty())
    request.elaboration.stateTypes["*"] = options.source.stateType;
  request.seed = from.seed;
  request.full = from.full;
  request.only = options.only;
  request.target = from.target;
  std::optional<bool> isBounded =
      check::hasBoundedCache(request.path, request.source, request.elaboration);
  Status status = !isBounded ? Status() // its errors come first
                  : *isBounded
                      ? refuse(options.source, {"--full"},
                               {"recurrences and attentions with a paged cache",
                                "the file declares one with a bounded cache"})
                      : refuseStates(options.source);
  if (!status)
    return fail(status);
  Progress progress;
  request.progress = [&](size_t done, size_t total) {
    progress.show(fmt::format("{} of {} cases", done, total), done, total);
  };
  auto print = [&](const auto &report) {
    progress.clear();
    if (!report)
      return fail(report.status());
    std::fputs((options.json ? report->json() : report->table()).c_str(),
               stdout);
    return report->passed() ? 0 : 1;
  };
  if (isBounded.value_or(false))
    return print(check::checkBounded(request));
  return print(check::checkAttention(request));
}

int tool::check(const CheckOptions &options) {
  Result<check::CheckRequest> request = makeRequest(options);
  if (!request)
    return fail(request.status());
  if (check::choosesAttention(request->path, request->source,
                              request->elaboration))
    return checkAttention(*request, options);
  if (Status status = refuseIdle(options); !status)
    return fail(status);
  Progress progress;
  request->progress = [&](size_t done, size_t total) {
    progress.show(fmt::format("{} of {} cases", done, total), done, total);
  };
  Result<check::CheckReport> report = runCases(*request, options.only);
  progress.clear();
  if (!report)
    return fail(report.status());
  std::fputs((options.json ? report->json() : report->table()).c_str(), stdout);
  return report->passed() ? 0 : 1;
}
