//===- compile.h - from a .ladle file to a program --------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiler as a library (ladle_jit). What it makes is kept in a cache on
// disk, so that the second process to ask for a program starts at once.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_COMPILE_H
#define LADLE_COMPILE_H

#include "ladle/program.h"

#include <map>

namespace ladle {

struct CompileOptions {
  /// Empty: the first recurrence of the file.
  std::string recurrence;
  /// Empty: the first preset, if there is one.
  std::string preset;
  /// Override the preset. A name may stand in either map, whether it is a size
  /// or an option of the file.
  std::map<std::string, int64_t> sizes;
  std::map<std::string, double> options;
  /// Storage of all states: "f32", "bf16" or "f16"; empty: as declared.
  std::string stateType;
  /// How a head of a state lies in the pool: "dv_dk", the keys contiguous, or
  /// "dk_dv". The first takes less to decode, and a GPU takes drafts of no
  /// other.
  std::string stateLayout = "dv_dk";
  /// Storage of tokens and outputs by name, where it is not as declared.
  std::map<std::string, std::string> tokenTypes;
  /// Storage of cached values that depend on a state.
  std::string entryType = "f32";
  /// L: entries that a slot of the buffer holds.
  int64_t capacity = 16;
  /// Entries of a page, 8 or 16, of which the last of a slot has as many as the
  /// capacity leaves: then slots take pages as their entries need them, from
  /// all that the cursors have (CursorOptions::pages). 0: a slot has room for
  /// all its entries.
  int64_t page = 0;
  /// The most drafts of a row that Decoder::verify takes, 0 to 16; the capacity
  /// is twice as much at least. 0: the program only decodes.
  int64_t drafts = 0;
  /// Whether the program takes prompts (Decoder::prefill), and the tokens of
  /// one that it answers at once, 1 to 256. On a GPU they become a state, or by
  /// kv_only entries in pages.
  bool prefill = false;
  int64_t chunk = 64;
  /// Where histories are folded. "step": where it is cheapest. "chunk": where
  /// the length of a sequence reaches a multiple of `chunk`, in prompts and in
  /// decoding, as training with chunks of that size does it. Then `capacity` is
  /// the chunk, routes have a buffer, there are no drafts, and the program
  /// takes prompts. Rows stay in their slots: steps take no write slots
  /// (`fork` makes copies). On a GPU there are no pages either.
  std::string numerics = "step";
  /// A route, or "auto": the one that the cost model finds cheapest for
  /// `batch` rows and sequences of `context` tokens (0: longer than any
  /// buffer) on this machine.
  std::string route = "auto";
  int64_t batch = 256, context = 0;
  /// Measured bandwidths of memory in GB/s, for the cost model; 0 takes those
  /// of an ordinary server.
  double readBandwidth = 0, updateBandwidth = 0;
  /// By which rows of kv_only go on once they have a state: inner, outer or,
  /// without drafts, recurrent. On a GPU inner or outer, and without pages the
  /// caller changes to it.
  std::string longRoute = "inner";
  /// Of a GPU: parameters of the kernels by name, as `ladle bench --schedule`
  /// takes them, in place of what was tuned. 0 is left to the generator.
  std::map<std::string, int64_t> schedule;
  /// Further routes of the same program, which must cache the same entries.
  std::vector<std::string> extraRoutes;
  bool useDiskCache = true;
  /// "cpu", "cuda", or "auto": cuda where there is a device and a compiler for
  /// it (NVRTC), else cpu.
  std::string target = "cpu";
  int device = 0; ///< of cuda
};

/// Compiles a file ("-" is the standard input), or finds it in the cache.
/// InvalidArgument if it does not compile: the message holds all diagnostics,
/// with source lines and carets.
///
/// The manifest of the program is a JSON object with
/// - "version", "target" (a processor, or "sm_90a"), "capacity", "page",
///   "drafts", "chunk" (0 without prompts), "numerics", "entry_type",
///   "state_layout"
/// - "route" and "fold_threshold", the choice of the cost model if the route
///   was "auto"; and then also
/// - "routes": an array of what each legal route costs: "route",
///   "fold_threshold", "seconds" a step of the batch, and "bytes" and "flops" a
///   token and row, all amortised over a cycle and predicted
/// - "crossover" if kv_only is among the routes: Program::crossover
/// - "warnings": what the compiler had to say
/// - "tuned" if the choice or the schedule were tuned: "choice", "batch" and
///   "date"; with drafts, "tuned_for_drafts" says the same of what verifies
/// - "kernels": an array of "route", "bytes" of code, "cached", "milliseconds"
/// - of cuda: "device", "driver", "nvrtc", "context_milliseconds" for the
///   context of the device, which a process creates once, and "milliseconds"
///   from the source to kernels on the device without that
Result<Program> compileFile(const std::string &path,
                            const CompileOptions &options = {});

/// Likewise for text that is in memory; diagnostics call it `name`.
Result<Program> compileSource(std::string_view text, std::string_view name,
                              const CompileOptions &options = {});

/// Compiles each legal route into a program of its own, in parallel, in the
/// order of RouteKind. `route` and `extraRoutes` do not matter.
Result<std::vector<Program>>
compileAllRoutes(std::string_view text, std::string_view name,
                 const CompileOptions &options = {});

} // namespace ladle

#endif // LADLE_COMPILE_H
