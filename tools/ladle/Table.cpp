//===- Table.cpp - columns of text, and a progress bar --------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/Table.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

using namespace ladle::tool;

/// Columns that a text takes: bytes that do not continue a character.
static size_t widthOf(const std::string &text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (c & 0xC0) != 0x80; });
}

static std::vector<std::string> splitLines(const std::string &text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string Table::str() const {
  std::vector<std::vector<std::string>> lines;
  size_t headingLines = 0;
  for (const std::string &heading : headings)
    headingLines = std::max(headingLines, splitLines(heading).size());
  lines.resize(headingLines);
  for (const std::string &heading : headings) {
    std::vector<std::string> parts = splitLines(heading);
    parts.resize(headingLines);
    for (size_t i = 0; i < headingLines; ++i)
      lines[i].push_back(parts[i]);
  }
  lines.insert(lines.end(), rows.begin(), rows.end());

  std::vector<size_t> widths(headings.size());
  for (const auto &line : lines)
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], widthOf(line[i]));
  std::string text;
  for (const auto &line : lines) {
    std::string row;
    for (size_t i = 0; i < line.size(); ++i) {
      std::string padding(widths[i] - widthOf(line[i]), ' ');
      row += i == 0 ? line[i] + padding : "  " + padding + line[i];
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

Progress::Progress() : isTerminal(isatty(STDERR_FILENO)) {}

void Progress::show(const std::string &label, double done, double total) {
  if (!isTerminal)
    return;
  constexpr int width = 30;
  double part = total > 0 ? std::clamp(done / total, 0.0, 1.0) : 1;
  int filled = static_cast<int>(part * width);
  std::string text =
      fmt::format("[{}{}] {:3.0f} % {}", std::string(filled, '#'),
                  std::string(width - filled, ' '), part * 100, label);
  if (text == last)
    return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  last = text;
  isShown = true;
}

void Progress::clear() {
  if (isShown)
    std::fputs("\r\033[K", stderr);
  isShown = false;
  last.clear();
}

std::string ladle::tool::formatBytes(double bytes) {
  const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit)
    bytes /= 1000;
  return unit == 0 ? fmt::format("{:.0f} B", bytes)
                   : fmt::format("{:.2f} {}", bytes, units[unit]);
}

std::string ladle::tool::formatTime(double seconds) {
  if (seconds < 1e-6)
    return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 1e-3)
    return fmt::format("{:.2f} µs", seconds * 1e6);
  if (seconds < 1)
    return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}
