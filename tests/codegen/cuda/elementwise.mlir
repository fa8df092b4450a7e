// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

gpu.module @m {
  // Neighbours share a loop, in which what nobody else needs is a scalar.
  // CHECK: void fused(
  gpu.func @fused(%a: memref<64xbf16> {ladle.name = "a"},
                  %x: f32 {ladle.name = "x"}) kernel {
    %c0 = arith.constant 0 : index
    %two = arith.constant dense<2.0> : vector<4xf32>
    // CHECK:      const Vec<bf16, 4> p = load_vector<4>(a);
    %p = vector.load %a[%c0] : memref<64xbf16>, vector<4xbf16> loc("p")
    // CHECK-NEXT: Vec<float, 4> [[H:v[0-9]+]];
    // CHECK-NEXT: #pragma unroll
    // CHECK-NEXT: for (int e = 0; e < 4; ++e) {
    // CHECK-NEXT:   const float f = to_float(p[e]);
    // CHECK-NEXT:   const float [[G:v[0-9]+]] = f * x;
    // CHECK-NEXT:   [[H]][e] = [[G]] + 2.0f;
    // CHECK-NEXT: }
    // CHECK-NEXT: const Vec<bf16, 4> out = from_floats<bf16>([[H]]);
    %f = arith.extf %p : vector<4xbf16> to vector<4xf32> loc("f")
    %xs = vector.broadcast %x : f32 to vector<4xf32>
    %g = arith.mulf %f, %xs : vector<4xf32>
    %h = arith.addf %g, %two : vector<4xf32>
    %o = arith.truncf %h : vector<4xf32> to vector<4xbf16> loc("out")
    // CHECK-NEXT: store_vector(a, out);
    vector.store %o, %a[%c0] : memref<64xbf16>, vector<4xbf16>
    gpu.return
  }

  // CHECK: void shuffles(
  gpu.func @shuffles(%a: memref<64xf32> {ladle.name = "a"}) kernel {
    %c0 = arith.constant 0 : index
    %c16 = arith.constant 16 : i32
    %c32 = arith.constant 32 : i32
    %p = vector.load %a[%c0] : memref<64xf32>, vector<2xf32> loc("p")
    // CHECK:      for (int e = 0; e < 2; ++e)
    // CHECK-NEXT:   q[e] = shuffle_xor(p[e], 16, 32);
    %q, %valid = gpu.shuffle xor %p, %c16, %c32 : vector<2xf32> loc("q")
    // CHECK-NEXT: const float s = q[0];
    %s = vector.extract %q[0] : f32 from vector<2xf32> loc("s")
    // CHECK-NEXT: const float t = shuffle_index(s, 16, 32);
    %t, %valid2 = gpu.shuffle idx %s, %c16, %c32 : f32 loc("t")
    memref.store %t, %a[%c0] : memref<64xf32>
    gpu.return
  }
}
