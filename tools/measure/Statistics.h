//===- Statistics.h - of samples --------------------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_MEASURE_STATISTICS_H
#define LADLE_TOOLS_MEASURE_STATISTICS_H

#include <algorithm>
#include <vector>

namespace ladle::measure {

/// The middle one, or the mean of both. 0 if there are none.
inline double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  size_t half = values.size() / 2;
  return values.size() % 2 ? values[half]
                           : (values[half - 1] + values[half]) / 2;
}

} // namespace ladle::measure

#endif // LADLE_TOOLS_MEASURE_STATISTICS_H
