// RUN: ladle-opt %s --ladle-to-steps=routes=recurrent,inner \
// RUN:   --ladle-select-route="batch=256" 2>/dev/null | FileCheck %s --check-prefix=LARGE
// RUN: ladle-opt %s --ladle-to-steps=routes=recurrent,inner \
// RUN:   --ladle-select-route="batch=256" 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: ladle-opt %s --ladle-to-steps="routes=inner,kv_only capacity=16" \
// RUN:   --ladle-select-route="batch=256 context=8" 2>/dev/null | FileCheck %s --check-prefix=SHORT

// LARGE: ladle.selected = #ladle.route<inner>
// LARGE: ladle.step @f_inner_decode of
// LARGE-NOT: route(recurrent)
// REMARK: remark: chose inner with m = 8: {{[0-9]+}} bytes and {{[0-9]+}} flops a token and row against {{[0-9]+}} bytes and {{[0-9]+}} flops by recurrent
// SHORT: ladle.selected = #ladle.route<kv_only>
ladle.recurrence @f(token %q: tensor<4x64xf32>, token %k: tensor<4x64xf32>,
    token %v: tensor<4x64xf32>, state %S: !ladle.state<4x64x64xf32>)
    -> (y: tensor<4x64xf32>) {
  %next = ladle.write %S, %k, %v : !ladle.state<4x64x64xf32>,
          tensor<4x64xf32>, tensor<4x64xf32>
  %y = ladle.read %next, %q : !ladle.state<4x64x64xf32>, tensor<4x64xf32>
       -> tensor<4x64xf32>
  ladle.yield %y, %next : tensor<4x64xf32>, !ladle.state<4x64x64xf32>
}
