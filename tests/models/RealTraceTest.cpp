//===- RealTraceTest.cpp - the gated delta rule on a real trace -*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs from the root of the repository. Reads the file by itself: the
// references are there to judge the runtime, so they do not rest on it.
//
//===----------------------------------------------------------------------===//

#include "tests/models/TestInputs.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace ladle::reference;

/// All tensors of a safetensors file, widened to float64.
static Tensors readTrace(const char *path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  uint64_t length = 0;
  file.read(reinterpret_cast<char *>(&length), sizeof length);
  std::string text(length, '\0');
  file.read(text.data(), length);
  std::string data(std::istreambuf_iterator<char>(file), {});

  Tensors tensors;
  nlohmann::json header = nlohmann::json::parse(text);
  header.erase("__metadata__");
  for (const auto &[name, entry] : header.items()) {
    size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    bool half = entry["dtype"] == "BF16";
    if (!half && entry["dtype"] != "F32" && entry["dtype"] != "I32")
      continue;
    for (size_t at = begin; at < end; at += half ? 2 : 4) {
      uint32_t bits = 0;
      // A bfloat16 is the upper half of a float.
      std::memcpy(reinterpret_cast<char *>(&bits) + (half ? 2 : 0), &data[at],
                  half ? 2 : 4);
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      tensors[name].push_back(entry["dtype"] == "I32" ? bits : value);
    }
  }
  return tensors;
}

TEST_CASE("the gated delta rule reproduces the trace of a trained model") {
  Tensors trace = readTrace("examples/data/tinylm-gdn-doc1-layer5.safetensors");
  auto rule = makeReference(
      "gated_delta_rule", {{{"Hk", 2}, {"Hv", 4}, {"Dk", 64}, {"Dv", 64}}, {}});
  std::vector<double> positions = trace.at("positions"), outputs;
  size_t count = trace.at("g").size() / 4;
  for (size_t t = 0; t < count; ++t) {
    Tensors token;
    for (const char *name : {"q", "k", "v", "g", "beta"}) {
      const std::vector<double> &all = trace.at(name);
      size_t width = all.size() / count;
      token[name].assign(all.begin() + t * width,
                         all.begin() + (t + 1) * width);
    }
    std::vector<double> o = rule->step({}, token).at("o");
    if (std::find(positions.begin(), positions.end(), t) != positions.end())
      outputs.insert(outputs.end(), o.begin(), o.end());
  }
  // What is stored was rounded to float32 once.
  CHECK(relativeError(outputs, trace.at("o")) < 1e-7);
  CHECK(relativeError(rule->state("S"), trace.at("state")) < 1e-7);
}
