//===- CommandOptions.cpp - options that commands share -------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/CommandOptions.h"

#include "runtime/jit/GpuLayout.h"
#include "llvm/ADT/StringRef.h"

#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <stdexcept>

using namespace ladle;
using namespace ladle::tool;

static CLI::Validator numberFrom(double least, bool mayBeLeast,
                                 const char *wanted) {
  return CLI::Validator(
      [=](const std::string &text) {
        double number = NAN;
        bool isRight = !llvm::StringRef(text).getAsDouble(number) &&
                       std::isfinite(number) &&
                       (number > least || (mayBeLeast && number == least));
        return isRight ? std::string()
                       : fmt::format("got '{}', wanted {}", text, wanted);
      },
      "");
}

CLI::Validator tool::aboveZero() {
  return numberFrom(0, /*mayBeLeast=*/false, "a number above 0");
}
CLI::Validator tool::atLeastZero() {
  return numberFrom(0, /*mayBeLeast=*/true, "0 or more");
}

void tool::addFileOptions(CLI::App &command, SourceOptions &source,
                          std::vector<std::string> &settings) {
  command.add_option("file", source.file, "a .ladle file, or - for stdin")
      ->required();
  command.add_option("--recurrence", source.recurrence,
                     "which recurrence of the file (default: the first)");
  command.add_option("--preset", source.preset,
                     "published sizes (default: the first preset)");
  command
      .add_option("--set", settings,
                  "name=value: a size or an option, may be repeated")
      ->allow_extra_args(false);
}

static void addLayoutOption(CLI::App &command, SourceOptions &source) {
  command
      .add_option("--state-layout", source.stateLayout,
                  "how a head of a state lies in memory: dv_dk, the keys "
                  "contiguous, or dk_dv")
      ->check(CLI::IsMember({"dv_dk", "dk_dv"}))
      ->capture_default_str();
}

void tool::addSourceOptions(CLI::App &command, SourceOptions &source,
                            std::vector<std::string> &settings) {
  addFileOptions(command, source, settings);
  command
      .add_option("--state", source.stateType,
                  "store states as f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command
      .add_option("--entry", source.entryType,
                  "cache values that depend on a state as f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  addLayoutOption(command, source);
  command
      .add_option("--capacity", source.capacity,
                  "entries that the ring of a slot holds")
      ->check(CLI::Range(1, 1024));
}

/// 0 for what is no number of bytes. CLI11's own errors do not say of what.
static double bytesOf(std::string text) {
  if (llvm::StringRef(text).contains('-'))
    return 0;
  try {
    return CLI::AsSizeValue(/*kb_is_1000=*/true)(text).empty() ? std::stod(text)
                                                               : 0;
  } catch (const CLI::Error &) {
    return 0;
  } catch (const std::out_of_range &) {
    return 0;
  }
}

void tool::addMemoryOption(CLI::App &command, double &bytes) {
  command
      .add_option_function<std::string>(
          "--memory",
          [&bytes](const std::string &given) {
            bytes = bytesOf(given);
            if (bytes <= 0)
              throw CLI::ValidationError(
                  "--memory", "got " + given +
                                  ", wanted a whole number of bytes, or of "
                                  "KiB, MiB, GiB or TiB");
          },
          "for the states and entries of all requests, 80GiB say: how many "
          "requests with drafts it holds")
      ->type_name("BYTES");
}

static const std::map<std::string, double> timeUnits{
    {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};

std::string tool::parameterNames() {
  std::string names;
  for (const ladle::jit::GpuParameter &parameter : ladle::jit::gpuParameters())
    names += (names.empty() ? "" : ", ") + parameter.name;
  return names;
}

void tool::addTuneOptions(CLI::App &command, TuneRequest &tune) {
  auto addList = [&](const char *name, auto &list, const std::string &text) {
    return command.add_option(name, list, text)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
  };
  command
      .add_option("--state", tune.source.stateType,
                  "store states as f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  tune.source.entryType = "bf16";
  command
      .add_option("--entry", tune.source.entryType,
                  "cache values that depend on a state as f32, bf16 or f16")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str();
  addLayoutOption(command, tune.source);
  addList("--routes", tune.routes, "routes to choose from, simple ones first")
      ->check(
          CLI::IsMember({"recurrent", "inner", "outer", "adjoint", "kv_only"}));
  addList("--m", tune.thresholds, "entries of a cycle to choose from")
      ->check(CLI::Range(2, 1024));
  addList("--capacity", tune.capacities,
          "of --drafts, entries of a ring to choose from where they are more "
          "than m and the drafts ask for, and not twice as many")
      ->check(CLI::Range(1, 1024));
  addList("--batch", tune.batches, "rows")->check(aboveZero());
  command
      .add_option(
          "--drafts", tune.drafts,
          "steps that verify so many drafts a row instead of steps of a "
          "token, for instance 2,4,8")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 16));
  command
      .add_option("--acceptance", tune.acceptance,
                  "of --drafts, the part that is accepted on average")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  addList("--vary", tune.vary,
          "values of a parameter of the kernels: threads=64:128:256; "
          "parameters are " +
              parameterNames());
  command
      .add_option("--mode", tune.mode,
                  "off: the default; frozen: what was tuned before; fill: "
                  "measure what is missing; force: measure all again")
      ->capture_default_str();
  command.add_option("--card", tune.card,
                     "what frozen is asked about, where there is no GPU");
  command.add_option("--folder", tune.folder,
                     "for results (default: the user's cache)");
  command.add_option("--table", tune.table, "a table to add the choices to");
  command
      .add_option("--keep", tune.keep, "candidates that the model lets through")
      ->check(aboveZero())
      ->capture_default_str();
  command
      .add_option("--budget", tune.budget,
                  "stop before this: 30s, 9m (default: never)")
      ->transform(CLI::AsNumberWithUnit(timeUnits));
  command.add_flag("--explain", tune.explain,
                   "the five best, the model's ranking, all rejections");
}

/// Lists of what match, amend, complete are given.
static void addMatchOptions(CLI::App &command, std::vector<double> &taus,
                            std::vector<int64_t> &windows,
                            std::vector<int64_t> &bands) {
  auto addList = [&](const char *name, auto &list, const char *text) {
    return command.add_option(name, list, text)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
  };
  addList("--tau", taus, "how near queries have to be")
      ->check(CLI::Range(0.0, 1.0));
  addList("--window", windows, "queries to look among (K)")
      ->check(CLI::Range(1, 1 << 20));
  addList("--band", bands, "tokens attended to before a match (r)")
      ->check(atLeastZero());
}

/// How traces of softmax attention are taken.
static void addTraceOptions(CLI::App &command, int64_t &tokens, int64_t &prompt,
                            double &ropeBase) {
  command.add_option("--tokens", tokens, "of the trace (default: all)")
      ->check(aboveZero());
  command
      .add_option("--prompt", prompt,
                  "of them that are a prompt (default: half)")
      ->check(aboveZero());
  command
      .add_option("--rope-base", ropeBase,
                  "of a trace without q_post: rotate q_pre, pairs of "
                  "(i, i + D / 2)")
      ->check(aboveZero());
}

void tool::addAttentionTuneOptions(CLI::App &command, TuneRequest &tune) {
  command
      .add_option("--trace", tune.traces,
                  "of an attention, what a layer took, as for mac-profile: one "
                  "a layer, or LAYER:FILE; chooses the cheapest tau, K and r "
                  "within --max-error, which --table keeps")
      ->allow_extra_args(false);
  command
      .add_option("--max-error", tune.maxError,
                  "with --trace: the mean of |o - exact| / |exact| that a "
                  "layer may have on each of its traces")
      ->check(atLeastZero());
  addMatchOptions(command, tune.taus, tune.windows, tune.bands);
  command
      .add_option("--max-chain", tune.chains,
                  "summaries made one from another before one is exact; 0 is "
                  "no limit")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(atLeastZero())
      ->capture_default_str();
  addTraceOptions(command, tune.traceTokens, tune.prompt, tune.ropeBase);
}

void tool::addBenchOptions(CLI::App &command, BenchOptions &bench) {
  auto addList = [&](const char *name, auto &list, const char *text) {
    return command.add_option(name, list, text)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str();
  };
  command.add_option("--device", bench.device, "gpu, cpu or auto")
      ->check(CLI::IsMember({"gpu", "cpu", "auto"}))
      ->capture_default_str();
  addList("--routes", bench.routes,
          "routes (default: all that are legal, and on a CPU recurrent, inner "
          "and adjoint); auto is what was tuned, or else what the model "
          "chooses");
  addList("--states", bench.states, "storage of states")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  addList("--entries", bench.entries, "storage of values that are cached")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  addLayoutOption(command, bench.source);
  addList("--batch", bench.batches, "rows, on a GPU")
      ->check(CLI::Range(1, 65535));
  addList("--m", bench.thresholds, "entries of a cycle")
      ->check(CLI::Range(1, 1024));
  command
      .add_option(
          "--drafts", bench.drafts,
          "steps that verify so many drafts a row (1,2,4,8), cycles, and "
          "tokens a second; on a GPU, by inner unless --routes says otherwise")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 16));
  command
      .add_option("--capacity", bench.capacity,
                  "with --drafts: entries that a state has, if that is more "
                  "than m and T ask for")
      ->check(CLI::Range(1, 1024));
  addMemoryOption(command, bench.memory);
  command.add_flag("--mixed", bench.mixed,
                   "batches of all kinds of rows, up to --drafts (4) verified");
  command
      .add_option(
          "--prompts", bench.prompts,
          "calls that prefill a prompt of so many tokens a row, against steps "
          "that verify 16 drafts; on a GPU, by inner unless --routes says "
          "otherwise; of an attention, against what its tensor cores give")
      ->check(CLI::Range(1, 1 << 20));
  command
      .add_option("--context", bench.context,
                  "tokens of an attention's sequence, on a GPU (32768)")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--samples", bench.samples, "of each step")
      ->check(aboveZero())
      ->capture_default_str();
  command
      .add_option(
          "--layers", bench.modelLayers,
          "of a model, which share cursors: on a GPU these move once in "
          "so many steps of a layer; 0 leaves them out")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--budget", bench.budget,
                  "stop before this: 30s, 9m (default: never)")
      ->transform(CLI::AsNumberWithUnit(timeUnits));
  command.add_option("--json", bench.json,
                     "a file for the figures; those that a GPU has left there "
                     "are not measured again");
  command.add_flag("--skip-check", bench.skipCheck,
                   "do not compare answers with the interpreter first");
  command.add_flag(
      "--profile", bench.profile,
      "for a profiler: on a GPU, launch a step of every layer at "
      "every fill once, print what bytes are expected, time nothing");
  command.add_flag(
      "--early", bench.early,
      "on a GPU, also time steps that start before those of other "
      "layers ahead of them have ended; with --drafts, only these");
  command.add_flag("--batch-invariant", bench.batchInvariant,
                   "of attentions on a GPU: answers of a row do not depend on "
                   "the rows around it");
  command
      .add_option("--alike", bench.alike,
                  "of attentions on a GPU: the share of a ring's entries whose "
                  "first half is the query's, so that they are read whole "
                  "(default: 0)")
      ->check(CLI::Range(0.0, 1.0));
  addList("--forms", bench.forms,
          "on a GPU, also time kernels that hold one of these forms alone, "
          "and compare: decode, decode_fold")
      ->check(CLI::IsMember({"decode", "decode_fold"}));
  command.add_option("--threads", bench.threads, "of a CPU (default: all)");
  command
      .add_option("--rows", bench.hostRows,
                  "rows on a CPU (default: states of four times the "
                  "last-level cache)")
      ->check(aboveZero());
}

void tool::addMacProfileOptions(CLI::App &command, MacProfileOptions &profile) {
  command
      .add_option("trace", profile.traces,
                  "safetensors with q_pre, q_post, k_post and v [tokens, "
                  "heads, D] in bf16; of several also the mean")
      ->required();
  addMatchOptions(command, profile.taus, profile.windows, profile.bands);
  AttentionSettings &settings = profile.settings;
  auto addCount = [&command](const char *name, int64_t &count,
                             const char *text) {
    return command.add_option(name, count, text)
        ->check(atLeastZero())
        ->capture_default_str();
  };
  addCount(
      "--max-chain", settings.maxChain,
      "summaries made one from another before one is exact; 0 is no limit");
  addCount("--sinks", settings.sinks,
           "tokens at the start that are always attended to");
  addCount("--max-gap", settings.maxGap,
           "tokens that a match may lie back; 0 is no limit");
  addCount("--skip", settings.skip,
           "tokens that a match has to save; 0 is no limit");
  command
      .add_option("--drift", settings.drift,
                  "how near rotated queries have to be, too (default: they "
                  "are not looked at)")
      ->check(CLI::Range(0.0, 1.0));
  CLI::Option *wide = addCount(
      "--wide-band", settings.wideBand,
      "r of matches more than --wide-gap tokens back; 0 is that of all");
  addCount("--wide-gap", settings.wideGap, "of --wide-band")->needs(wide);
  addTraceOptions(command, profile.tokens, profile.prompt, profile.ropeBase);
  command.add_flag("--diagnostics", profile.diagnostics,
                   "hits, weights and norms of each head, too");
  command.add_flag("--json", profile.json, "for a program");
}

CLI::Option *tool::addParameters(CLI::App &command, const char *name,
                                 std::map<std::string, int64_t> &parameters,
                                 const char *text) {
  return command
      .add_option_function<std::vector<std::string>>(
          name,
          [&parameters](const std::vector<std::string> &all) {
            for (const std::string &each : all) {
              size_t equals = each.find('=');
              int64_t value = 0;
              if (equals == 0 || equals == std::string::npos ||
                  !CLI::detail::lexical_cast(each.substr(equals + 1), value))
                throw CLI::ValidationError(each, "is not name=number");
              parameters[each.substr(0, equals)] = value;
            }
          },
          text)
      ->delimiter(',')
      ->allow_extra_args(false);
}

bool tool::parseSettings(const std::vector<std::string> &settings,
                         SourceOptions &source) {
  for (const std::string &setting : settings) {
    size_t equals = setting.find('=');
    std::string name = setting.substr(0, equals);
    std::string text =
        equals == std::string::npos ? "" : setting.substr(equals + 1);
    char *end = nullptr;
    double value = std::strtod(text.c_str(), &end);
    if (name.empty() || text.empty() || *end) {
      std::fprintf(stderr,
                   "error: --set takes name=number, got '%s'\n"
                   "note: for instance --set Hk=2\n",
                   setting.c_str());
      return false;
    }
    if (value == static_cast<int64_t>(value))
      source.sizes[name] = static_cast<int64_t>(value);
    else
      source.options[name] = value;
  }
  return true;
}
