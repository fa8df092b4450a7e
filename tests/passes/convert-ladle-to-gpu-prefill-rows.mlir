// RUN: ladle-opt %s --convert-ladle-to-gpu | FileCheck %s

// The delta rule, where a warp holds 16 rows of the state in its registers.
ladle.step @rows_prefill of @delta route(inner) form(prefill_fold)
    (token %k: tensor<2x64xbf16>, token %v: tensor<2x64xbf16>,
     token %a: tensor<2xf32>, state %S: !ladle.pool<2x64x64xf32>,
     drafts %d: !ladle.drafts<32, chain>) -> (y: tensor<2x64xf32>) {
  %0:3 = ladle.each_draft %d : !ladle.drafts<32, chain> {
    %key = arith.extf %k : tensor<2x64xbf16> to tensor<2x64xf32>
    %value = arith.extf %v : tensor<2x64xbf16> to tensor<2x64xf32>
    ladle.yield_draft %key, %value, %a : tensor<2x64xf32>, tensor<2x64xf32>, tensor<2xf32>
  } -> tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32>
  %s = ladle.load_state %S : !ladle.pool<2x64x64xf32> to !ladle.state<2x64x64xf32>
  %r = ladle.read %s, %0#0 : !ladle.state<2x64x64xf32>, tensor<2x32x64xf32> -> tensor<2x32x64xf32>
  %1 = ladle.each_draft %d : !ladle.drafts<32, chain>
      stacks(%r, %0#1 : tensor<2x32x64xf32>, tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>, %y: tensor<2x64xf32>):
    %sum = arith.subf %y, %x : tensor<2x64xf32>
    ladle.yield_draft %sum : tensor<2x64xf32>
  } -> tensor<2x32x64xf32>
  %g = ladle.path_gram %0#0, %0#0 decay %0#2 along %d : !ladle.drafts<32, chain>, tensor<2x32x64xf32>, tensor<2x32x64xf32>, tensor<2x32xf32> -> tensor<2x32x1x32x1xf32>
  %u = ladle.path_solve[%1 : tensor<2x32x64xf32>] through[%g : tensor<2x32x1x32x1xf32>]
      rows [0] columns [0] along %d : !ladle.drafts<32, chain> -> tensor<2x32x64xf32>
  %y = ladle.each_draft %d : !ladle.drafts<32, chain> stacks(%u : tensor<2x32x64xf32>) {
  ^bb0(%x: tensor<2x64xf32>):
    ladle.yield_draft %x : tensor<2x64xf32>
  } -> tensor<2x32x64xf32>
  %f = ladle.fold_drafts %s keys[%0#0 : tensor<2x32x64xf32>] values[%u : tensor<2x32x64xf32>]
      decay %0#2 : tensor<2x32xf32> along %d : !ladle.state<2x64x64xf32>, !ladle.drafts<32, chain>
  ladle.store_state %f, %S : !ladle.state<2x64x64xf32>, !ladle.pool<2x64x64xf32>
  ladle.yield %y : tensor<2x32x64xf32>
}


// CHECK-LABEL: gpu.func @rows_prefill
// CHECK-SAME: ladle.one_array
// The state comes to registers, and is the loop's.
// CHECK: memref.load %{{.*}} : memref<?x2x64x64xf32
// CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<4xf32>
// What the next step loads is asked for.
// CHECK: memref.prefetch {{.*}} : memref<?x2x64xbf16
// Keys are stored as they came, and zeros where there are none.
// A lane's parts of a row are at constant distances.
// CHECK: %[[ROW:.*]] = memref.subview %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] [1, 1, 36] [1, 1, 1] : memref<?x2x64xbf16
// CHECK: vector.maskedload %[[ROW]][%c0{{.*}}, %c0{{.*}}, %c0{{.*}}], {{.*}} {ladle.constant} : memref<1x1x36xbf16
// CHECK: vector.maskedload %[[ROW]][%c0{{.*}}, %c0{{.*}}, %c32{{.*}}], {{.*}} {ladle.constant} : memref<1x1x36xbf16
// CHECK: vector.store {{.*}} vector<4xbf16>
// Gram products, and then the state with the keys, of three parts.
// CHECK: nvgpu.ldmatrix {{.*}}transpose = false
// CHECK: nvgpu.mma.sync{{.*}}mmaShape = [16, 8, 16]
// CHECK-COUNT-3: arith.truncf
// Values along dv wait in shared memory, and come from there transposed.
// CHECK: vector.load {{.*}} : memref<?x2x64xbf16
// CHECK: nvgpu.ldmatrix {{.*}}transpose = true
// Diagonal blocks are inverted, in one warp for all.
// CHECK: math.fma
// CHECK: nvgpu.mma.sync{{.*}}mmaShape = [16, 8, 8], tf32Enabled
// Answers go out of registers, and what was solved for into the state.
// CHECK: memref.store %{{.*}} : memref<?x2x64xf32
// CHECK: nvgpu.ldmatrix {{.*}}transpose = true
// CHECK: nvgpu.mma.sync{{.*}}mmaShape = [16, 8, 16]
// CHECK: scf.yield
// CHECK: memref.store %{{.*}} : memref<?x2x64x64xf32
// CHECK: gpu.return
