//===- RunAttentionReport.cpp - what a run of an attention found ----------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/RunAttention.h"
#include "tools/ladle/Table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace ladle;
using namespace ladle::tool;

std::string AttentionRunReport::table() const {
  std::string text = fmt::format("{} of {} on {}\n", name, file, inputs);
  text += arch.empty()
              ? fmt::format("{}, {} threads; ", host.processor, threads)
              : fmt::format("{}, {}; ", host.processor, arch);
  text += readBandwidth > 0 ? fmt::format("memory reads at {:.1f} GB/s\n",
                                          readBandwidth / 1e9)
                            : std::string("memory was not measured\n");
  if (!note.empty())
    text += fmt::format("note: {}\n", note.substr(0, note.find('\n')));
  double all = static_cast<double>(rows) * static_cast<double>(rowBytes);
  text += fmt::format("{} rows with {} of cache each{}, {}: {:.1f} times the "
                      "last-level cache of {}\n",
                      rows, formatBytes(static_cast<double>(rowBytes)),
                      isBounded ? "" : fmt::format(" at {} tokens", tokens),
                      formatBytes(all), all / host.cacheBytes(),
                      formatBytes(static_cast<double>(host.cacheBytes())));
  text += fmt::format("compiled in {}; errors over {} tokens of one row\n\n",
                      formatTime(compileSeconds), comparedTokens);
  Table table({"rows", "steps", "a step\non average", "a step\nat the end",
               "a token\nat the end"});
  for (const AttentionTiming *each : {&batch, &single})
    table.add({std::to_string(each->rows), std::to_string(each->steps),
               formatTime(each->seconds), formatTime(each->atEnd),
               formatTime(each->atEnd / static_cast<double>(each->rows))});
  text += table.str();
  text += fmt::format("\nthe largest relative error is {:.1e}, at token {} "
                      "(bound {:.1e})\n",
                      error, worstToken, bound);
  if (reuses)
    text +=
        fmt::format("{} of {} heads of tokens matched\n", hits, hits + misses);
  double rate = static_cast<double>(bytesAtEnd) / batch.atEnd;
  text += fmt::format("caches hold {} at the end: a step takes them at {:.1f} "
                      "GB/s",
                      formatBytes(static_cast<double>(bytesAtEnd)), rate / 1e9);
  if (hits > 0)
    text += ", counted as if nothing had matched";
  else if (readBandwidth > 0)
    text += fmt::format(", {:.0f} % of reading", 100 * rate / readBandwidth);
  text += "\n";
  if (prompt.rows > 0)
    text += fmt::format("a prompt of {} tokens: {} a token, {:.0f} tokens a "
                        "second\n",
                        prompt.steps, formatTime(prompt.seconds),
                        1 / prompt.seconds);
  if (!passed())
    text += fmt::format("error: token {} differs from the oracle by {:.2e}, "
                        "more than {:.2e}\n",
                        worstToken, error, bound);
  return text;
}

std::string AttentionRunReport::json() const {
  auto timing = [](const AttentionTiming &each) {
    return nlohmann::ordered_json{{"rows", each.rows},
                                  {"steps", each.steps},
                                  {"seconds_a_step", each.seconds},
                                  {"seconds_a_step_at_the_end", each.atEnd}};
  };
  nlohmann::ordered_json json = {{"file", file},
                                 {"attention", name},
                                 {"inputs", inputs},
                                 {"target", arch.empty() ? "cpu" : "cuda"},
                                 {"processor", host.processor},
                                 {"threads", threads},
                                 {"last_level_cache_bytes", host.cacheBytes()},
                                 {"read_bytes_a_second", readBandwidth},
                                 {"tokens", tokens},
                                 {"rows", rows},
                                 {"cache_bytes_a_row", rowBytes},
                                 {"cache_bytes_at_the_end", bytesAtEnd},
                                 {"compile_seconds", compileSeconds},
                                 {"compared_tokens", comparedTokens},
                                 {"error", error},
                                 {"bound", bound},
                                 {"passed", passed()},
                                 {"measured", timing(batch)},
                                 {"cache_resident", timing(single)}};
  if (reuses)
    json["matches"] = {{"hits", hits}, {"misses", misses}};
  if (prompt.rows > 0)
    json["prompt"] = {{"tokens", prompt.steps},
                      {"seconds_a_token", prompt.seconds}};
  return json.dump(2) + "\n";
}
