//===- PoolImpl.h - the memory behind a pool --------------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_RUNTIME_POOLIMPL_H
#define LADLE_RUNTIME_POOLIMPL_H

#include "ladle/pool.h"
#include "runtime/CursorsImpl.h"

namespace ladle {

/// What pools have in common; HostPool and DevicePool are those of the two
/// kinds of memory. Arguments of the virtual functions have been checked.
struct Pool::Impl {
  /// One array of slots, states or pages: a state, a carry or a field of the
  /// entries.
  struct Array {
    TensorSpec spec; ///< of one slot or page; a field has L, or the entries
                     ///< of a page, after its heads
    void *data = nullptr;
    /// Elements from slot to slot; if slots hold several versions, from
    /// version to version.
    int64_t stride = 0;
    int64_t versions = 1;
    int64_t count = 0; ///< slots, states or pages
    std::shared_ptr<void> owned;

    void *slot(int64_t index, int64_t version = 0) const {
      return static_cast<char *>(data) +
             (index * versions + version) * stride * sizeInBytes(spec.dtype);
    }
    /// Of one slot; what lies between slots is not Ladle's.
    int64_t slotBytes() const;
    /// The first versions of all.
    TensorView view(DeviceId device) const;
    /// All versions, as kernels count them.
    TensorView versionView(DeviceId device) const;
  };

  DeviceId device;
  Signature signature;
  std::vector<TensorSpec> fieldSpecs; ///< as in the program, without L
  int64_t capacity = 0, page = 0;
  int64_t drafts = 0; ///< the most of a row
  int64_t slots = 0;
  std::vector<Array> states, carries, fields;
  /// That the pool was made for: it folds what other pools ask for.
  std::optional<Program> program;
  /// Know all pools that share them.
  std::optional<Cursors> cursors;

  virtual ~Impl();
  /// Zeroed memory; ResourceExhausted if there is not so much.
  virtual Result<std::shared_ptr<void>> allocate(int64_t bytes) = 0;
  /// What memory of the caller and slot strides have to be besides.
  virtual Status checkArray(const Array &array) const = 0;
  virtual Status clear(const Array &array, int32_t slot, void *stream) = 0;
  /// Whether `program` folds the entries of these slots, named once each.
  /// False if it cannot and there are none, InvalidArgument if there are.
  virtual Result<bool> canFold(const Program &program,
                               std::span<const int32_t> slots) const = 0;
  /// Folds entries, of slots in memory of the device, and leaves the cursors.
  virtual Status fold(const Program &program, std::span<const int32_t> slots,
                      void *stream) = 0;
  /// The bytes of one slot of an array, from and to the host.
  virtual Status read(const Array &array, int32_t slot, void *to,
                      void *stream) const = 0;
  virtual Status write(const Array &array, int32_t slot, const void *from,
                       void *stream) = 0;

  Cursors::Impl &shared() const { return cursors->getImpl(); }
  bool isPadding(int32_t slot) const { return shared().isPadding(slot); }
  Status checkSlot(int32_t slot) const { return shared().checkSlot(slot); }
  Status checkSlots(std::span<const int32_t> list) const {
    return shared().checkSlots(list);
  }
  /// InvalidArgument unless `program` has the states, carries and, if it has a
  /// buffer, the entries of this pool.
  Status checkProgram(const Program &program) const;
};

/// Points `descriptor` at `view`.
void describe(const TensorView &view, MemoryDescriptor &descriptor);

} // namespace ladle

#endif // LADLE_RUNTIME_POOLIMPL_H
