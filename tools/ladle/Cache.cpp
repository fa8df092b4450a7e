//===- Cache.cpp - ladle cache --------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "codegen/DiskCache.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Table.h"

#include <cstdio>
#include <ctime>
#include <fmt/format.h>

using namespace ladle;
using namespace ladle::tool;

static std::string formatDate(std::chrono::system_clock::time_point time) {
  std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local);
  return text;
}

static void list(const DiskCache &cache) {
  Table table({"entry", "bytes", "last used"});
  double total = 0;
  std::vector<DiskCache::Item> items = cache.list();
  for (const DiskCache::Item &item : items) {
    table.add({item.key.substr(0, 16), std::to_string(item.bytes),
               formatDate(item.lastUse)});
    total += item.bytes;
  }
  if (!items.empty())
    std::fputs(table.str().c_str(), stdout);
  std::fputs(fmt::format("{} entries, {} of {}, in {}\n", items.size(),
                         formatBytes(total), formatBytes(cache.getLimit()),
                         cache.getDirectory().str())
                 .c_str(),
             stdout);
}

int tool::cache(const std::string &action) {
  DiskCache cache = DiskCache::openDefault();
  if (cache.getDirectory().empty()) {
    std::fputs("error: there is no cache: no home directory is known\n"
               "note: set LADLE_CACHE_DIR to a folder\n",
               stderr);
    return 1;
  }
  if (action == "ls") {
    list(cache);
    return 0;
  }
  DiskCache::Removed removed =
      action == "clear" ? cache.clear() : cache.trim(cache.getLimit());
  std::fputs(fmt::format("removed {} entries, {}\n", removed.entries,
                         formatBytes(removed.bytes))
                 .c_str(),
             stdout);
  return 0;
}
