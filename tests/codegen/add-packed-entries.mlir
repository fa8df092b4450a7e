// RUN: ladle-opt %s --ladle-add-packed-entries | FileCheck %s

// CHECK: llvm.func internal @f(%arg0: i64, %arg1: !llvm.ptr)
// CHECK-SAME: always_inline
llvm.func @f(%arg0: i64, %arg1: !llvm.ptr) {
  llvm.return
}

// CHECK: llvm.func internal @_mlir_ciface_f(
llvm.func @_mlir_ciface_f(%arg0: i64, %arg1: !llvm.ptr) {
  llvm.call @f(%arg0, %arg1) : (i64, !llvm.ptr) -> ()
  llvm.return
}

// CHECK: llvm.func @f__packed(%[[ARRAY:.*]]: !llvm.ptr)
// CHECK: %[[P0:.*]] = llvm.load %[[ARRAY]] : !llvm.ptr -> !llvm.ptr
// CHECK: %[[I0:.*]] = llvm.load %[[P0]] : !llvm.ptr -> i64
// CHECK: %[[SLOT:.*]] = llvm.getelementptr %[[ARRAY]][1]
// CHECK: %[[P1:.*]] = llvm.load %[[SLOT]] : !llvm.ptr -> !llvm.ptr
// CHECK: llvm.call @_mlir_ciface_f(%[[I0]], %[[P1]])
// CHECK: llvm.return
