//===- RingMoments.cpp - estimates without the tokens that are dropped ----===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/AttentionPool.h"
#include "runtime/Convert.h"
#include "runtime/cuda/DeviceAttention.h"

#include <array>
#include <cmath>
#include <cstring>

using namespace ladle;

namespace {

/// Squares of what tokens asked with, and how many of them are numbers.
struct Squares {
  double sum = 0, count = 0;
};

/// The mean of the squares of a head, and of how many, as kernels keep it.
using Moment = std::array<float, 2>;

/// The ring and the moments of a slot, of the host or of a device.
class SlotRing {
public:
  SlotRing(AttentionPoolImpl &pool, int32_t slot)
      : pool(pool), slot(slot),
        shape(ringArrays(pool.program, pool.window).front().shape),
        moments(static_cast<size_t>(shape.front())) {}

  Status read();
  Status write();
  /// Of tokens at [begin, end), which the ring holds.
  Result<Squares> squaresOf(int64_t head, int64_t begin, int64_t end);
  Moment &momentOf(int64_t head) { return moments[static_cast<size_t>(head)]; }
  int64_t heads() const { return shape.front(); }

private:
  int64_t momentBytes() const {
    return static_cast<int64_t>(moments.size() * sizeof(Moment));
  }
  std::byte *momentsOnHost() const {
    return static_cast<std::byte *>(pool.rings.back().descriptor.aligned) +
           slot * momentBytes();
  }
  Result<const std::byte *> queriesOf(int64_t head, int64_t entry,
                                      int64_t count);

  AttentionPoolImpl &pool;
  int32_t slot;
  std::vector<int64_t> shape; ///< of queries: [heads, window, size]
  std::vector<Moment> moments;
  std::vector<std::byte> copied;
};

} // namespace

Status SlotRing::read() {
  if (pool.device)
    return pool.device->rings.at("ring_moments")
        .read(moments.data(), momentBytes(), slot * momentBytes());
  std::memcpy(moments.data(), momentsOnHost(),
              static_cast<size_t>(momentBytes()));
  return Status();
}

Status SlotRing::write() {
  if (pool.device)
    return pool.device->rings.at("ring_moments")
        .write(moments.data(), momentBytes(), slot * momentBytes());
  std::memcpy(momentsOnHost(), moments.data(),
              static_cast<size_t>(momentBytes()));
  return Status();
}

/// So many entries without a gap, until the next call.
Result<const std::byte *> SlotRing::queriesOf(int64_t head, int64_t entry,
                                              int64_t count) {
  int64_t each = shape.back() * sizeInBytes(pool.program.queryType);
  int64_t at = ((slot * heads() + head) * pool.window + entry) * each;
  if (!pool.device)
    return static_cast<const std::byte *>(
               pool.rings.front().descriptor.aligned) +
           at;
  copied.resize(static_cast<size_t>(count * each));
  if (Status status = pool.device->rings.at("ring_queries")
                          .read(copied.data(), count * each, at);
      !status)
    return status;
  return copied.data();
}

Result<Squares> SlotRing::squaresOf(int64_t head, int64_t begin, int64_t end) {
  DType type = pool.program.queryType;
  Squares all;
  while (begin < end) {
    int64_t entry = begin % pool.window;
    int64_t count = std::min(end - begin, pool.window - entry);
    Result<const std::byte *> queries = queriesOf(head, entry, count);
    if (!queries)
      return queries.status();
    const std::byte *at = *queries;
    for (int64_t i = 0; i < count; ++i) {
      float square = 0;
      for (int64_t c = 0; c < shape.back(); ++c, at += sizeInBytes(type)) {
        float element = loadFloat(type, at);
        square += element * element;
      }
      // What is no number has counted for nothing.
      if (!std::isfinite(square))
        continue;
      all.sum += square;
      ++all.count;
    }
    begin += count;
  }
  return all;
}

/// Squares that are dropped are taken out of the mean, unless little would be
/// left of so large a sum: then, and where the ring holds all that was counted,
/// the mean is that of what the ring keeps.
Status AttentionPoolImpl::dropMoments(int32_t slot, const Cursor &before,
                                      int64_t length) {
  SlotRing ring(*this, slot);
  if (Status status = ring.read(); !status)
    return status;
  constexpr double least = 0x1p-10;
  for (int64_t head = 0; head < ring.heads(); ++head) {
    Moment &moment = ring.momentOf(head);
    double sum = double(moment[0]) * double(moment[1]);
    Result<Squares> dropped = ring.squaresOf(head, length, before.length);
    if (!dropped)
      return dropped.status();
    Squares left{sum - dropped->sum, double(moment[1]) - dropped->count};
    if (before.amended == before.entries || left.count < 1 ||
        !(left.sum >= least * sum)) {
      Result<Squares> kept =
          ring.squaresOf(head, before.length - before.entries, length);
      if (!kept)
        return kept.status();
      left = *kept;
    }
    moment = {static_cast<float>(left.count > 0 ? left.sum / left.count : 0),
              static_cast<float>(left.count)};
  }
  return ring.write();
}
