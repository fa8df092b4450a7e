//===- OracleTest.cpp - the oracle against the references -----------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The oracle runs what the frontend made of a .ladle file; a reference was
// written from the paper's equations. Both are float64, so that they agree to
// rounding.
//
//===----------------------------------------------------------------------===//

#include "runtime/check/Oracle.h"
#include "tests/models/TestInputs.h"
#include "tests/numerics/Examples.h"

using namespace ladle;
using namespace ladle::reference;
using interpreter::SpecInterpreter;
using interpreter::ValueInfo;

/// Powers of two, because a constant such as rsqrt(Dk) is float32 in the IR.
static const std::map<std::string, int64_t> exactSizes = {
    {"Dk", 16}, {"Dv", 32}, {"N", 16}, {"P", 32}, {"R", 2}};

/// For the same reason options get values that float32 has.
static const std::map<std::string, double> exactOptions = {
    {"rate", 0.1f},     {"eps", 1e-6f},     {"norm_eps", 0x1p-12},
    {"a_floor", 1e-4f}, {"pi", 3.1415927f}, {"decay_scale", 0.60653067f}};

static Sizes sizesOf(llvm::ArrayRef<ValueInfo> infos) {
  Sizes sizes;
  for (const ValueInfo &info : infos)
    sizes[info.name] = static_cast<int64_t>(info.size());
  return sizes;
}

/// The arrays of `tensors` in declaration order.
static std::vector<llvm::ArrayRef<double>>
inOrder(llvm::ArrayRef<ValueInfo> infos, const Tensors &tensors) {
  std::vector<llvm::ArrayRef<double>> arrays;
  for (const ValueInfo &info : infos)
    arrays.push_back(tensors.at(info.name));
  return arrays;
}

static void compare(const std::string &model, const ReferenceShape &shape,
                    const frontend::ElaborationOptions &options,
                    double tolerance) {
  std::string path = test::examplePath(model), messages;
  std::optional<SpecInterpreter> oracle =
      check::compileOracle(path, test::readExample(model), options, messages);
  INFO(messages);
  REQUIRE(oracle.has_value());
  std::unique_ptr<Reference> reference = makeReference(model, shape);
  REQUIRE(reference);

  Inputs inputs(model, shape);
  Tensors params = inputs.draw(sizesOf(oracle->getParams()));
  SpecInterpreter::Row row = oracle->makeRow();
  std::vector<std::vector<double>> outputs(oracle->getOutputs().size());
  for (int token = 0; token < 40; ++token) {
    INFO("token " << token);
    Tensors tokens = inputs.draw(sizesOf(oracle->getTokens()));
    oracle->step(row, inOrder(oracle->getParams(), params),
                 inOrder(oracle->getTokens(), tokens),
                 llvm::MutableArrayRef(outputs));
    Tensors expected = reference->step(params, tokens);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::string &name = oracle->getOutputs()[i].name;
      INFO("output " << name);
      REQUIRE(relativeError(outputs[i], expected.at(name)) <= tolerance);
    }
  }
  for (size_t i = 0; i < row.states.size(); ++i) {
    const std::string &name = oracle->getStates()[i].name;
    INFO("state " << name);
    REQUIRE(relativeError(row.states[i], reference->state(name)) <= tolerance);
  }
}

TEST_CASE("the oracle agrees with the reference of every example to rounding") {
  for (const std::string &model : modelNames()) {
    INFO(model);
    frontend::ElaborationOptions options;
    options.preset = "tiny";
    ReferenceShape shape{test::tinySizes(model), {}};
    for (auto &[name, size] : shape.sizes)
      if (auto it = exactSizes.find(name); it != exactSizes.end())
        options.sizes[name] = size = it->second;
    for (const auto &[name, value] : exactOptions)
      if (test::hasOption(model, name))
        options.options[name] = shape.options[name] = value;
    compare(model, shape, options, 1e-12);
  }
}

TEST_CASE("sizes that are not powers of two cost the rounding of constants") {
  for (const std::string &model : modelNames()) {
    INFO(model);
    frontend::ElaborationOptions options;
    options.preset = "tiny";
    compare(model, {test::tinySizes(model), {}}, options, 1e-6);
  }
}
