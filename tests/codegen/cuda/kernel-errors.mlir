// RUN: ladle-translate --mlir-to-cuda %s --split-input-file --verify-diagnostics

// expected-error @below {{no kernel to print as CUDA}}
// expected-note @below {{kernels are gpu.func operations}}
module {
}

// -----

gpu.module @m {
  // expected-error @below {{function 'f' is no kernel and cannot be printed as CUDA}}
  // expected-note @below {{inline it, or mark it as `kernel`}}
  gpu.func @f() {
    gpu.return
  }
}

// -----

gpu.module @m {
  // expected-error @below {{kernel 'delta.net' cannot be called so in CUDA}}
  // expected-note @below {{names are C++ identifiers}}
  gpu.func @delta.net() kernel {
    gpu.return
  }
}

// -----

gpu.module @a {
  gpu.func @f() kernel {
    gpu.return
  }
}
gpu.module @b {
  // expected-error @below {{kernel 'f' is defined twice}}
  // expected-note @below {{kernels of all modules go into one source; rename one}}
  gpu.func @f() kernel {
    gpu.return
  }
}

// -----

gpu.module @m {
  // expected-error @below {{kernel 'f' has 2 blocks}}
  // expected-note @below {{control flow is scf.for and scf.if}}
  gpu.func @f() kernel {
    gpu.return
  ^next:
    gpu.return
  }
}

// -----

gpu.module @m {
  // expected-error @below {{the layout of 'memref<8x8xf32, affine_map<(d0, d1) -> (d0 mod 2, d1)>>' cannot be printed as CUDA}}
  // expected-note @below {{elements are found by strides}}
  gpu.func @f(%a: memref<8x8xf32, affine_map<(d0, d1) -> (d0 mod 2, d1)>>)
      kernel {
    gpu.return
  }
}

// -----

gpu.module @m {
  // expected-error @below {{workgroup memory of type 'memref<?xf32, #gpu.address_space<workgroup>>' cannot be printed as CUDA}}
  // expected-note @below {{its size is static and its layout plain}}
  gpu.func @f() workgroup(%s: memref<?xf32, #gpu.address_space<workgroup>>)
      kernel {
    gpu.return
  }
}

// -----

gpu.module @view {
  gpu.func @view(%all: memref<?xi8>, %i: i32) kernel {
    %from = arith.index_cast %i : i32 to index
    // expected-error @below {{'memref.view' cannot be printed as CUDA}}
    // expected-note @below {{its operands are of type}}
    // expected-note @below {{kernels are made of}}
    %some = memref.view %all[%from][%from] : memref<?xi8> to memref<?xf32>
    gpu.return
  }
}

// -----

gpu.module @columns {
  gpu.func @columns(%i: i32) workgroup(
      %all: memref<32x16xf32, #gpu.address_space<workgroup>>) kernel {
    %from = arith.index_cast %i : i32 to index
    // expected-error @below {{'memref.subview' cannot be printed as CUDA}}
    // expected-note @below {{its operands are of type}}
    // expected-note @below {{kernels are made of}}
    %some = memref.subview %all[0, %from] [32, 4] [1, 1]
        : memref<32x16xf32, #gpu.address_space<workgroup>> to memref<32x4xf32, strided<[16, 1], offset: ?>, #gpu.address_space<workgroup>>
    gpu.return
  }
}
