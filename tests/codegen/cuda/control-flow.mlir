// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

gpu.module @m {
  // CHECK: void loops(int n, float x)
  gpu.func @loops(%n: index {ladle.name = "n"},
                  %x: f32 {ladle.name = "x"}) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    // CHECK-NEXT: float sum = x;
    // CHECK-NEXT: for (int i = 0; i < n; i += 4) {
    %r = scf.for %i = %c0 to %n step %c4 iter_args(%a = %x) -> (f32) {
      // CHECK-NEXT: float [[INNER:v[0-9]+]] = sum;
      // CHECK-NEXT: #pragma unroll
      // CHECK-NEXT: for (int j = i; j < 4; ++j) {
      %s = scf.for %j = %i to %c4 step %c1 iter_args(%b = %a) -> (f32) {
        // CHECK-NEXT: const float [[NEXT:v[0-9]+]] = [[INNER]] + sum;
        // CHECK-NEXT: [[INNER]] = [[NEXT]];
        %next = arith.addf %b, %a : f32
        scf.yield %next : f32
      } {ladle.unroll}
      // CHECK-NEXT: }
      // CHECK-NEXT: sum = [[INNER]];
      scf.yield %s : f32
    // CHECK-NEXT: }
    } loc("sum")
    // CHECK-NEXT: let_next_start();
    nvvm.griddepcontrol launch_dependents
    // CHECK-NEXT: wait_for_previous();
    nvvm.griddepcontrol wait
    // A second loop has the first letter again.
    // CHECK-NEXT: for (int i = 0;
    scf.for %i = %c0 to %n step %c1 {
      gpu.barrier
    }
    gpu.return
  }

  // What one assignment overwrites, another still needs.
  // CHECK: void exchange
  gpu.func @exchange(%n: index, %x: f32, %y: f32) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    // CHECK: float [[A:v[0-9]+]] = v1;
    // CHECK-NEXT: float [[B:v[0-9]+]] = v2;
    %r:2 = scf.for %i = %c0 to %n step %c1
        iter_args(%a = %x, %b = %y) -> (f32, f32) {
      // CHECK: const float [[OLD:old_v[0-9]+]] = [[A]];
      // CHECK-NEXT: [[A]] = [[B]];
      // CHECK-NEXT: [[B]] = [[OLD]];
      scf.yield %b, %a : f32, f32
    }
    gpu.return
  }

  // CHECK: void branches(int n, float x, float *out)
  gpu.func @branches(%n: i32 {ladle.name = "n"}, %x: f32 {ladle.name = "x"},
                     %out: memref<f32> {ladle.name = "out"}) kernel {
    %c4 = arith.constant 4 : i32
    %less = arith.cmpi slt, %n, %c4 : i32
    // CHECK-NEXT: float r;
    // CHECK-NEXT: if (n < 4) {
    %r = scf.if %less -> f32 {
      // CHECK-NEXT: const float [[E:v[0-9]+]] = -x;
      %e = arith.negf %x : f32
      // CHECK-NEXT: r = [[E]];
      scf.yield %e : f32
    // CHECK-NEXT: } else {
    } else {
      // CHECK-NEXT: r = x;
      scf.yield %x : f32
    // CHECK-NEXT: }
    } loc("r")
    // CHECK-NEXT: out[0] = r;
    memref.store %r, %out[] : memref<f32>
    gpu.return
  }

  // Parts of a block meet apart, and share registers.
  // CHECK-LABEL: parts(
  gpu.func @parts() kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %which = arith.constant 2 : i32
    %count = arith.constant 128 : i32
    // CHECK: part_barrier(2, 128);
    nvvm.barrier id = %which number_of_threads = %count
    // CHECK: set_registers<136, true>();
    nvvm.setmaxregister increase 136
    // CHECK: set_registers<120, false>();
    nvvm.setmaxregister decrease 120
    // Who publishes nothing in a cluster waits for nothing either.
    // CHECK: cluster_arrive();
    nvvm.cluster.arrive {aligned}
    // CHECK-NEXT: cluster_wait();
    nvvm.cluster.wait {aligned}
    // CHECK-NEXT: cluster_arrive_relaxed();
    nvvm.cluster.arrive.relaxed {aligned}
    gpu.return
  }
}
