//===- Cursors.cuh - the cursors of a pool move on a GPU --------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launched after the kernels of a step, which all read the cursors as they
// were. Moving them in a kernel makes steps replayable: a graph holds no fill.
//
//===----------------------------------------------------------------------===//

#include "ladle_prelude.cuh"

// What rows have done, as CursorMove::Kind has it.
enum { kAppend, kIgnore, kRewrite, kFoldOnly };

// A thread takes a row. `cursors` [slots, 2] holds base and length of each
// slot's ring of `capacity` entries, `epochs` [slots] how often its state was
// written. A row that folds leaves an empty ring, which begins where the last
// one ended, or at 0 in another slot than it read. Where rows do not append,
// all fold. No two rows write one slot, but any number may be padding.
// `fault` is told of a slot with a state that the route has ignored.
extern "C" __global__ void __launch_bounds__(128) ladle_advance_cursors(
    const int *__restrict__ read_slots, const int *__restrict__ write_slots,
    int *cursors, int *epochs, const int *__restrict__ fold_threshold,
    int *fault, int pad_slot, int rows, int capacity, int kind) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // It may have started before the kernels of the step have ended, and the
  // next may start now, which wait in turn.
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  const int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= rows)
    return;
  const int read_slot = read_slots[row];
  if (read_slot < 0 || read_slot == pad_slot)
    return;
  const int write_slot = write_slots[row];
  Vec<int, 2> cursor = load_vector<2>(cursors + read_slot * 2LL);
  const bool moves = read_slot != write_slot;
  const bool appends = kind == kAppend || kind == kIgnore;
  if (kind == kIgnore && epochs[read_slot] > 0)
    fault[0] = read_slot + 1;
  if (appends && !moves && cursor[1] + 1 < fold_threshold[0]) {
    cursor[1] += 1;
  } else {
    if (kind != kFoldOnly || cursor[1] > 0)
      epochs[write_slot] += 1;
    cursor[0] = moves ? 0 : (cursor[0] + cursor[1]) % capacity;
    cursor[1] = 0;
  }
  store_vector(cursors + write_slot * 2LL, cursor);
}
