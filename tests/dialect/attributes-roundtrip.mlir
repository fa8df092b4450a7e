// RUN: ladle-opt %s --allow-unregistered-dialect | ladle-opt --allow-unregistered-dialect | FileCheck %s

// CHECK: routes = [#ladle.route<recurrent>, #ladle.route<outer>, #ladle.route<inner>, #ladle.route<adjoint>, #ladle.route<kv_only>]
"test.op"() {routes = [#ladle.route<recurrent>, #ladle.route<outer>,
  #ladle.route<inner>, #ladle.route<adjoint>, #ladle.route<kv_only>]} : () -> ()
// CHECK: forms = [#ladle.form<decode>, #ladle.form<decode_fold>, #ladle.form<fold>]
"test.op"() {forms = [#ladle.form<decode>, #ladle.form<decode_fold>, #ladle.form<fold>]} : () -> ()
// CHECK: classes = [#ladle.operand_class<token_only>, #ladle.operand_class<affine>, #ladle.operand_class<other>]
"test.op"() {classes = [#ladle.operand_class<token_only>,
  #ladle.operand_class<affine>, #ladle.operand_class<other>]} : () -> ()
// CHECK: field = #ladle.field<k : 16x128xbf16 @dk>
"test.op"() {field = #ladle.field<k : 16x128xbf16 @dk>} : () -> ()
// CHECK: transition = #ladle.transition<decay = "decay", keys = ["k"], key_scales = [""], values = ["v"], value_scales = ["v_scale"], owners = [0], coefficients = ["c0"], vectors = ["k"], vector_scales = [""], after_decay = [1]>
"test.op"() {transition = #ladle.transition<decay = "decay", keys = ["k"],
  key_scales = [""], values = ["v"], value_scales = ["v_scale"], owners = [0],
  coefficients = ["c0"], vectors = ["k"], vector_scales = [""],
  after_decay = [1]>} : () -> ()
// CHECK: transition = #ladle.transition<decay = "", keys = ["k"], key_scales = [""], values = ["v"], value_scales = [""], owners = [], coefficients = [], vectors = [], vector_scales = [], after_decay = []>
"test.op"() {transition = #ladle.transition<decay = "", keys = ["k"],
  key_scales = [""], values = ["v"], value_scales = [""], owners = [],
  coefficients = [], vectors = [], vector_scales = [],
  after_decay = []>} : () -> ()
