// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

gpu.module @m {
  // CHECK: void parts(
  gpu.func @parts(%a: memref<64xf32> {ladle.name = "a"},
                  %x: f32 {ladle.name = "x"},
                  %i: index {ladle.name = "i"}) kernel {
    %c0 = arith.constant 0 : index
    %p = vector.load %a[%c0] : memref<64xf32>, vector<4xf32> loc("p")
    // CHECK:      const float [[X:v[0-9]+]] = p[i];
    %0 = vector.extract %p[%i] : f32 from vector<4xf32>
    // CHECK-NEXT: Vec<float, 4> q = p;
    // CHECK-NEXT: q[2] = [[X]];
    %q = vector.insert %0, %p[2] : f32 into vector<4xf32> loc("q")
    // CHECK-NEXT: Vec<float, 2> r;
    // CHECK-NEXT: #pragma unroll
    // CHECK-NEXT: for (int e = 0; e < 2; ++e)
    // CHECK-NEXT:   r[e] = q[e + 2];
    %r = vector.extract_strided_slice %q
        {offsets = [2], sizes = [2], strides = [1]}
        : vector<4xf32> to vector<2xf32> loc("r")
    // CHECK-NEXT: Vec<float, 4> s = p;
    // CHECK-NEXT: #pragma unroll
    // CHECK-NEXT: for (int e = 0; e < 2; ++e)
    // CHECK-NEXT:   s[e + 1] = r[e];
    %s = vector.insert_strided_slice %r, %p {offsets = [1], strides = [1]}
        : vector<2xf32> into vector<4xf32> loc("s")
    // CHECK-NEXT: const Vec<float, 2> t = {x, [[X]]};
    %t = vector.from_elements %x, %0 : vector<2xf32> loc("t")
    // CHECK-NEXT: Vec<float, 3> u;
    // CHECK-NEXT: u[0] = s[3];
    // CHECK-NEXT: u[1] = t[1];
    // CHECK-NEXT: u[2] = s[0];
    %u = vector.shuffle %s, %t [3, 5, 0]
        : vector<4xf32>, vector<2xf32> loc("u")
    // CHECK-NEXT: const Vec<int, 2> w = {1, (-2)};
    %w = arith.constant dense<[1, -2]> : vector<2xi32> loc("w")
    memref.store %x, %a[%c0] : memref<64xf32>
    gpu.return
  }

  // CHECK: void sums(
  gpu.func @sums(%a: memref<64xf32> {ladle.name = "a"},
                 %x: f32 {ladle.name = "x"}) kernel {
    %c0 = arith.constant 0 : index
    %p = vector.load %a[%c0] : memref<64xf32>, vector<4xf32> loc("p")
    // CHECK:      float sum = p[0];
    // CHECK-NEXT: #pragma unroll
    // CHECK-NEXT: for (int e = 1; e < 4; ++e)
    // CHECK-NEXT:   sum += p[e];
    %0 = vector.reduction <add>, %p : vector<4xf32> into f32 loc("sum")
    // CHECK-NEXT: float most = x;
    // CHECK-NEXT: #pragma unroll
    // CHECK-NEXT: for (int e = 0; e < 4; ++e)
    // CHECK-NEXT:   most = most > p[e] || most != most ? most : p[e];
    %1 = vector.reduction <maximumf>, %p, %x
        : vector<4xf32> into f32 loc("most")
    // A variable only where more than elements is asked for.
    // CHECK-NEXT: Vec<float, 4> one;
    // CHECK-NEXT: #pragma unroll
    // CHECK-NEXT: for (int e = 0; e < 4; ++e)
    // CHECK-NEXT:   one[e] = 1.0f;
    // CHECK-NEXT: store_vector(a, one);
    %one = arith.constant dense<1.0> : vector<4xf32> loc("one")
    %2 = vector.extract %one[1] : f32 from vector<4xf32>
    vector.store %one, %a[%c0] : memref<64xf32>, vector<4xf32>
    // CHECK-NEXT: Vec<float, 4> zero = {};
    // CHECK-NEXT: store_vector(a, zero);
    %zero = arith.constant dense<0.0> : vector<4xf32> loc("zero")
    vector.store %zero, %a[%c0] : memref<64xf32>, vector<4xf32>
    // CHECK-NEXT: a[0] = 1.0f;
    memref.store %2, %a[%c0] : memref<64xf32>
    gpu.return
  }
}
