//===- ReferenceDecodeTest.cpp - compiled files against the papers --------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The other tests compare with the oracle, which shares the frontend with the
// compiler. Here nothing is shared: a file goes in at one end, and the numbers
// at the other are those of a model written from the paper's equations.
//
//===----------------------------------------------------------------------===//

#include "ladle/decode.h"
#include "runtime/check/Batch.h"
#include "tests/models/TestInputs.h"
#include "tests/numerics/Requests.h"

using namespace ladle;
using namespace ladle::reference;
using check::Bound;

static Sizes sizesOf(const std::vector<TensorSpec> &specs) {
  Sizes sizes;
  for (const TensorSpec &spec : specs) {
    int64_t &size = sizes[spec.name] = 1;
    for (int64_t dim : spec.shape)
      size *= dim;
  }
  return sizes;
}

/// Rounds `tensors` to their types and puts them in order.
static std::vector<std::vector<double>>
roundAndOrder(const std::vector<TensorSpec> &specs, Tensors &tensors) {
  std::vector<std::vector<double>> arrays;
  for (const TensorSpec &spec : specs) {
    interpreter::roundTo(tensors[spec.name], check::precisionOf(spec.dtype));
    arrays.push_back(tensors[spec.name]);
  }
  return arrays;
}

static void decodeLikeReference(const std::string &model,
                                const Program &program) {
  const Signature &signature = program.signature();
  PoolOptions options;
  options.slots = 1;
  Result<Pool> pool = Pool::create(program, options);
  INFO(pool.message());
  REQUIRE(pool.ok());

  ReferenceShape shape{test::tinySizes(model), {}};
  std::unique_ptr<Reference> reference = makeReference(model, shape);
  Inputs inputs(model, shape);
  check::Batch batch(signature, /*rows=*/1, /*packed=*/false);
  Tensors params = inputs.draw(sizesOf(signature.params));
  batch.setParams(roundAndOrder(signature.params, params));
  const int32_t slot = 0;
  StepArguments arguments;
  arguments.rows = 1;
  arguments.readSlots = {&slot, 1};
  arguments.tensors = batch.getTensors();

  for (int token = 0; token < 40; ++token) {
    INFO("token " << token);
    Tensors tokens = inputs.draw(sizesOf(signature.tokens));
    batch.setTokens(0, roundAndOrder(signature.tokens, tokens));
    Status status = decode(program, *pool, arguments);
    INFO(status.message());
    REQUIRE(status.ok());
    Tensors expected = reference->step(params, tokens);
    for (size_t i = 0; i < signature.outputs.size(); ++i)
      REQUIRE(relativeError(batch.getOutput(0, i),
                            expected.at(signature.outputs[i].name)) <=
              Bound::exact);
  }

  Result<SlotContents> contents = pool->exportSlot(program, slot);
  INFO(contents.message());
  REQUIRE(contents.ok());
  for (size_t i = 0; i < signature.states.size(); ++i) {
    const StateSpec &spec = signature.states[i];
    INFO("state " << spec.name);
    REQUIRE(
        relativeError(check::toKeyMajor(
                          check::toDoubles(contents->states[i].view()), spec),
                      reference->state(spec.name)) <= Bound::exact);
  }
}

TEST_CASE("compiled examples decode like the references, by every route") {
  for (const std::string &model : modelNames()) {
    INFO(model);
    check::CheckRequest request = test::requestOf(model);
    check::Workbench workbench(request);
    check::CheckCase config;
    config.capacity = config.threshold = 7;
    Result<const std::vector<Program> *> programs =
        workbench.getPrograms(config);
    INFO(programs.message());
    REQUIRE(programs.ok());
    for (const Program &program : **programs) {
      INFO(toString(program.route()));
      decodeLikeReference(model, program);
    }
  }
}
