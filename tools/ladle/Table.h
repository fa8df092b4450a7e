//===- Table.h - columns of text, and a progress bar ------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_TABLE_H
#define LADLE_TOOLS_LADLE_TABLE_H

#include <cstdint>
#include <string>
#include <vector>

namespace ladle::tool {

/// Columns as wide as their widest cell: the first to the left, others to the
/// right. Headings may have several lines.
class Table {
public:
  explicit Table(std::vector<std::string> headings)
      : headings(std::move(headings)) {}
  /// A row may be shorter than the headings.
  void add(std::vector<std::string> cells) { rows.push_back(std::move(cells)); }
  std::string str() const;

private:
  std::vector<std::string> headings;
  std::vector<std::vector<std::string>> rows;
};

/// A bar on the standard error if that is a terminal, nothing otherwise.
class Progress {
public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress &) = delete;

  /// Shows `done` of `total` under a label.
  void show(const std::string &label, double done, double total);
  /// Removes the bar, so that something else can be printed.
  void clear();

private:
  bool isTerminal, isShown = false;
  std::string last;
};

/// 1234567 as "1.23 MB".
std::string formatBytes(double bytes);
/// Seconds as "12.3 µs".
std::string formatTime(double seconds);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_TABLE_H
