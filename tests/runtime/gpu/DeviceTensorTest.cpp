//===- DeviceTensorTest.cpp - memory of a GPU -----------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "tests/runtime/gpu/Gpu.h"

using namespace ladle;
using namespace ladle::test;
using Catch::Contains;

TEST_CASE("tensors on a device begin as zeros and keep what is copied") {
  if (!hasGpu())
    return;
  DeviceTensor tensor = need(DeviceTensor::allocate(gpu, DType::BF16, {2, 3}));
  CHECK(need(toFloats(tensor.view())) == std::vector<float>(6, 0.0f));
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  need(copy(TensorView::dense(values, DType::F32, {2, 3}), tensor.view()));
  CHECK(need(toFloats(tensor.view())) == values);
  CHECK(tensor.view().device == gpu);
}

TEST_CASE("a copy into a part leaves what lies between") {
  if (!hasGpu())
    return;
  std::vector<float> values(12, 7.0f), part{1, 2, 3, 4};
  DeviceTensor tensor = need(
      DeviceTensor::copyOf(gpu, TensorView::dense(values, DType::F32, {4, 3})));
  TensorView column = tensor.view().slice(1, 1, 2);
  need(copy(TensorView::dense(part, DType::F32, {4, 1}), column));
  CHECK(need(toFloats(tensor.view())) ==
        std::vector<float>{7, 1, 7, 7, 2, 7, 7, 3, 7, 7, 4, 7});
  CHECK(need(toFloats(column)) == part);
}

TEST_CASE("memory that is not there is an error") {
  if (!hasGpu())
    return;
  auto tensor = DeviceTensor::allocate(gpu, DType::F32, {int64_t(1) << 50});
  CHECK(tensor.status().code() == ErrorCode::ResourceExhausted);
  auto nowhere =
      DeviceTensor::allocate({DeviceKind::Cuda, 99}, DType::F32, {1});
  CHECK(nowhere.status().code() == ErrorCode::NotFound);
  CHECK_THAT(nowhere.message(), Contains("no CUDA device 99: the driver has"));
}

TEST_CASE("a device says what it is") {
  if (!hasGpu())
    return;
  DeviceInfo info = need(describeDevice());
  CHECK_THAT(info.arch, Catch::StartsWith("sm_"));
  CHECK(info.memoryBytes >= info.freeBytes);
  CHECK(info.freeBytes > 0);
  CHECK(info.driverVersion >= 11040);
  CHECK_FALSE(info.driverPath.empty());
}
