// RUN: ladle-translate --mlir-to-cuda %s --split-input-file --verify-diagnostics

gpu.module @m {
  gpu.func @f(%a: memref<64xf32>, %i: vector<4xi32>, %m: vector<4xi1>,
              %p: vector<4xf32>, %o: index) kernel {
    // expected-error @below {{'vector.gather' cannot be printed as CUDA}}
    // expected-note @below {{its operands are of type 'memref<64xf32>'}}
    // expected-note @below {{kernels are made of gpu, scf, arith, math, memref and vector operations on scalars and 1-D vectors, and compute numbers in f32}}
    %0 = vector.gather %a[%o][%i], %m, %p : memref<64xf32>, vector<4xi32>,
        vector<4xi1>, vector<4xf32> into vector<4xf32>
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @f(%a: memref<4xi32>, %o: index, %x: i32) kernel {
    // expected-error @below {{'memref.atomic_rmw' cannot be printed as CUDA}}
    // expected-note @below {{its operands are of type 'i32', 'memref<4xi32>', 'index'}}
    // expected-note @below {{kernels are made of gpu, scf, arith, math, memref and vector operations on scalars and 1-D vectors, and compute numbers in f32}}
    %0 = memref.atomic_rmw maxs %x, %a[%o] : (i32, memref<4xi32>) -> i32
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @f(%x: bf16) kernel {
    // expected-error @below {{'arith.addf' cannot be printed as CUDA}}
    // expected-note @below {{its operands are of type 'bf16', 'bf16'}}
    // expected-note @below {{compute numbers in f32}}
    %0 = arith.addf %x, %x : bf16
    gpu.return
  }
}

// -----

gpu.module @m {
  // expected-error @below {{type 'f64' cannot be printed as CUDA}}
  // expected-note @below {{kernels use i1, i8 to i64, index, f16, bf16, f32 and 1-D vectors of them}}
  gpu.func @f(%x: f64) kernel {
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @f() kernel {
    // expected-error @below {{constant 3000000000 : index cannot be printed as CUDA}}
    // expected-note @below {{an index is 32 bits wide; use i64}}
    %0 = arith.constant 3000000000 : index
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @f(%p: vector<4xi32>) kernel {
    // expected-error @below {{a reduction <xor> of 'i32' cannot be printed as CUDA}}
    // expected-note @below {{reductions are sums, products and extrema of f32 or integers}}
    %0 = vector.reduction <xor>, %p : vector<4xi32> into i32
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @f(%n: index) kernel {
    %c0 = arith.constant 0 : index
    // expected-error @below {{an unsigned loop cannot be printed as CUDA}}
    // expected-note @below {{bounds are signed}}
    scf.for unsigned %i = %c0 to %n step %n {
    }
    gpu.return
  }
}

// -----

gpu.module @m {
  gpu.func @f() kernel {
    // expected-error @below {{'nvvm.barrier' cannot be printed as CUDA}}
    // expected-note @below {{kernels are made of gpu, scf}}
    nvvm.barrier
    gpu.return
  }
}
