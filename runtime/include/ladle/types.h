//===- types.h - element types, routes and signatures -----------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a recurrence takes and gives, for who calls it.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TYPES_H
#define LADLE_TYPES_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ladle {

enum class DType : uint8_t { F32, BF16, F16, I32, I64, U8 };

/// "f32", "bf16", "f16", "i32", "i64", "u8".
std::string_view toString(DType dtype);
/// Bytes of an element.
int64_t sizeInBytes(DType dtype);
bool isFloat(DType dtype);

/// What memory belongs to and kernels run on. The numbers are DLPack's.
enum class DeviceKind : int32_t { Cpu = 1, Cuda = 2 };

struct DeviceId {
  DeviceKind kind = DeviceKind::Cpu;
  int32_t index = 0;

  bool operator==(const DeviceId &) const = default;
};

/// "cpu", "cuda:0".
std::string toString(DeviceId device);

/// How a decode step uses the history. All routes give the same output from
/// different bytes and flops. (The compiler's enumerations of the same thing
/// are called Route and Form.)
enum class RouteKind : uint8_t { Recurrent, Outer, Inner, Adjoint, KvOnly };

/// "recurrent", "outer", "inner", "adjoint", "kv_only".
std::string_view toString(RouteKind route);
std::optional<RouteKind> parseRoute(std::string_view text);

/// What a kernel does: answer a token and append it to the buffer, answer a
/// token and fold it with the buffer into the state, or only fold; answer the
/// drafts of a row, or answer them and fold what was there before; answer a
/// prompt and fold it, or append it to the buffer.
enum class FormKind : uint8_t {
  Decode,
  DecodeFold,
  Fold,
  Verify,
  VerifyFold,
  PrefillFold,
  PrefillEntries
};

/// "decode", "decode_fold", "fold", "verify", "verify_fold", "prefill_fold",
/// "prefill_entries".
std::string_view toString(FormKind form);

/// A value of one token, or of one slot: [heads], [heads, D] or [heads, R, D],
/// without the dimension of the batch. A value that all heads share has one
/// head.
struct TensorSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;

  bool operator==(const TensorSpec &) const = default;
};

/// How a head of a state lies in memory: [valueSize, keySize], the keys
/// contiguous, or [keySize, valueSize].
enum class StateLayout : uint8_t { DvDk, DkDv };

/// "dv_dk", "dk_dv".
std::string_view toString(StateLayout layout);
std::optional<StateLayout> parseStateLayout(std::string_view text);

/// A state of one slot.
struct StateSpec {
  std::string name;
  int64_t heads = 0, keySize = 0, valueSize = 0;
  DType dtype = DType::F32;
  StateLayout layout = StateLayout::DvDk;

  /// As it lies in memory: [heads, valueSize, keySize], or with the last two
  /// the other way round.
  std::vector<int64_t> shape() const {
    return layout == StateLayout::DvDk
               ? std::vector<int64_t>{heads, valueSize, keySize}
               : std::vector<int64_t>{heads, keySize, valueSize};
  }

  bool operator==(const StateSpec &) const = default;
};

/// The interface of a recurrence, in the order of its declarations.
struct Signature {
  std::string name;
  int64_t heads = 0; ///< the largest head count; head ranges count in it
  std::vector<TensorSpec> params;  ///< constants of the layer
  std::vector<TensorSpec> tokens;  ///< inputs of one token
  std::vector<TensorSpec> carries; ///< kept a slot besides the states
  std::vector<TensorSpec> outputs; ///< answers of one token
  std::vector<StateSpec> states;

  bool operator==(const Signature &) const = default;
};

} // namespace ladle

#endif // LADLE_TYPES_H
