// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

// CHECK: #include "ladle_prelude.cuh"
// CHECK: void numbers(float x, float y, float *out)
gpu.module @m {
  gpu.func @numbers(%x: f32 {ladle.name = "x"}, %y: f32 {ladle.name = "y"},
                    %out: memref<8xf32> {ladle.name = "out"}) kernel {
    %c0 = arith.constant 0 : index
    %half = arith.constant -0.5 : f32
    %infinity = arith.constant 0x7F800000 : f32
    // CHECK-NEXT: const float [[A:v[0-9]+]] = x * (-0.5f);
    %a = arith.mulf %x, %half : f32
    // CHECK-NEXT: const float [[B:v[0-9]+]] = fminf([[A]], __int_as_float(0x7f800000));
    %b = arith.minnumf %a, %infinity : f32
    // CHECK-NEXT: = [[B]] > y || [[B]] != [[B]] ? [[B]] : y;
    %c = arith.maximumf %b, %y : f32
    // CHECK-NEXT: = expf(
    %d = math.exp %c : f32
    // CHECK-NEXT: = fmaf({{.*}}, x, y);
    %e = math.fma %d, %x, %y : f32
    // CHECK-NEXT: const bool [[LESS:v[0-9]+]] = !(x >= y);
    %less = arith.cmpf ult, %x, %y : f32
    // CHECK-NEXT: const float [[S:v[0-9]+]] = [[LESS]] ? x : {{v[0-9]+}};
    %s = arith.select %less, %x, %e : f32
    // CHECK-NEXT: = __float_as_int([[S]]);
    %bits = arith.bitcast %s : f32 to i32
    memref.store %s, %out[%c0] : memref<8xf32>
    // CHECK: = approximate_exp(y);
    %f = math.exp %y fastmath<afn> : f32
    memref.store %f, %out[%c0] : memref<8xf32>
    // CHECK: = approximate_exp2(y);
    %g = math.exp2 %y fastmath<afn> : f32
    memref.store %g, %out[%c0] : memref<8xf32>
    // CHECK: = exp2f(y);
    %h = math.exp2 %y : f32
    memref.store %h, %out[%c0] : memref<8xf32>
    gpu.return
  }

  // An inverse will do where the divisor is exp + 1 and more, and only there.
  // CHECK: void quotients(float x, float y, float *out)
  gpu.func @quotients(%x: f32 {ladle.name = "x"}, %y: f32 {ladle.name = "y"},
                      %out: memref<8xf32> {ladle.name = "out"}) kernel {
    %c0 = arith.constant 0 : index
    %one = arith.constant 1.0 : f32
    %half = arith.constant 0.5 : f32
    // CHECK-NEXT: const float [[E:v[0-9]+]] = expf(x);
    %e = math.exp %x : f32
    // CHECK-NEXT: const float [[MORE:v[0-9]+]] = [[E]] + 1.0f;
    %more = arith.addf %e, %one : f32
    // CHECK-NEXT: const float [[Q:v[0-9]+]] = divide_by_large(y, [[MORE]]);
    %q = arith.divf %y, %more : f32
    // CHECK-NEXT: const float [[LESS:v[0-9]+]] = [[E]] + 0.5f;
    %less = arith.addf %e, %half : f32
    // CHECK-NEXT: const float [[R:v[0-9]+]] = [[Q]] / [[LESS]];
    %r = arith.divf %q, %less : f32
    // CHECK-NEXT: const float [[OTHER:v[0-9]+]] = y + 1.0f;
    %other = arith.addf %y, %one : f32
    // CHECK-NEXT: = [[R]] / [[OTHER]];
    %s = arith.divf %r, %other : f32
    memref.store %s, %out[%c0] : memref<8xf32>
    gpu.return
  }

  // CHECK: void integers(int n, long long m, signed char s, bool p)
  gpu.func @integers(%n: i32 {ladle.name = "n"}, %m: i64 {ladle.name = "m"},
                     %s: i8 {ladle.name = "s"},
                     %p: i1 {ladle.name = "p"}) kernel {
    %two = arith.constant 2 : i32
    %big = arith.constant 5000000000 : i64
    %true = arith.constant true
    // CHECK-NEXT: = (unsigned)n / (unsigned)2;
    %a = arith.divui %n, %two : i32
    // CHECK-NEXT: = (unsigned)n >> (unsigned)2;
    %b = arith.shrui %n, %two : i32
    // CHECK-NEXT: = (unsigned)n < (unsigned)2;
    %c = arith.cmpi ult, %n, %two : i32
    // CHECK-NEXT: = max(m, 5000000000LL);
    %d = arith.maxsi %m, %big : i64
    // CHECK-NEXT: = p ^ true;
    %e = arith.xori %p, %true : i1
    // CHECK-NEXT: = (float)(unsigned char)s;
    %f = arith.uitofp %s : i8 to f32
    // An index is an int.
    // CHECK-NEXT: = n + 2;
    %g = arith.index_cast %n : i32 to index
    %h = arith.index_cast %two : i32 to index
    %i = arith.addi %g, %h : index
    // CHECK-NEXT: = (int)m;
    %j = arith.index_cast %m : i64 to index
    gpu.return
  }
}
