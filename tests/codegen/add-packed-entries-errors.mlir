// RUN: ladle-opt %s --ladle-add-packed-entries --verify-diagnostics

// expected-error @below {{kernel 'f' returns a value}}
llvm.func @_mlir_ciface_f(%arg0: i64) -> i64 {
  llvm.return %arg0 : i64
}
