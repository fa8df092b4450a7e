// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

// Tiles that come one after the other, and rows of memory that a turn has.
#shared = #gpu.address_space<workgroup>
gpu.module @m {
  // CHECK: turns(
  gpu.func @turns(%S: memref<8x32x16xf32> {ladle.name = "S"}) workgroup(
      %copies: memref<8xi64, #shared>, %tile: memref<32x16xf32, #shared>,
      %numbers: memref<32x1xf32, #shared>) kernel {
    // CHECK: copy_init_parts<8>({{.*}}, 1);
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c512 = arith.constant 512 : index
    memref.dma_start %S[%c0, %c0, %c0], %tile[%c0, %c0], %c512, %copies[%c0]
        : memref<8x32x16xf32>, memref<32x16xf32, #shared>, memref<8xi64, #shared>
    // CHECK: for (int [[I:.*]] = 0;
    scf.for %i = %c0 to %c8 step %c1 {
      // CHECK: const int [[FIRST:.*]] = [[I]] * 4;
      %first = arith.muli %i, %c4 : index
      // CHECK: float *const [[MINE:.*_of_turn]] = {{.*}} + [[FIRST]];
      %mine = memref.subview %numbers[%first, 0] [4, 1] [1, 1]
          : memref<32x1xf32, #shared> to memref<4x1xf32, strided<[1, 1], offset: ?>, #shared>
      // CHECK: copy_part_wait({{.*}} + [[I]]);
      memref.dma_wait %copies[%i], %c0 : memref<8xi64, #shared>
      // CHECK: [[MINE]][2]
      %c2 = arith.constant 2 : index
      %number = memref.load %mine[%c2, %c0]
          : memref<4x1xf32, strided<[1, 1], offset: ?>, #shared>
      memref.store %number, %tile[%c0, %c0] : memref<32x16xf32, #shared>
      // CHECK: copy_back_start(S + [[I]] * 512, {{.*}}, 512);
      "memref.dma_start"(%tile, %c0, %c0, %S, %i, %c0, %c0, %c512, %copies, %c0)
          {ladle.goes_on}
          : (memref<32x16xf32, #shared>, index, index, memref<8x32x16xf32>,
             index, index, index, index, memref<8xi64, #shared>, index) -> ()
      // CHECK: release_barrier();
      // CHECK-NEXT: copy_back_wait();
      gpu.barrier {ladle.releases}
      nvvm.cp.async.bulk.wait_group 0 {read}
      %next = arith.addi %i, %c1 : index
      %more = arith.cmpi slt, %next, %c8 : index
      scf.if %more {
        // CHECK: copy_part({{.*}} + [[NEXT:.*]], {{.*}}, S + [[NEXT]] * 512, 512);
        memref.dma_start %S[%next, %c0, %c0], %tile[%c0, %c0], %c512, %copies[%next]
            : memref<8x32x16xf32>, memref<32x16xf32, #shared>, memref<8xi64, #shared>
      }
    }
    gpu.return
  }
}
