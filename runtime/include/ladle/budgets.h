//===- budgets.h - a budget for each layer ----------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many tokens each layer of a model keeps, by what it would lose: the
// value-aware budgets (VABS) of SLAKE, and any scores alike, such as those of
// PyramidKV. docs/slake.md tells how they reach the slots of a pool.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_BUDGETS_H
#define LADLE_BUDGETS_H

#include "ladle/status.h"

#include <cstdint>
#include <span>
#include <vector>

namespace ladle {

/// What a prompt says about a layer whose cache is cut to a budget, as means
/// over the heads of the query and the last queries. With A the weights of
/// exact attention over the tokens before a query, and Ã those after the cut,
/// the evicted tokens at what their Taylor series gives them, or 0 for a query
/// of whose tokens none would be left:
struct LayerPreference {
  /// Of ½ Σ |Ã − A| · (Σ_j ‖v_j‖ / Σ ‖v‖ · |Ã_j − A_j|)^e. 0: nothing is lost.
  double disturbance = 0;
  /// Of −Σ a ln a, with a = max(Ã, 0) normalised, or A.
  double entropy = 0;

  bool operator==(const LayerPreference &) const = default;
};

/// SLAKE's table, at budgets of 128 and of 256 tokens: Llama-3.1-8B (0.4, 0.2)
/// and (0.6, 0.5), Llama-2-7B (0.5, 0.4) for both, Mistral-7B (0.6, 0.5) and
/// (0.4, 0.2).
struct PreferenceExponents {
  double disturbance = 0.4; ///< α
  double entropy = 0.2;     ///< β
};

/// PrefScore = disturbance^α · entropy^β. An exponent of 0 leaves its factor
/// out.
double preferenceScore(const LayerPreference &preference,
                       const PreferenceExponents &exponents = {});

struct LayerBudgetOptions {
  int64_t layers = 0; ///< of the model
  int64_t total = 0;  ///< tokens of all layers together
  /// Of one layer, whatever its score: sinks and recent tokens at the least,
  /// and what the program's budget gives memory for at the most.
  int64_t least = 1, most = INT64_MAX;
};

/// Budgets that cascade: when a layer has answered its prompt it is added, and
/// the layers so far share the total in proportion to their scores. So no more
/// than `total` tokens are ever kept, and each layer only ever gives up some.
///
/// Shares are whole by largest remainder, ties to the first layer. Where all
/// scores are 0 the shares are equal.
class LayerBudgets {
public:
  /// InvalidArgument if there is no layer, or `total` is less than `least` for
  /// each, or `least` is not within 0 and `most`.
  static Result<LayerBudgets> create(const LayerBudgetOptions &options);

  /// Adds the next layer. Then budgets add up to `total`, or to `most` for each
  /// if that is less, and no budget of an earlier layer has grown.
  /// InvalidArgument if all layers are there, or for a score that is negative
  /// or not finite.
  Status add(double score);

  /// Of the layers so far.
  std::span<const int64_t> budgets() const { return shares; }

private:
  explicit LayerBudgets(const LayerBudgetOptions &options) : options(options) {}
  LayerBudgetOptions options;
  std::vector<double> scores;
  std::vector<int64_t> shares;
};

} // namespace ladle

#endif // LADLE_BUDGETS_H
