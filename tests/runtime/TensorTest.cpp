//===- TensorTest.cpp - views, copies and float types ---------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/tensor.h"
#include "runtime/Convert.h"

#include <Eigen/Core>
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#if __has_include(<dlpack/dlpack.h>)
#include "ladle/dlpack.h"
#endif

using namespace ladle;

TEST_CASE("slices point into the tensor") {
  std::vector<float> values(24);
  TensorView view = TensorView::dense(values, DType::F32, {2, 3, 4});
  CHECK(view.isDense());
  TensorView part = view[1].slice(1, 2, 4);
  CHECK(part.shape == std::vector<int64_t>{3, 2});
  CHECK(part.strides == std::vector<int64_t>{4, 1});
  CHECK(part.data == &values[14]);
  CHECK_FALSE(part.isDense());
  CHECK(toString(part) == "f32 [3, 2]");
}

TEST_CASE("a copy follows strides") {
  std::vector<int32_t> values{0, 1, 2, 3, 4, 5};
  TensorView view = TensorView::dense(values, DType::I32, {2, 3});
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  std::vector<int32_t> transposed(6);
  REQUIRE(copy(view, TensorView::dense(transposed, DType::I32, {3, 2})));
  CHECK(transposed == std::vector<int32_t>{0, 3, 1, 4, 2, 5});
}

TEST_CASE("a copy of nothing, and of one number") {
  std::vector<float> one{3}, other{0};
  CHECK(copy(TensorView::dense(nullptr, DType::F32, {0, 4}),
             TensorView::dense(nullptr, DType::F32, {0, 4})));
  REQUIRE(copy(TensorView::dense(one, DType::F32, {}),
               TensorView::dense(other, DType::F32, {})));
  CHECK(other[0] == 3);
}

TEST_CASE("copies between shapes, and from integers to floats, are refused") {
  std::vector<float> floats(4);
  std::vector<int32_t> integers(4);
  TensorView view = TensorView::dense(floats, DType::F32, {4});
  CHECK(copy(view, TensorView::dense(floats, DType::F32, {2, 2})).message() ==
        "cannot copy f32 [4] to f32 [2, 2]: shapes differ");
  CHECK(copy(TensorView::dense(integers, DType::I32, {4}), view).code() ==
        ErrorCode::Unsupported);
}

/// Checks our conversions against Eigen's on `value`.
template <typename Half> static void checkHalf(DType dtype, float value) {
  Half expected(value);
  uint16_t bits, expectedBits;
  storeFloat(dtype, value, &bits);
  std::memcpy(&expectedBits, &expected, sizeof(expectedBits));
  CAPTURE(value);
  CHECK(bits == expectedBits);
  float back = loadFloat(dtype, &bits);
  if (!std::isnan(value))
    CHECK(back == static_cast<float>(expected));
  else
    CHECK(std::isnan(back));
}

TEST_CASE("half precision rounds to nearest, ties to even") {
  std::mt19937 generator(1);
  for (int i = 0; i < 2000; ++i) {
    float value = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    if (std::isnan(value))
      continue; // the payload of a NaN is free
    checkHalf<Eigen::bfloat16>(DType::BF16, value);
    checkHalf<Eigen::half>(DType::F16, value);
  }
  for (float value : {0.0f, -0.0f, 1.00390625f, 1.01171875f, 65520.0f, 1e-7f,
                      3.4e38f, std::numeric_limits<float>::infinity()}) {
    checkHalf<Eigen::bfloat16>(DType::BF16, value);
    checkHalf<Eigen::half>(DType::F16, value);
  }
}
TEST_CASE("a NaN stays a NaN in half precision") {
  // The payload of this one would be rounded away.
  float value = std::bit_cast<float>(0x7f800001u);
  for (DType dtype : {DType::BF16, DType::F16}) {
    uint16_t bits;
    storeFloat(dtype, value, &bits);
    CHECK(std::isnan(loadFloat(dtype, &bits)));
  }
}

TEST_CASE("names of routes parse") {
  for (RouteKind route :
       {RouteKind::Recurrent, RouteKind::Outer, RouteKind::Inner,
        RouteKind::Adjoint, RouteKind::KvOnly})
    CHECK(parseRoute(toString(route)) == route);
  CHECK_FALSE(parseRoute("kv-only").has_value());
}

#if __has_include(<dlpack/dlpack.h>)
TEST_CASE("a view goes to DLPack and back") {
  std::vector<uint16_t> values(12);
  TensorView view =
      TensorView::dense(values, DType::BF16, {3, 4}).slice(1, 1, 3);
  DLTensor tensor = toDLPack(view);
  tensor.data = static_cast<char *>(tensor.data) - 2;
  tensor.byte_offset = 2;
  Result<TensorView> back = fromDLPack(tensor);
  REQUIRE(back.ok());
  CHECK(back->data == view.data);
  CHECK(back->dtype == view.dtype);
  CHECK(back->shape == view.shape);
  CHECK(back->strides == view.strides);
}

TEST_CASE("a DLPack tensor on a GPU keeps its device") {
  std::vector<float> values(4);
  TensorView view = TensorView::dense(values, DType::F32, {4});
  view.device = {DeviceKind::Cuda, 2};
  DLTensor tensor = toDLPack(view);
  CHECK(tensor.device.device_type == kDLCUDA);
  CHECK(tensor.device.device_id == 2);
  CHECK(fromDLPack(tensor)->device == view.device);
}

TEST_CASE("a DLPack tensor that is not ours is refused") {
  std::vector<float> values(4);
  TensorView view = TensorView::dense(values, DType::F32, {4});
  DLTensor tensor = toDLPack(view);
  tensor.device.device_type = kDLVulkan;
  CHECK(fromDLPack(tensor).message() ==
        "dlpack tensor is neither in host memory nor on cuda");
  tensor = toDLPack(view);
  tensor.dtype.bits = 64;
  CHECK(fromDLPack(tensor).status().code() == ErrorCode::Unsupported);
}
#endif
