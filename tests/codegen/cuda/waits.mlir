// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

// What is read behind a wait may have been written by the kernel ahead while
// this one had begun, so that it is not restrict.
gpu.module @m {
  // CHECK:      void behind(
  // CHECK-NEXT: const float *__restrict__ before,
  // CHECK-NEXT: const float *after,
  // CHECK-NEXT: const float *nested,
  // CHECK-NEXT: const float *both,
  // CHECK-NEXT: float *y) {
  gpu.func @behind(%before: memref<64xf32> {ladle.name = "before"},
                   %after: memref<64xf32> {ladle.name = "after"},
                   %nested: memref<64xf32> {ladle.name = "nested"},
                   %both: memref<64xf32> {ladle.name = "both"},
                   %y: memref<64xf32> {ladle.name = "y"}) kernel {
    %t = gpu.thread_id x
    %c8 = arith.constant 8 : index
    %0 = memref.load %before[%t] : memref<64xf32>
    %1 = memref.load %both[%t] : memref<64xf32>
    nvvm.griddepcontrol wait
    %2 = memref.load %after[%t] : memref<64xf32>
    %3 = memref.load %both[%t] : memref<64xf32>
    %isFirst = arith.cmpi ult, %t, %c8 : index
    scf.if %isFirst {
      %4 = memref.load %nested[%t] : memref<64xf32>
      memref.store %4, %y[%t] : memref<64xf32>
    }
    %5 = arith.addf %0, %1 : f32
    %6 = arith.addf %2, %3 : f32
    %7 = arith.addf %5, %6 : f32
    memref.store %7, %y[%t] : memref<64xf32>
    gpu.return
  }

  // A wait in a branch is one for what follows the branch, and not for what is
  // in the other.
  // CHECK:      void branches(
  // CHECK-NEXT: const float *__restrict__ other,
  // CHECK-NEXT: const float *later,
  // CHECK-NEXT: float *y,
  gpu.func @branches(%other: memref<64xf32> {ladle.name = "other"},
                     %later: memref<64xf32> {ladle.name = "later"},
                     %y: memref<64xf32> {ladle.name = "y"},
                     %waits: i1 {ladle.name = "waits"}) kernel {
    nvvm.griddepcontrol launch_dependents
    %t = gpu.thread_id x
    scf.if %waits {
      nvvm.griddepcontrol wait
    } else {
      %0 = memref.load %other[%t] : memref<64xf32>
      memref.store %0, %y[%t] : memref<64xf32>
    }
    %1 = memref.load %later[%t] : memref<64xf32>
    memref.store %1, %y[%t] : memref<64xf32>
    gpu.return
  }

  // What a loop reads ahead of its wait is read ahead of any in its first turn.
  // CHECK:      void turns(
  // CHECK-NEXT: const float *__restrict__ once,
  // CHECK-NEXT: const float *__restrict__ ahead,
  // CHECK-NEXT: const float *each,
  gpu.func @turns(%once: memref<64xf32> {ladle.name = "once"},
                  %ahead: memref<64xf32> {ladle.name = "ahead"},
                  %behind: memref<64xf32> {ladle.name = "each"},
                  %y: memref<64xf32> {ladle.name = "y"}) kernel {
    %t = gpu.thread_id x
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %0 = memref.load %once[%t] : memref<64xf32>
    scf.for %i = %c0 to %c4 step %c1 {
      %1 = memref.load %ahead[%i] : memref<64xf32>
      %2 = arith.addf %0, %1 : f32
      nvvm.griddepcontrol wait
      %3 = memref.load %behind[%i] : memref<64xf32>
      %4 = arith.addf %2, %3 : f32
      memref.store %4, %y[%t] : memref<64xf32>
    }
    gpu.return
  }

  // Of what a kernel ahead prepares while this one has begun, a counter says
  // that it is there.
  // CHECK: void take(int *ready) {
  gpu.func @take(%ready: memref<?xi32> {ladle.name = "ready"}) kernel {
    %t = gpu.thread_id x
    %c1 = arith.constant 1 : index
    // CHECK: take_arrival(ready + {{.*}});
    memref.dma_wait %ready[%t], %c1 : memref<?xi32>
    gpu.return
  }
}
