//===- Weights.cpp - a trained model in memory ----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "examples/tiny_lm/Weights.h"
#include "examples/tiny_lm/Errors.h"
#include "ladle/safetensors.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>

using namespace tinylm;
using namespace ladle;

namespace {

class Reader {
public:
  explicit Reader(const std::string &path)
      : path(path), file(orThrow(Safetensors::open(path))) {}

  Vector vector(const std::string &name, int64_t size) const {
    return read(name, {size});
  }
  Matrix matrix(const std::string &name, int64_t out, int64_t in) const {
    return {out, in, read(name + ".weight", {out, in})};
  }

private:
  Vector read(const std::string &name,
              const std::vector<int64_t> &shape) const {
    TensorView view = orThrow(file.view(name));
    if (view.shape != shape)
      throw std::runtime_error(fmt::format("{}: '{}' is {}, wanted [{}]", path,
                                           name, toString(view),
                                           fmt::join(shape, ", ")));
    return orThrow(toFloats(view));
  }

  std::string path;
  Safetensors file;
};

} // namespace

static nlohmann::json readJson(const std::string &path) {
  std::ifstream stream(path);
  if (!stream)
    throw std::runtime_error(fmt::format("cannot read '{}'", path));
  try {
    return nlohmann::json::parse(stream);
  } catch (const nlohmann::json::exception &error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

static Config readConfig(const nlohmann::json &json) {
  Config config;
  config.vocabulary = json.at("vocab");
  config.width = json.at("d_model");
  config.hidden = json.at("mlp_hidden");
  config.queryHeads = json.at("n_q");
  config.keyValueHeads = json.at("n_kv");
  config.headSize = json.at("head_dim");
  config.ropeBase = json.at("rope_base");
  config.epsilon = json.at("eps");
  for (const std::string kind : json.at("layers")) {
    if (kind != "gdn" && kind != "attn")
      throw std::runtime_error(
          fmt::format("a layer is '{}', wanted 'gdn' or 'attn'", kind));
    config.isAttention.push_back(kind == "attn");
  }
  if (std::count(config.isAttention.begin(), config.isAttention.end(), false)) {
    config.deltaKeyHeads = json.at("n_gk");
    config.deltaValueHeads = json.at("n_gv");
    config.deltaKeySize = json.at("gdn_head_dim_k");
    config.deltaValueSize = json.at("gdn_head_dim_v");
  }
  return config;
}

static AttentionWeights readAttention(const Reader &reader,
                                      const std::string &at,
                                      const Config &config) {
  int64_t width = config.width, queries = config.queryHeads * config.headSize,
          keys = config.keyValueHeads * config.headSize;
  return {reader.matrix(at + "wq", queries, width),
          reader.matrix(at + "wk", keys, width),
          reader.matrix(at + "wv", keys, width),
          reader.matrix(at + "wo", width, queries)};
}

static GatedDeltaWeights readGatedDelta(const Reader &reader,
                                        const std::string &at,
                                        const Config &config) {
  int64_t width = config.width, heads = config.deltaValueHeads,
          keys = config.deltaKeyHeads * config.deltaKeySize,
          values = heads * config.deltaValueSize;
  GatedDeltaWeights result;
  result.query = reader.matrix(at + "wq", keys, width);
  result.key = reader.matrix(at + "wk", keys, width);
  result.value = reader.matrix(at + "wv", values, width);
  result.gate = reader.matrix(at + "wz", values, width);
  result.output = reader.matrix(at + "wo", width, values);
  result.decay = reader.matrix(at + "wa", heads, width);
  result.strength = reader.matrix(at + "wb", heads, width);
  result.mixQuery = reader.vector(at + "mu_q", width);
  result.mixKey = reader.vector(at + "mu_k", width);
  result.mixValue = reader.vector(at + "mu_v", width);
  result.logDecayRate = reader.vector(at + "A_log", heads);
  result.decayBias = reader.vector(at + "dt_bias", heads);
  result.norm = reader.vector(at + "norm.weight", config.deltaValueSize);
  return result;
}

Weights Weights::load(const std::string &folder) {
  std::string path = folder + "/config.json";
  nlohmann::json json = readJson(path);
  Weights weights;
  std::string name;
  try {
    weights.config = readConfig(json);
    name = json.at("name");
  } catch (const nlohmann::json::exception &error) {
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
  const Config &config = weights.config;
  Reader reader(fmt::format("{}/{}.safetensors", folder, name));
  weights.embedding = reader.matrix("embed", config.vocabulary, config.width);
  weights.norm = reader.vector("norm.weight", config.width);
  for (size_t index = 0; index < config.isAttention.size(); ++index) {
    std::string at = fmt::format("layers.{}.", index), mixer = at + "mix.";
    LayerWeights &layer = weights.layers.emplace_back();
    layer.normBefore = reader.vector(at + "norm1.weight", config.width);
    layer.normBetween = reader.vector(at + "norm2.weight", config.width);
    layer.gate = reader.matrix(at + "mlp.w1", config.hidden, config.width);
    layer.up = reader.matrix(at + "mlp.w3", config.hidden, config.width);
    layer.down = reader.matrix(at + "mlp.w2", config.width, config.hidden);
    if (config.isAttention[index])
      layer.mixer = readAttention(reader, mixer, config);
    else
      layer.mixer = readGatedDelta(reader, mixer, config);
  }
  return weights;
}
