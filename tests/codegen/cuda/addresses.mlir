// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

gpu.module @m {
  // An address is a long long only where it may exceed an int.
  // CHECK: void widths
  gpu.func @widths(%a: memref<1048576x4096xf32> {ladle.name = "a"},
                   %b: memref<1048576x1024xf32> {ladle.name = "b"},
                   %c: memref<4x1048576x1024xf32> {ladle.name = "c"},
                   %d: memref<?xf32> {ladle.name = "d"},
                   %e: memref<8xf32, strided<[1], offset: 5>>
                       {ladle.name = "v"},
                   %i: index {ladle.name = "i"}) kernel {
    // CHECK: a[(long long)i * 4096 + i]
    %0 = memref.load %a[%i, %i] : memref<1048576x4096xf32>
    // CHECK-NEXT: b[i * 1024 + i]
    %1 = memref.load %b[%i, %i] : memref<1048576x1024xf32>
    // CHECK-NEXT: c[(long long)i * 1073741824 + (i * 1024 + i)]
    %2 = memref.load %c[%i, %i, %i] : memref<4x1048576x1024xf32>
    // CHECK-NEXT: d[i]
    %3 = memref.load %d[%i] : memref<?xf32>
    // CHECK-NEXT: v[i + 5]
    %4 = memref.load %e[%i] : memref<8xf32, strided<[1], offset: 5>>
    gpu.return
  }
}
