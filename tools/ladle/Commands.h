//===- Commands.h - what the command line calls -----------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The commands of `ladle`. This header knows neither MLIR nor the command
// line, so that one does not reach the other.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_COMMANDS_H
#define LADLE_TOOLS_LADLE_COMMANDS_H

#include "ladle/attention.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ladle::tool {

/// What every command that reads a `.ladle` file needs.
struct SourceOptions {
  std::string file;
  std::string recurrence, preset;
  bool takesAttention = false; ///< set by the commands that do
  std::map<std::string, int64_t> sizes;
  std::map<std::string, double> options;
  std::string stateType; ///< empty: as declared
  std::string entryType = "f32";
  std::string stateLayout = "dv_dk"; ///< or dk_dv
  int64_t capacity = 16;
  /// The options that the user gave: "--batch", whatever its value.
  std::set<std::string, std::less<>> given;
};

struct ExplainOptions {
  SourceOptions source;
  std::vector<int64_t> batches{1, 8, 64, 256};
  std::string machine = "cpu";
  std::optional<int64_t> drafts; ///< a step in speculation; none: about 4
  int64_t layers = 1;            ///< whose memory a request needs
  double memory = 0;             ///< bytes for all requests; 0: not asked
  /// Of two random queries to match, for which tau is wanted; none: some.
  std::vector<double> chances;
  bool json = false;
};
/// Prints the history form, operand classes, routes, bytes and crossings.
int explain(const ExplainOptions &options);

struct EmitOptions {
  SourceOptions source;
  /// spec, history, step, kernel, cuda, ptx, cubin, object
  std::string stage = "step";
  std::string target = "cpu";  ///< of the kernel stage: cpu or cuda
  std::string arch = "sm_90a"; ///< of ptx and cubin
  std::string cpu = "native";  ///< of object, as LLVM names it
  std::string output;          ///< the folder for object files
  /// How kernels of a GPU are laid out; 0 as they are by default.
  std::map<std::string, int64_t> layout;
  std::vector<std::string> routes;
  std::vector<std::string> forms; ///< of the CPU; empty: all
  std::optional<int64_t> drafts;  ///< the most of a row; none: 8 if verified
  std::optional<int64_t> chunk;   ///< of a prompt; none: 64 if prefilled
  int64_t page = 0;               ///< entries of a page; 0: there are none
};
/// Prints the IR of a stage, or the text and code that follow it.
int emit(const EmitOptions &options);

struct RunOptions {
  SourceOptions source;
  std::string trace; ///< safetensors; empty: random inputs
  /// Where the parameters of an attention are, by these letters and their
  /// names; empty: where its tokens are.
  std::string params, paramsPrefix;
  std::string route = "auto";
  std::optional<int64_t> threshold; ///< m; none: by the cost model
  int64_t tokens = 2048;
  int64_t chunk = 64; ///< of a prompt
  /// None: until the state exceeds the cache 4 times.
  std::optional<int64_t> rows;
  std::optional<int64_t> threads; ///< of the CPU; none: all
  std::string target = "auto";    ///< cpu, cuda, or cuda where there is a GPU
  bool json = false;
};
/// Decodes a trace by every route and prints a table.
int run(const RunOptions &options);

struct CheckOptions {
  SourceOptions source;
  std::string trace;
  std::vector<std::string> ranges; ///< name=low:high of random inputs
  uint64_t seed = 1;
  std::string only;           ///< a case as text: run it alone
  std::string target = "cpu"; ///< or cuda
  int64_t drafts = 0; ///< cases with so many a row alone; 0 for all cases
  int64_t page = 0;   ///< entries of a page in all cases; 0: in some
  bool full = false;
  bool json = false;
};
/// Compares every route with the float64 interpreter.
int check(const CheckOptions &options);

struct MacProfileOptions {
  std::vector<std::string> traces;
  std::vector<double> taus{0.3, 0.45, 0.6, 0.75};
  std::vector<int64_t> windows{1024};     ///< K
  std::vector<int64_t> bands{0, 64, 256}; ///< r
  /// Of match and complete, the same for all; tau, window and band are not
  /// used.
  AttentionSettings settings;
  bool hasDrift = false; ///< whether settings.drift is a second gate
  int64_t tokens = 0;    ///< of the trace; 0: all
  int64_t prompt = 0;    ///< of them; 0: half
  double ropeBase = 0;   ///< of queries that are not rotated; 0: none
  bool diagnostics = false;
  bool json = false;
};
/// What match, amend, complete does to real layers.
int macProfile(const MacProfileOptions &options);

struct BenchOptions {
  SourceOptions source;        ///< its state type and capacity are not used
  std::string device = "auto"; ///< gpu, cpu, or the first of them that is there
  std::vector<std::string> routes; ///< empty: all that are legal
  std::vector<std::string> states{"f32"};
  std::vector<std::string> entries{"bf16"};
  std::vector<int64_t> batches{1, 8, 32, 128, 256};
  std::vector<int64_t> thresholds{16}; ///< m
  /// How kernels are laid out: threads, tile_rows.
  std::map<std::string, int64_t> schedule;
  /// On a GPU: forms whose kernels are timed besides those that hold all.
  std::vector<std::string> forms;
  int64_t samples = 9; ///< of each fill; on a CPU the rounds
  /// Steps that verify so many a row, on a GPU; empty: steps of a token.
  std::vector<int64_t> drafts;
  double memory = 0;    ///< bytes for requests with drafts; 0: not asked
  int64_t capacity = 0; ///< entries, with drafts; 0: what m and T ask for
  /// Rows of which each does something else, in one call, on a GPU.
  bool mixed = false;
  /// Tokens of the prompts that rows take in a call, on a GPU; 0: steps.
  int64_t prompts = 0;
  /// Tokens of a sequence, of attentions. 0 is 32768; of a bounded cache, as
  /// many as fill it.
  int64_t context = 0;
  /// Of a model, which share cursors: on a GPU these move once in so many
  /// steps.
  int64_t modelLayers = 32;
  double budget = 0;  ///< seconds; 0: as long as it takes
  std::string json;   ///< figures that it holds are not measured again
  bool early = false; ///< also steps that start early
  /// Of attentions on a GPU: AttentionDecoderOptions::batchInvariant.
  bool batchInvariant = false;
  /// Of their rings, the share of entries whose first half is the query's.
  double alike = 0;
  bool skipCheck = false;
  bool profile = false; ///< launches every step once, and times nothing
  std::optional<int64_t> threads; ///< of a CPU; none: all
  /// On a CPU; 0: until the states exceed the cache 4 times.
  int64_t hostRows = 0;
  std::string commandLine; ///< for the record
};
/// Times steps against the limit of the memory.
int bench(const BenchOptions &options);

struct TuneRequest {
  SourceOptions source; ///< its capacity is not used
  std::vector<std::string> routes{"recurrent", "inner", "outer", "adjoint"};
  std::vector<int64_t> thresholds{4, 8, 16, 24, 32}; ///< m
  /// Of rings of steps that verify, besides what m and the drafts ask for.
  std::vector<int64_t> capacities{16, 32, 64};
  std::vector<int64_t> batches{256};
  /// Steps that verify so many a row, of which a part is accepted; empty: steps
  /// of a token.
  std::vector<int64_t> drafts;
  double acceptance = 0.5;
  /// Parameters of the schedule: "threads=64:128:256".
  std::vector<std::string> vary;
  std::string mode = "fill"; ///< off, frozen, fill or force
  std::string card;          ///< what is asked about, where there is no GPU
  std::string folder;        ///< for results; empty: the user's
  std::string table;         ///< a table to add the choices to
  int64_t keep = 48;         ///< candidates that the model lets through
  double budget = 0;         ///< seconds; 0: as long as it takes
  bool explain = false;

  /// Of an attention: "FILE" or "layer:FILE", and what may be chosen.
  std::vector<std::string> traces;
  std::optional<double> maxError;
  std::vector<double> taus{0.3, 0.45, 0.6, 0.75, 0.9};
  std::vector<int64_t> windows{256, 1024};
  std::vector<int64_t> bands{0, 16, 64, 256, 512};
  std::vector<int64_t> chains{0, 16};
  int64_t traceTokens = 0, prompt = 0; ///< 0: all, half of them
  double ropeBase = 0; ///< of queries that are not rotated; 0: none
};
/// Searches for the fastest way to run a recurrence, or for the cheapest
/// numbers of an attention.
int tune(const TuneRequest &request);

/// `ladle cache ls|trim|clear`.
int cache(const std::string &action);
/// `ladle doctor`: what this machine offers.
int doctor();

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_COMMANDS_H
