// RUN: ladle-opt %s --ladle-convert-to-llvm | FileCheck %s

// CHECK-LABEL: llvm.func @sums_may_be_trees
func.func @sums_may_be_trees(%x: vector<16xf32>, %y: vector<16xf32>) -> f32 {
  // CHECK: %[[P:.*]] = llvm.fmul
  // CHECK: "llvm.intr.vector.reduce.fadd"(%{{.*}}, %[[P]])
  // CHECK-SAME: fastmathFlags = #llvm.fastmath<reassoc>
  %0 = arith.mulf %x, %y : vector<16xf32>
  %1 = vector.reduction <add>, %0 : vector<16xf32> into f32
  return %1 : f32
}

// CHECK-LABEL: llvm.func @scratch_is_aligned_to_cache_lines
func.func @scratch_is_aligned_to_cache_lines(%i: index) -> f32 {
  // CHECK: llvm.alloca {{.*}} {alignment = 64 : i64}
  %0 = memref.alloca() : memref<32xf32>
  %1 = memref.load %0[%i] : memref<32xf32>
  return %1 : f32
}

// CHECK-LABEL: llvm.func @rsqrt_is_a_division
func.func @rsqrt_is_a_division(%x: f32) -> f32 {
  // CHECK: llvm.intr.sqrt
  // CHECK: llvm.fdiv
  %0 = math.rsqrt %x : f32
  return %0 : f32
}

// CHECK-LABEL: llvm.func @vectors_of_bf16_move_as_integers
func.func @vectors_of_bf16_move_as_integers(%from: memref<4x20xbf16>,
                                            %to: memref<4x16xbf16>,
                                            %odd: memref<4x20xbf16>) {
  %0 = arith.constant 0 : index
  // CHECK: llvm.load %{{.*}} : !llvm.ptr -> vector<20xi16>
  %1 = vector.load %from[%0, %0] : memref<4x20xbf16>, vector<20xbf16>
  // CHECK: llvm.store %{{.*}} : vector<20xi16>, !llvm.ptr
  vector.store %1, %odd[%0, %0] : memref<4x20xbf16>, vector<20xbf16>
  // CHECK: llvm.load %{{.*}} : !llvm.ptr -> vector<16xi16>
  %2 = vector.load %to[%0, %0] : memref<4x16xbf16>, vector<16xbf16>
  vector.store %2, %to[%0, %0] : memref<4x16xbf16>, vector<16xbf16>
  return
}
