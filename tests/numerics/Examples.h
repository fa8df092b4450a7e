//===- Examples.h - the .ladle files of examples/ ---------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TESTS_NUMERICS_EXAMPLES_H
#define LADLE_TESTS_NUMERICS_EXAMPLES_H

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace ladle::test {

/// The tests run in the root of the repository.
inline std::string examplePath(const std::string &model) {
  return "examples/" + model + ".ladle";
}

inline std::string readExample(const std::string &model) {
  std::ifstream file(examplePath(model));
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What the preset "tiny" says, read without the frontend.
inline std::map<std::string, int64_t> tinySizes(const std::string &model) {
  std::string text = readExample(model), start = "preset \"tiny\" {";
  size_t begin = text.find(start);
  REQUIRE(begin != std::string::npos);
  begin += start.size();
  std::istringstream body(text.substr(begin, text.find('}', begin) - begin));
  std::map<std::string, int64_t> sizes;
  std::string name, equals;
  for (int64_t size; body >> name >> equals >> size; body.ignore(1, ','))
    sizes[name] = size;
  return sizes;
}

inline bool hasOption(const std::string &model, const std::string &name) {
  return readExample(model).find("option " + name + " =") != std::string::npos;
}

/// An attention with everything that a match may have: sinks, two bands, a gate
/// on drift, and a moment that is given. `sizes` is of its one preset.
inline std::string everythingOfMatches(
    const std::string &sizes = "Hq = 4, Hkv = 2, D = 64, Dv = 32",
    int window = 16) {
  return "attention everything(Hq, Hkv, D, Dv) {\n  preset \"p\" { " + sizes +
         R"( }
  param moment[Hq] : f32
  token q_pre[Hq, D], q[Hq, D], k[Hkv, D], v[Hkv, Dv] : bf16
  cache KV[k, v] paged(16)
  let prefix = match(q_pre, )" +
         std::to_string(window) + R"(, 0.4, moment = moment, drift = 0.1)
  out o[Hq, Dv] : bf16 =
    complete(prefix, softmax(q, KV, scale = rsqrt(D)), 4, sinks = 2,
             wide_band = 10, wide_gap = 3)
}
)";
}

} // namespace ladle::test

#endif // LADLE_TESTS_NUMERICS_EXAMPLES_H
