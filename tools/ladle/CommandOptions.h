//===- CommandOptions.h - options that commands share -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_COMMANDOPTIONS_H
#define LADLE_TOOLS_LADLE_COMMANDOPTIONS_H

#include "tools/ladle/Commands.h"
#include <CLI/CLI.hpp>

namespace ladle::tool {

/// Of numbers that an option may be: finite ones, as CLI11's own are not.
CLI::Validator aboveZero();
CLI::Validator atLeastZero();

/// `--set name=value` fills sizes or options: whole numbers may be either, and
/// the frontend knows which.
void addFileOptions(CLI::App &command, SourceOptions &source,
                    std::vector<std::string> &settings);
void addSourceOptions(CLI::App &command, SourceOptions &source,
                      std::vector<std::string> &settings);
void addMemoryOption(CLI::App &command, double &bytes);
/// "threads, tile_rows, batch"
std::string parameterNames();
void addTuneOptions(CLI::App &command, TuneRequest &tune);
void addAttentionTuneOptions(CLI::App &command, TuneRequest &tune);
/// What to time: lists, of which every combination is a figure.
void addBenchOptions(CLI::App &command, BenchOptions &bench);
void addMacProfileOptions(CLI::App &command, MacProfileOptions &profile);
/// name=number, into a map.
CLI::Option *addParameters(CLI::App &command, const char *name,
                           std::map<std::string, int64_t> &parameters,
                           const char *text);
/// Returns false, with a message, if a setting is not name=number.
bool parseSettings(const std::vector<std::string> &settings,
                   SourceOptions &source);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_COMMANDOPTIONS_H
