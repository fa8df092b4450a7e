// RUN: ladle-opt %s | ladle-opt | FileCheck %s

// CHECK: state = !ladle.state<32x128x64xf32>
// CHECK: pool = !ladle.pool<1x1x1xf16>
// CHECK: other = !ladle.pool<32x128x64xf32, dk_dv>
// CHECK: same = !ladle.pool<32x128x64xf32>
// CHECK: ring = !ladle.buffer<[k : 16x4x128xbf16 @dk, "odd name" : 32x4x64xf32 @dv, decay : 32xf32 @scalar], capacity = 16, order = ring, weight = linear>
// CHECK: cache = !ladle.buffer<[k : 8x128xf16 @dk, v : 8x128xf16 @dv], capacity = 0, order = paged, weight = exp>
// CHECK: pages = !ladle.buffer<[k : 16x128xbf16 @dk], capacity = 512, order = indexed, page = 16, weight = linear>
// CHECK: summary = !ladle.summary<32x128xbf16>
module @m1 attributes {test.a = {
  state = !ladle.state<32x128x64xf32>}} {}
module @m2 attributes {test.a = {
  pool = !ladle.pool<1x1x1xf16>}} {}
module @m2a attributes {test.a = {
  other = !ladle.pool<32x128x64xf32, dk_dv>}} {}
module @m2b attributes {test.a = {
  same = !ladle.pool<32x128x64xf32, dv_dk>}} {}
module @m3 attributes {test.a = {
  ring = !ladle.buffer<[k : 16x4x128xbf16 @dk, "odd name" : 32x4x64xf32 @dv,
                        decay : 32xf32 @scalar],
                       capacity = 16, order = ring, weight = linear>}} {}
module @m4 attributes {test.a = {
  cache = !ladle.buffer<[k : 8x128xf16 @dk, v : 8x128xf16 @dv], capacity = 0,
                        order = paged, weight = exp>}} {}
module @m4a attributes {test.a = {
  pages = !ladle.buffer<[k : 16x128xbf16 @dk], capacity = 512,
                        order = indexed, page = 16, weight = linear>}} {}
module @m5 attributes {test.a = {
  summary = !ladle.summary<32x128xbf16>}} {}
