//===- PoolImpl.h - the memory behind a pool --------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_POOLIMPL_H
#define LADLE_RUNTIME_POOLIMPL_H

#include "ladle/pool.h"
#include "runtime/Kernels.h"
#include "runtime/Memory.h"

namespace ladle {

struct Pool::Impl {
  /// One array of slots: a state, a carry or a field of the entries.
  struct Array {
    TensorSpec spec; ///< of one slot; a field has L after its heads
    void *data = nullptr;
    int64_t stride = 0; ///< elements from slot to slot
    Memory owned;

    void *slot(int64_t index) const {
      return static_cast<char *>(data) +
             index * stride * sizeInBytes(spec.dtype);
    }
    /// Of one slot; what lies between slots is not Ladle's.
    int64_t slotBytes() const;
    TensorView slotView(int64_t index) const {
      return TensorView::dense(slot(index), spec.dtype, spec.shape);
    }
    TensorView view(int64_t slots) const;
  };

  Signature signature;
  std::vector<TensorSpec> fieldSpecs; ///< as in the program, without L
  int64_t capacity = 0;
  int64_t slots = 0;
  int32_t padSlot = -1;
  int64_t threshold = 0;
  std::vector<Array> states, carries, fields;
  std::vector<Cursor> cursors;

  /// Which row of which step wrote a slot last, to find rows that collide
  /// without clearing or sorting anything.
  struct Writer {
    int64_t step = 0, row = 0;
  };
  std::vector<Writer> writers;
  int64_t steps = 0;

  bool isPadding(int32_t slot) const {
    return padSlot < 0 ? slot < 0 : slot == 0;
  }
  /// A slot that is in range and no padding.
  bool isUsable(int32_t slot) const {
    return slot >= 0 && slot < slots && !isPadding(slot);
  }
  /// InvalidArgument unless `slot` is usable.
  Status checkSlot(int32_t slot) const;
  /// InvalidArgument unless `program` has the states, carries and, if it has a
  /// buffer, the entries of this pool.
  Status checkProgram(const Program &program) const;
};

/// Points `descriptor` at `view`.
void describe(const TensorView &view, MemoryDescriptor &descriptor);

} // namespace ladle

#endif // LADLE_RUNTIME_POOLIMPL_H
