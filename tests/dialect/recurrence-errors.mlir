// RUN: ladle-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

// expected-error @+1 {{unknown argument kind 'input'}}
ladle.recurrence @r(input %x: tensor<1xf32>) -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{uses the name 'x' twice}}
ladle.recurrence @r(token %x: tensor<1xf32>) -> (x: tensor<1xf32>) {
  ladle.yield %x : tensor<1xf32>
}

// -----

// expected-error @+1 {{argument 'x' must be a tensor of floats of static shape, heads first, got 'tensor<?xf32>'}}
ladle.recurrence @r(token %x: tensor<?xf32>) -> () {
  ladle.yield
}

// -----

// expected-error @+1 {{output 'y' must be a tensor of floats of static shape, heads first, got 'tensor<4xi32>'}}
ladle.recurrence @r() -> (y: tensor<4xi32>) {
  %0 = arith.constant dense<0> : tensor<4xi32>
  ladle.yield %0 : tensor<4xi32>
}

// -----

// expected-error @+1 {{state argument must be a !ladle.state, got 'tensor<4x8x8xf32>'}}
ladle.recurrence @r(state %S: tensor<4x8x8xf32>) -> () {
  ladle.yield %S : tensor<4x8x8xf32>
}

// -----

// expected-error @+1 {{has no buffers: those belong to a ladle.step}}
ladle.recurrence @r(buffer %B: tensor<1xf32>) -> () {
  ladle.yield
}

// -----

ladle.recurrence @r(state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-error @+1 {{must yield 1 values, got 0}}
  ladle.yield
}

// -----

ladle.recurrence @r(token %x: tensor<1xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  // expected-error @+1 {{operand 0 must be '!ladle.state<4x8x8xf32>', got 'tensor<1xf32>'}}
  ladle.yield %x : tensor<1xf32>
}

// -----

// expected-error @+1 {{must end in ladle.yield}}
"ladle.recurrence"() ({
  "test.end"() : () -> ()
}) {sym_name = "r", argument_names = [], argument_kinds = [],
    output_names = [], output_types = []} : () -> ()

// -----

// expected-error @+1 {{has 0 arguments, but 1 names and 0 kinds}}
"ladle.recurrence"() ({
  "ladle.yield"() : () -> ()
}) {sym_name = "r", argument_names = ["x"], argument_kinds = [],
    output_names = [], output_types = []} : () -> ()

// -----

// expected-error @+1 {{has 0 outputs, but 1 names of outputs}}
"ladle.recurrence"() ({
  "ladle.yield"() : () -> ()
}) {sym_name = "r", argument_names = [], argument_kinds = [],
    output_names = ["y"], output_types = []} : () -> ()

// -----

// expected-error @+1 {{'gate' has 8 heads, which its states with 4 do not allow}}
ladle.recurrence @r(token %gate: tensor<8xf32>, state %S: !ladle.state<4x8x8xf32>) -> () {
  ladle.yield %S : !ladle.state<4x8x8xf32>
}

// -----

// expected-error @+1 {{'T' has 2 heads, which its states with 4 do not allow}}
ladle.recurrence @r(state %S: !ladle.state<4x8x8xf32>, state %T: !ladle.state<2x8x8xf32>) -> () {
  ladle.yield %S, %T : !ladle.state<4x8x8xf32>, !ladle.state<2x8x8xf32>
}

// -----

// expected-error @+1 {{'y' has 3 heads, which its states with 4 do not allow}}
ladle.recurrence @r(token %x: tensor<1x8xf32>, state %S: !ladle.state<4x8x8xf32>) -> (y: tensor<3x8xf32>) {
  %y = ladle.broadcast %x dims [0, 1] : tensor<1x8xf32> to tensor<3x8xf32>
  ladle.yield %y, %S : tensor<3x8xf32>, !ladle.state<4x8x8xf32>
}
