// RUN: not ladle-opt %s --ladle-select-route=machine=abacus 2>&1 | FileCheck %s --check-prefix=MACHINE
// RUN: not ladle-opt %s --ladle-select-route 2>&1 | FileCheck %s --check-prefix=NONE

// MACHINE: error: machine must be cpu or h200, batch positive and context not negative, got abacus, 256 and 0
// NONE: error: no route can decode a context of 0 tokens
// NONE: note: run ladle-build-decode first
ladle.recurrence @f(token %q: tensor<1x4xf32>) -> (y: tensor<1x4xf32>) {
  ladle.yield %q : tensor<1x4xf32>
}
