//===- MacProfile.cpp - ladle mac-profile ---------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What match, amend, complete would do to real layers: the first part of a
// trace is a prompt, the rest is decoded token by token and compared with exact
// attention, once in a closed loop, in which summaries are made from summaries,
// and once from exact ones.
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Commands.h"
#include "tools/ladle/MacFigures.h"
#include "tools/ladle/Table.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tool;
using Json = nlohmann::ordered_json;

namespace {

/// The figures of a trace.
struct Profile {
  std::string name;
  int64_t tokens = 0, decoded = 0;
  std::optional<double> traceError;
  std::vector<MacFigure> figures;
};

} // namespace

static Result<Profile> profile(const MacProfileOptions &options,
                               const std::string &path, Progress &progress) {
  Result<MacTrace> trace =
      MacTrace::open(path, {options.tokens, options.ropeBase});
  if (!trace)
    return trace.status();
  Result<AttentionProgram> program =
      programOf(*trace, options.settings, options.hasDrift);
  if (!program)
    return program.status();
  MacReplayOptions room;
  room.prompt = options.prompt;
  room.window =
      *std::max_element(options.windows.begin(), options.windows.end());
  Result<MacReplay> replay = MacReplay::create(*trace, *program, room);
  if (!replay)
    return replay.status();
  progress.clear();
  replay->warnOfTraceError();
  AttentionBytes bytes = bytesOf(*program);
  Profile result;
  result.name = std::filesystem::path(path).filename().string();
  result.tokens = trace->tokens();
  result.decoded = replay->tokens();
  result.traceError = replay->traceError();

  size_t total =
      options.bands.size() * (1 + options.windows.size() * options.taus.size());
  size_t done = 0;
  auto show = [&] {
    progress.show(fmt::format("{}, {} of {}", result.name, done, total),
                  static_cast<double>(done), static_cast<double>(total));
    ++done;
  };
  std::map<int64_t, std::vector<MacRun>> singles;
  AttentionSettings settings = options.settings;
  for (int64_t band : options.bands) {
    show();
    settings.tau = 0;
    settings.band = band;
    Result<std::vector<MacRun>> runs =
        replay->singleStep(settings, options.windows);
    if (!runs)
      return runs.status();
    singles[band] = std::move(*runs);
  }
  for (size_t w = 0; w < options.windows.size(); ++w)
    for (double tau : options.taus)
      for (int64_t band : options.bands) {
        show();
        settings.tau = tau;
        settings.window = options.windows[w];
        settings.band = band;
        Result<MacRun> closed =
            replay->closedLoop(settings, HUGE_VAL, options.diagnostics);
        if (!closed)
          return closed.status();
        result.figures.push_back(figureOf(*trace, *replay, bytes, settings,
                                          singles[band][w], *closed));
      }
  markKnees(result.figures);
  return result;
}

//===----------------------------------------------------------------------===//
// JSON
//===----------------------------------------------------------------------===//

/// Six digits are more than figures have.
static double rounded(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

static Json toJson(const std::vector<MacRange> &ranges, bool hasSingle) {
  Json result = Json::array();
  for (const MacRange &range : ranges) {
    Json one{{"from", range.from}, {"to", range.to}, {"count", range.count}};
    if (hasSingle)
      one["single"] = rounded(range.single);
    one["closed"] = rounded(range.closed);
    result.push_back(std::move(one));
  }
  return result;
}

static Json toJson(const AttentionHeadDiagnostics::Norms &norms) {
  return {{"median", rounded(norms.median)},
          {"p90", rounded(norms.p90)},
          {"p99", rounded(norms.p99)},
          {"most", rounded(norms.most)}};
}

static Json toJson(const MacFigure &figure) {
  Json result{{"tau", figure.tau},
              {"window", figure.window},
              {"band", figure.band},
              {"hits", rounded(figure.hits)},
              {"skipped", rounded(figure.skipped)},
              {"cache", rounded(figure.cache)},
              {"bytes", rounded(figure.bytes)},
              {"single_hits", rounded(figure.singleHits)},
              {"single", rounded(figure.single)},
              {"closed", rounded(figure.closed)},
              {"knee", figure.isKnee},
              {"gaps", toJson(figure.gaps, true)},
              {"chains", toJson(figure.chains, false)}};
  for (const AttentionHeadDiagnostics &head : figure.heads)
    result["heads"].push_back({{"tokens", head.tokens},
                               {"hits", head.hits},
                               {"cached", head.cached},
                               {"skipped", head.skipped},
                               {"band_weight", rounded(head.bandWeight)},
                               {"reused_weight", rounded(head.reusedWeight)},
                               {"query", toJson(head.query)},
                               {"value", toJson(head.value)}});
  return result;
}

/// A figure a line.
static std::string toText(const std::vector<MacFigure> &figures) {
  std::string text = "[";
  for (const MacFigure &figure : figures)
    text += (text.size() > 1 ? ",\n  " : "\n  ") + toJson(figure).dump();
  return text + "]";
}

/// What is the same for all figures.
static Json settingsOf(const MacProfileOptions &options) {
  const AttentionSettings &settings = options.settings;
  Json given = Json::object();
  for (auto [name, count] : {std::pair{"sinks", settings.sinks},
                             {"max_gap", settings.maxGap},
                             {"max_chain", settings.maxChain},
                             {"skip", settings.skip},
                             {"wide_band", settings.wideBand},
                             {"wide_gap", settings.wideGap}})
    given[name] = count;
  if (options.hasDrift)
    given["drift"] = settings.drift;
  return given;
}

static void printJson(const MacProfileOptions &options,
                      const std::vector<Profile> &profiles) {
  Json head{{"schema", "ladle-mac-profile-1"}};
  head.update(settingsOf(options));
  std::string start = head.dump();
  start.pop_back();
  fmt::print("{}, \"traces\": [", start);
  for (size_t i = 0; i < profiles.size(); ++i) {
    const Profile &each = profiles[i];
    Json head{{"trace", each.name},
              {"tokens", each.tokens},
              {"decoded", each.decoded}};
    if (each.traceError)
      head["trace_error"] = *each.traceError;
    std::string text = head.dump();
    text.pop_back();
    fmt::print("{}\n {}, \"figures\": {}}}", i ? "," : "", text,
               toText(each.figures));
  }
  fmt::print("]");
  if (profiles.size() > 1) {
    std::vector<std::vector<MacFigure>> all;
    for (const Profile &each : profiles)
      all.push_back(each.figures);
    fmt::print(",\n \"mean\": {}", toText(meanOf(all)));
  }
  fmt::print("}}\n");
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

static void printFigures(const std::vector<MacFigure> &figures) {
  Table table({"window", "tau", "band", "hits", "skipped", "cache", "bytes",
               "one step", "closed loop", ""});
  for (const MacFigure &each : figures)
    table.add(
        {std::to_string(each.window), fmt::format("{}", each.tau),
         std::to_string(each.band), fmt::format("{:.3f}", each.hits),
         fmt::format("{:.3f}", each.skipped), fmt::format("{:.3f}", each.cache),
         fmt::format("{:.3f}", each.bytes), fmt::format("{:.4f}", each.single),
         fmt::format("{:.4f}", each.closed), each.isKnee ? "knee" : ""});
  fmt::print("\n{}", table.str());
}

/// Rows are ranges, columns bands, at the first tau and window.
static void printRanges(const std::vector<MacFigure> &figures,
                        const char *title,
                        std::vector<MacRange> MacFigure::*ranges,
                        bool hasSingle) {
  std::vector<const MacFigure *> columns;
  for (const MacFigure &each : figures)
    if (each.tau == figures[0].tau && each.window == figures[0].window)
      columns.push_back(&each);
  std::vector<std::string> headings{title};
  std::map<int64_t, std::vector<std::string>> rows;
  for (const MacFigure *column : columns)
    headings.push_back(fmt::format("band {}", column->band));
  for (size_t i = 0; i < columns.size(); ++i)
    for (const MacRange &range : columns[i]->*ranges) {
      std::vector<std::string> &row =
          rows.try_emplace(range.from).first->second;
      row.resize(columns.size() + 1);
      row[0] = range.from == range.to
                   ? std::to_string(range.from)
                   : fmt::format("{} to {}", range.from, range.to);
      row[i + 1] =
          hasSingle ? fmt::format("{:.4f} / {:.4f}", range.single, range.closed)
                    : fmt::format("{:.4f}", range.closed);
    }
  Table table(headings);
  for (auto &[from, row] : rows)
    table.add(std::move(row));
  fmt::print("\nerror of hits at tau {}, window {}{}\n{}", figures[0].tau,
             figures[0].window, hasSingle ? ", one step / closed loop" : "",
             table.str());
}

static void printHeads(const std::vector<MacFigure> &figures) {
  for (const MacFigure &each : figures) {
    Table table({"head", "hits", "skipped", "band weight", "reused weight",
                 "|q| median", "p99", "most", "|v| median", "p99", "most"});
    for (size_t i = 0; i < each.heads.size(); ++i) {
      const AttentionHeadDiagnostics &head = each.heads[i];
      auto share = [](int64_t part, int64_t all) {
        return fmt::format("{:.3f}", static_cast<double>(part) /
                                         static_cast<double>(all));
      };
      table.add({std::to_string(i), share(head.hits, head.tokens),
                 share(head.skipped, head.cached),
                 fmt::format("{:.3f}", head.bandWeight),
                 fmt::format("{:.3f}", head.reusedWeight),
                 fmt::format("{:.2f}", head.query.median),
                 fmt::format("{:.2f}", head.query.p99),
                 fmt::format("{:.2f}", head.query.most),
                 fmt::format("{:.2f}", head.value.median),
                 fmt::format("{:.2f}", head.value.p99),
                 fmt::format("{:.2f}", head.value.most)});
    }
    fmt::print("\nheads at tau {}, window {}, band {}\n{}", each.tau,
               each.window, each.band, table.str());
  }
}

static void print(const std::vector<MacFigure> &figures, bool hasHeads) {
  printFigures(figures);
  printRanges(figures, "tokens back", &MacFigure::gaps, /*hasSingle=*/true);
  printRanges(figures, "depth of chain", &MacFigure::chains,
              /*hasSingle=*/false);
  if (hasHeads)
    printHeads(figures);
}

int ladle::tool::macProfile(const MacProfileOptions &options) {
  std::vector<Profile> profiles;
  Progress progress;
  int64_t band = *std::max_element(options.bands.begin(), options.bands.end());
  if (options.settings.wideBand && options.settings.wideBand < band) {
    fmt::print(stderr,
               "error: --wide-band is {}, less than the band {}\n"
               "note: it is for matches that lie far back: give {} or more\n",
               options.settings.wideBand, band, band);
    return 2;
  }
  for (const std::string &path : options.traces) {
    Result<Profile> one = profile(options, path, progress);
    if (!one) {
      progress.clear();
      fmt::print(stderr, "error: {}: {}\n", path, one.status().message());
      return 2;
    }
    profiles.push_back(std::move(*one));
  }
  progress.clear();
  std::string given;
  const Json settings = settingsOf(options);
  for (const auto &[name, value] : settings.items())
    if (name == "drift" || value != 0)
      given += fmt::format(", {} {}", name, value.dump());
  if (options.json) {
    printJson(options, profiles);
    return 0;
  }
  std::vector<std::vector<MacFigure>> all;
  for (const Profile &each : profiles) {
    fmt::print("{}{}: {} of {} tokens decoded, the others a prompt{}\n",
               all.empty() ? "" : "\n", each.name, each.decoded, each.tokens,
               given);
    if (each.traceError)
      fmt::print("exact attention is within {:.1e} of the trace's outputs\n",
                 *each.traceError);
    print(each.figures, options.diagnostics);
    all.push_back(each.figures);
  }
  if (all.size() > 1) {
    fmt::print("\nthe mean of {} traces\n", all.size());
    print(meanOf(all), false);
  }
  return 0;
}
