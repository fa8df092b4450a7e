// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

#place = loc("examples/delta_net.ladle":12:3)

gpu.module @m {
  // CHECK:      // examples/delta_net.ladle:12
  // CHECK-NEXT: extern "C" __global__ void named(float x, float x_1, float float_1) {
  gpu.func @named(%a: f32 {ladle.name = "x"}, %b: f32 {ladle.name = "x"},
                  %c: f32 {ladle.name = "float"}) kernel {
    // A name may be inside of other locations.
    // CHECK-NEXT: const float beta = x + x_1;
    %0 = arith.addf %a, %b : f32 loc(fused["file":1:1, "beta"("file":2:2)])
    // CHECK-NEXT: const float alpha = x + x_1;
    %1 = arith.addf %a, %b : f32 loc(callsite("alpha" at "file":1:1))
    // CHECK-NEXT: const float S_t = x + x_1;
    %2 = arith.addf %a, %b : f32 loc("S'.t")
    // CHECK-NEXT: const float v2nd = x + x_1;
    %3 = arith.addf %a, %b : f32 loc("2nd")
    // `e` is the index of elements, `named` the kernel.
    // CHECK-NEXT: const float e_1 = x + x_1;
    %4 = arith.addf %a, %b : f32 loc("e")
    // CHECK-NEXT: const float named_1 = x + x_1;
    %5 = arith.addf %a, %b : f32 loc("named")
    // CHECK-NEXT: const float v0 = x + x_1;
    %6 = arith.addf %a, %b : f32
    gpu.return
  } loc(#place)
}
