//===- CheckCase.h - one configuration of a check ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_CHECK_CHECKCASE_H
#define LADLE_RUNTIME_CHECK_CHECKCASE_H

#include "ladle/status.h"
#include "ladle/types.h"

#include <map>
#include <string>
#include <string_view>

namespace ladle::check {

/// One run of one route against the oracle. As text it is what
/// `ladle check --case` takes, for instance
/// "route=inner,state=bf16,L=8,m=5,rows=3,pads=1,seed=7": keys in any order,
/// those left out as here.
struct CheckCase {
  RouteKind route = RouteKind::Recurrent; ///< route
  DType stateType = DType::F32;           ///< state
  DType entryType = DType::F32;           ///< entries
  DType outputType = DType::F32;          ///< outputs
  StateLayout layout = StateLayout::DvDk; ///< layout
  int64_t capacity = 16;                  ///< L: entries that a slot can hold
  int64_t threshold = 16;                 ///< m: entries that make a row fold
  int64_t page = 0;      ///< page: entries of a page; 0 is none
  int64_t crossover = 0; ///< crossover: m of rows without a state; 0 is m
  int64_t drafts = 0;    ///< drafts: the most of a row; 0 is to decode alone
  /// Drafts are random trees, of which any path is accepted; else chains.
  bool trees = false; ///< trees
  /// prompts: the most tokens of a row's prompt, between decode steps; 0 is
  /// none. chunk: of the program. by_chunk: it folds where chunks end.
  int64_t prompts = 0, chunk = 64;
  bool byChunk = false;
  int64_t batch = 0;   ///< rows that kernels are laid out for; 0: as asked
  int64_t rows = 2;    ///< rows of a batch
  int64_t tokens = 40; ///< steps
  /// Rows take random slots, so that each slot is at its own fill.
  bool staggered = false; ///< staggered
  /// Random rows of a step write another slot than they read.
  bool moves = false; ///< moves
  /// Random rows of a step are padding.
  bool pads = false; ///< pads
  /// Random slots are reset between steps.
  bool resets = false; ///< resets
  /// Random slots become branches of others between steps.
  bool forks = false; ///< forks
  /// Slots take states when they need them.
  bool takesStates = false; ///< takes_states
  /// Elements between the states of two slots that belong to neither.
  int64_t slotPadding = 0; ///< padding
  /// Inputs of a row lie side by side, as they leave a projection.
  bool packed = false; ///< packed
  uint64_t seed = 1;   ///< seed
  /// Overrides of the preset, by name; each is a key of its own.
  std::map<std::string, int64_t> sizes; ///< size.NAME

  /// What differs from a default CheckCase, the route always.
  std::string str() const;
  static Result<CheckCase> parse(std::string_view text);

  bool operator==(const CheckCase &) const = default;
};

/// "f32", "bf16" or "f16".
std::optional<DType> parseStorageType(std::string_view text);

} // namespace ladle::check

#endif // LADLE_RUNTIME_CHECK_CHECKCASE_H
