//===- LayerBudgets.cpp - a budget for each layer -------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/budgets.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

using namespace ladle;

double ladle::preferenceScore(const LayerPreference &preference,
                              const PreferenceExponents &exponents) {
  return std::pow(preference.disturbance, exponents.disturbance) *
         std::pow(preference.entropy, exponents.entropy);
}

Result<LayerBudgets> LayerBudgets::create(const LayerBudgetOptions &options) {
  auto invalid = [](std::string message) {
    return Status(ErrorCode::InvalidArgument, std::move(message));
  };
  if (options.layers < 1)
    return invalid(
        fmt::format("layers is {}, wanted 1 at least", options.layers));
  if (options.least < 0 || options.most < std::max<int64_t>(options.least, 1))
    return invalid(fmt::format("least is {} and most {}, wanted 0 at least, "
                               "and as much at the most",
                               options.least, options.most));
  int64_t needed = 0;
  if (__builtin_mul_overflow(options.layers, options.least, &needed) ||
      options.total < needed)
    return invalid(fmt::format("total is {}, wanted {} at least for {} layers",
                               options.total, options.least, options.layers));
  return LayerBudgets(options);
}

/// Numbers in proportion to `scores`, but between `least` and `most` of each,
/// that add up to `total`.
static std::vector<double> proportional(std::span<const double> scores,
                                        std::span<const double> most,
                                        double least, double total) {
  // The sum grows with the factor of the scores, along a straight line between
  // the factors at which a layer leaves a bound.
  auto shareOf = [&](size_t layer, double factor) {
    return std::clamp(scores[layer] * factor, least, most[layer]);
  };
  std::vector<double> ends;
  for (size_t i = 0; i < scores.size(); ++i)
    for (double bound : {least, most[i]})
      ends.push_back(bound / scores[i]);
  std::sort(ends.begin(), ends.end());
  double begin = 0, end = 0;
  for (double next : ends) {
    begin = end;
    end = next;
    double sum = 0;
    for (size_t i = 0; i < scores.size(); ++i)
      sum += shareOf(i, end);
    if (sum >= total)
      break;
  }
  double middle = begin + (end - begin) / 2, bounded = 0, free = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    double share = scores[i] * middle;
    if (share > least && share < most[i])
      free += scores[i];
    else
      bounded += shareOf(i, middle);
  }
  double factor = free > 0 ? (total - bounded) / free : end;
  std::vector<double> shares;
  for (size_t i = 0; i < scores.size(); ++i)
    shares.push_back(shareOf(i, factor));
  return shares;
}

Status LayerBudgets::add(double score) {
  auto invalid = [](std::string message) {
    return Status(ErrorCode::InvalidArgument, std::move(message));
  };
  if (scores.size() == static_cast<size_t>(options.layers))
    return invalid(fmt::format("all {} layers have a budget", options.layers));
  if (!std::isfinite(score) || score < 0)
    return invalid(fmt::format("the score of layer {} is {}, wanted a number "
                               "of 0 at least",
                               scores.size(), score));
  scores.push_back(score);

  // A layer that loses nothing still has a share of what is left over.
  std::vector<double> weights = scores;
  double largest = *std::max_element(weights.begin(), weights.end());
  for (double &weight : weights)
    weight = largest > 0 ? std::max(weight / largest, 1e-9) : 1;
  std::vector<int64_t> most = shares;
  most.push_back(std::min(options.most, options.total));
  int64_t total = 0;
  for (int64_t each : most)
    total += each;
  total = std::min(total, options.total);
  std::vector<double> exact = proportional(
      weights, std::vector<double>(most.begin(), most.end()),
      static_cast<double>(options.least), static_cast<double>(total));

  std::vector<size_t> order(exact.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    double left = exact[a] - std::floor(exact[a]);
    double right = exact[b] - std::floor(exact[b]);
    return left != right ? left > right : a < b;
  });
  shares.clear();
  for (double share : exact)
    shares.push_back(static_cast<int64_t>(share));
  int64_t rest =
      total - std::accumulate(shares.begin(), shares.end(), int64_t(0));
  while (rest > 0)
    for (size_t layer : order)
      if (rest > 0 && shares[layer] < most[layer]) {
        ++shares[layer];
        --rest;
      }
  return Status();
}
