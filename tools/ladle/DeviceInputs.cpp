//===- DeviceInputs.cpp - random tokens on a device -----------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tools/ladle/DeviceInputs.h"
#include "runtime/check/Batch.h"
#include "runtime/check/Oracle.h"
#include "runtime/check/RandomInputs.h"
#include "tools/ladle/Files.h"
#include "tools/ladle/SourceChoices.h"

using namespace ladle;
using namespace ladle::tool;

std::string tool::readSource(const std::string &path) {
  Result<std::string> text = readFile(path);
  return text ? std::move(*text) : std::string();
}

Result<DeviceTensor> tool::numbersOn(DeviceId device,
                                     std::vector<int32_t> values) {
  return DeviceTensor::copyOf(
      device, TensorView::dense(values, DType::I32,
                                {static_cast<int64_t>(values.size())}));
}

std::span<const int32_t> tool::numbersOf(const DeviceTensor &memory) {
  return {memory.as<int32_t>(), static_cast<size_t>(memory.view().count())};
}

Result<DeviceInputs> DeviceInputs::create(const SourceOptions &source,
                                          const Program &program,
                                          int64_t tokens) {
  std::string messages;
  auto oracle = check::compileOracle(source.file, readSource(source.file),
                                     elaborationOf(source), messages);
  if (!oracle)
    return Status(ErrorCode::InvalidArgument, messages);
  check::RandomInputs random{{}, /*seed=*/1};
  check::Batch batch(program.signature(), tokens, /*packed=*/false,
                     check::Batch::gpuAlignment);
  batch.setParams(
      random.draw(oracle->getParams(), 0, check::RandomInputs::params));
  constexpr int64_t kinds = 16;
  for (int64_t kind = 0; kind < kinds; ++kind) {
    auto drawn = random.draw(oracle->getTokens(), kind, 0);
    for (int64_t i = kind; i < tokens; i += kinds)
      batch.setTokens(i, drawn);
  }
  DeviceInputs inputs;
  for (const auto &[name, view] : batch.getTensors()) {
    Result<DeviceTensor> made = DeviceTensor::copyOf(program.device(), view);
    if (!made)
      return made.status();
    inputs.tensors[name] = made->view();
    inputs.memory.emplace(name, std::move(*made));
  }
  return inputs;
}

DeviceInputs::Tensors DeviceInputs::first(const Signature &signature,
                                          int64_t count) const {
  Tensors result = tensors;
  for (const auto *specs : {&signature.tokens, &signature.outputs})
    for (const TensorSpec &spec : *specs) {
      TensorView &view = result.find(spec.name)->second;
      view = view.slice(0, 0, count);
    }
  return result;
}
