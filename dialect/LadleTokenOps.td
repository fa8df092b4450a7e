//===- LadleTokenOps.td - arithmetic of one token ----------*- tablegen -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What `arith` and `math` lack: broadcasts over heads, reductions, and the
// functions that models are written with. The latter have names so that the
// spec stage reads like the paper; ladle-expand-functions turns them into
// arith and math.
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOKEN_OPS
#define LADLE_TOKEN_OPS

include "dialect/LadleOpBase.td"

def Ladle_BroadcastOp : Ladle_Op<"broadcast", [Pure]> {
  let summary = "repeat a value over heads and over new dimensions";
  let description = [{
    Dimension i of the input becomes dimension `dims[i]` of the result; dims
    are increasing and start with 0. Sizes agree, except for heads, where the
    input's count divides the result's: head h of the result is head
    h / (result heads / input heads) of the input.

    ```mlir
    %1 = ladle.broadcast %0 dims [0, 2]
       : tensor<16x128xf32> to tensor<32x4x128xf32>
    ```
  }];
  let arguments = (ins Ladle_Value:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $input `dims` $dims attr-dict `:` type($input) `to` type($result)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Ladle_SumOp : Ladle_Op<"sum", [Pure]> {
  let summary = "sum over one dimension other than heads";
  let arguments = (ins Ladle_Value:$input, I64Attr:$dim);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $input `dim` $dim attr-dict `:` type($input) `to` type($result)
  }];
  let hasVerifier = 1;
}

class Ladle_FunctionOp<string mnemonic>
    : Ladle_Op<mnemonic, [Pure, SameOperandsAndResultType]> {
  let arguments = (ins Ladle_Value:$input);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def Ladle_SigmoidOp : Ladle_FunctionOp<"sigmoid"> {
  let summary = "1 / (1 + exp(−x))";
}
def Ladle_SiluOp : Ladle_FunctionOp<"silu"> {
  let summary = "x sigmoid(x)";
}
def Ladle_SoftplusOp : Ladle_FunctionOp<"softplus"> {
  let summary = "log(1 + exp(x)), without overflow";
}
def Ladle_EluOp : Ladle_FunctionOp<"elu"> {
  let summary = "x for x > 0, else exp(x) − 1";
}

def Ladle_L2NormOp : Ladle_Op<"l2norm", [Pure, SameOperandsAndResultType]> {
  let summary = "x rsqrt(Σ x² + eps), over the last dimension";
  let arguments = (ins Ladle_Value:$input, F64Attr:$eps);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = "$input `eps` $eps attr-dict `:` type($input)";
  let hasVerifier = 1;
}

def Ladle_RotateOp : Ladle_Op<"rotate", [
    Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "rotate channel pairs (2i, 2i+1) by angle i";
  let description = [{
    The shape of `angle` is that of the input but for the last dimension A,
    where 2A is at most the input's last dimension; channels from 2A on pass
    through. (x, y) becomes (x cos a − y sin a, x sin a + y cos a).
  }];
  let arguments = (ins Ladle_Value:$input, Ladle_Value:$angle);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $input `,` $angle attr-dict `:` type($input) `,` type($angle)
  }];
  let hasVerifier = 1;
}

def Ladle_ShiftOp : Ladle_Op<"shift", [
    Pure, AllTypesMatch<["window", "result"]>]> {
  let summary = "drop the oldest row of a window, append a new one";
  let description = [{
    `window` is [heads, W, D], oldest first; `input` is [heads, D].
  }];
  let arguments = (ins Ladle_Value:$window, Ladle_Value:$input);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $window `,` $input attr-dict `:` type($window) `,` type($input)
  }];
  let hasVerifier = 1;
}

def Ladle_ConvOp : Ladle_Op<"conv", [
    Pure, AllTypesMatch<["input", "result"]>]> {
  let summary = "a causal convolution a channel over a window and an input";
  let description = [{
    `window` is [heads, W, D], oldest first, `input` [heads, D], `weight`
    [heads, W + 1, D]: Σ_i weight[i] ∘ window[i] + weight[W] ∘ input.
  }];
  let arguments = (ins Ladle_Value:$window, Ladle_Value:$input,
                       Ladle_Value:$weight);
  let results = (outs Ladle_Value:$result);
  let assemblyFormat = [{
    $window `,` $input `,` $weight attr-dict `:`
    type($window) `,` type($input) `,` type($weight)
  }];
  let hasVerifier = 1;
}

#endif // LADLE_TOKEN_OPS
