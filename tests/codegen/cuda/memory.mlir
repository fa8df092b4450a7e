// RUN: ladle-translate --mlir-to-cuda %s | FileCheck %s

!strided = memref<?x16x128xbf16, strided<[?, ?, 1], offset: ?>>
!shared = memref<4x32xf32, #gpu.address_space<workgroup>>

gpu.module @m {
  // What is only read is const; offsets are part of the pointer.
  // CHECK:      extern "C" __global__ void __launch_bounds__(128) move(
  // CHECK-NEXT:     const bf16 *__restrict__ q, int q_stride0, int q_stride1,
  // CHECK-NEXT:     bf16 *y) {
  gpu.func @move(%q: !strided {ladle.name = "q"},
                 %y: memref<?x16x128xbf16> {ladle.name = "y"})
      workgroup(%s: !shared {ladle.name = "partial"})
      kernel attributes {known_block_size = array<i32: 32, 4, 1>} {
    // Whole sectors begin where sectors do.
    // CHECK-NEXT: __shared__ __align__(32) float partial[128];
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    // CHECK-NEXT: const int t = threadIdx.x;
    %t = gpu.thread_id x loc("t")
    // CHECK-NEXT: const int b = blockIdx.z;
    %b = gpu.block_id z loc("b")
    // CHECK-NEXT: const bf16 x = q[(long long)b * q_stride0 + (long long)q_stride1 + t];
    %x = memref.load %q[%b, %c1, %t] : !strided loc("x")
    // The pool of states exceeds 32 bits.
    // CHECK-NEXT: y[(long long)b * 2048 + (t + 384)] = x;
    memref.store %x, %y[%b, %c3, %t] : memref<?x16x128xbf16>
    // CHECK-NEXT: const float p = partial[t * 32];
    %p = memref.load %s[%t, %c0] : !shared loc("p")
    // CHECK-NEXT: partial[99] = p;
    memref.store %p, %s[%c3, %c3] : !shared
    // CHECK-NEXT: block_barrier();
    gpu.barrier
    gpu.return
  }

  // Who arrives is told how many have.
  // CHECK: void arrivals(int *counters, int *last, int i) {
  gpu.func @arrivals(%counters: memref<?xi32> {ladle.name = "counters"},
                     %last: memref<?xi32> {ladle.name = "last"},
                     %i: index {ladle.name = "i"}) kernel {
    %c1 = arith.constant 1 : i32
    // CHECK-NEXT: const int before = arrive(counters + i, 1);
    %before = memref.atomic_rmw addi %c1, %counters[%i]
        : (i32, memref<?xi32>) -> i32 loc("before")
    memref.store %before, %last[%i] : memref<?xi32>
    gpu.return
  }

  // CHECK: void vectors
  gpu.func @vectors(%a: memref<?x128xbf16> {ladle.name = "a"},
                    %b: memref<64xbf16> {ladle.name = "b"},
                    %i: index {ladle.name = "i"}) kernel {
    %c0 = arith.constant 0 : index
    // CHECK-NEXT: const Vec<bf16, 8> x = load_vector_streaming<8>(a + (long long)i * 128);
    %0 = vector.load %a[%i, %c0] {nontemporal = true}
        : memref<?x128xbf16>, vector<8xbf16> loc("x")
    // CHECK-NEXT: store_vector(b, x);
    vector.store %0, %b[%c0] : memref<64xbf16>, vector<8xbf16>
    // CHECK-NEXT: store_vector_streaming(b + i, x);
    vector.store %0, %b[%i] {nontemporal = true}
        : memref<64xbf16>, vector<8xbf16>
    // What the next kernel reads stays in the cache.
    // CHECK-NEXT: store_vector_kept(b, x);
    vector.store %0, %b[%c0] {ladle.kept} : memref<64xbf16>, vector<8xbf16>
    // CHECK-NEXT: const bf16 first = x[0];
    %first = vector.extract %0[0] : bf16 from vector<8xbf16> loc("first")
    // CHECK-NEXT: store_kept(b + i, first);
    memref.store %first, %b[%i] {ladle.kept} : memref<64xbf16>
    // What is not there is not touched.
    // CHECK-NEXT: const bool there = i < 8;
    %c8 = arith.constant 8 : index
    %there = arith.cmpi slt, %i, %c8 : index loc("there")
    %mask = vector.broadcast %there : i1 to vector<2xi1>
    %zero = arith.constant dense<0.0> : vector<2xbf16>
    // CHECK-NEXT: const Vec<bf16, 2> z = load_vector_if<2>(there, b + i, from_float<bf16>(0.0f));
    %2 = vector.maskedload %b[%i], %mask, %zero
        : memref<64xbf16>, vector<2xi1>, vector<2xbf16> into vector<2xbf16> loc("z")
    // Parts of a row that nobody writes share its address.
    // CHECK-NEXT: auto *const a_row = a + (long long)i * 128 + 4;
    %row = memref.subview %a[%i, 4] [1, 64] [1, 1]
        : memref<?x128xbf16> to memref<1x64xbf16, strided<[128, 1], offset: ?>>
    // CHECK-NEXT: const Vec<bf16, 2> w = load_constant_vector_if<2>(there, a_row + 8, from_float<bf16>(0.0f));
    %3 = vector.maskedload %row[%c0, %c8], %mask, %zero {ladle.constant}
        : memref<1x64xbf16, strided<[128, 1], offset: ?>>, vector<2xi1>, vector<2xbf16>
        into vector<2xbf16> loc("w")
    // CHECK-NEXT: const Vec<bf16, 4> y = load_vector<4>(b + i);
    %1 = vector.load %b[%i] : memref<64xbf16>, vector<4xbf16> loc("y")
    gpu.return
  }

  // Bytes become elements, of memory that is written and of memory that is not,
  // and rows without gaps one row.
  // CHECK:      void bytes(
  // CHECK-NEXT:     const signed char *__restrict__ from,
  // CHECK-NEXT:     signed char *to) {
  gpu.func @bytes(%from: memref<?xi8> {ladle.name = "from"},
                  %to: memref<?xi8> {ladle.name = "to"})
      workgroup(%s: !shared {ladle.name = "partial"}) kernel {
    %c0 = arith.constant 0 : index
    // CHECK: const int t = threadIdx.x;
    %t = gpu.thread_id x loc("t")
    // CHECK-NEXT: auto *const from_part = bytes_as<float>(from + t);
    %0 = memref.view %from[%t][] : memref<?xi8> to memref<16xf32>
    // CHECK-NEXT: const Vec<float, 4> v = load_vector<4>(from_part);
    %1 = vector.load %0[%c0] : memref<16xf32>, vector<4xf32> loc("v")
    // CHECK-NEXT: auto *const to_part = bytes_as<float>(to + t);
    %2 = memref.view %to[%t][] : memref<?xi8> to memref<16xf32>
    // CHECK-NEXT: store_vector(to_part, v);
    vector.store %1, %2[%c0] : memref<16xf32>, vector<4xf32>
    %3 = memref.collapse_shape %s [[0, 1]]
        : !shared into memref<128xf32, #gpu.address_space<workgroup>>
    // CHECK-NEXT: store_vector(partial + t, v);
    vector.store %1, %3[%t]
        : memref<128xf32, #gpu.address_space<workgroup>>, vector<4xf32>
    gpu.return
  }

  // What a kernel ahead may be writing is read to ask for what it says.
  // CHECK: void ahead
  gpu.func @ahead(%slots: memref<?xi32> {ladle.name = "slots"},
                  %a: memref<?x128xbf16> {ladle.name = "a"}) kernel {
    %i = gpu.thread_id x
    // CHECK: const Vec<int, 1> [[SLOT:.*]] = load_vector_ahead<1>(slots + {{.*}});
    %0 = vector.load %slots[%i] {ladle.ahead} : memref<?xi32>, vector<1xi32>
    %1 = vector.extract %0[0] : i32 from vector<1xi32>
    %2 = arith.index_cast %1 : i32 to index
    %c64 = arith.constant 64 : index
    // CHECK: prefetch(a + (long long){{.*}} * 128 + 64);
    memref.prefetch %a[%2, %c64], read, locality<3>, data : memref<?x128xbf16>
    gpu.return
  }

  // What other rows need lies where that of some does, which may be less.
  // CHECK: void rows_of_two_kinds
  gpu.func @rows_of_two_kinds()
      workgroup(%few: memref<8xf32, #gpu.address_space<workgroup>> {ladle.name = "few"},
                %large: memref<64xf32, #gpu.address_space<workgroup>> {ladle.name = "large", ladle.other_rows},
                %largest: memref<96xf32, #gpu.address_space<workgroup>> {ladle.name = "largest", ladle.other_rows},
                %within: memref<16xf32, #gpu.address_space<workgroup>> {ladle.name = "within", ladle.other_rows, ladle.shares = 1 : index},
                %more: memref<16xf32, #gpu.address_space<workgroup>> {ladle.name = "more"})
      kernel attributes {ladle.one_array} {
    // CHECK-NEXT: LADLE_DYNAMIC_SHARED(shared_memory, 640);
    // CHECK-NEXT: more = (float *)(shared_memory + 0); // [16]
    // CHECK-NEXT: few = (float *)(shared_memory + 64); // [8]
    // CHECK-NEXT: largest = (float *)(shared_memory + 0); // [96]
    // CHECK-NEXT: large = (float *)(shared_memory + 384); // [64]
    // CHECK-NEXT: within = (float *)large;
    gpu.return
  }

  // What takes the bytes of other shared memory has none of its own.
  // CHECK: void shares
  gpu.func @shares()
      workgroup(%keys: memref<4x16xbf16, #gpu.address_space<workgroup>> {ladle.name = "keys"},
                %dots: memref<32xf32, #gpu.address_space<workgroup>> {ladle.name = "dots", ladle.shares = 0 : index})
      kernel {
    // CHECK-NEXT: __shared__ __align__(32) bf16 keys[64];
    // CHECK-NEXT: float *const dots = (float *)keys;
    %c3 = arith.constant 3 : index
    %zero = arith.constant 0.0 : f32
    // CHECK-NEXT: dots[3] = 0.0f;
    memref.store %zero, %dots[%c3] : memref<32xf32, #gpu.address_space<workgroup>>
    // CHECK-NEXT: warp_barrier();
    gpu.barrier {ladle.of_warp}
    gpu.return
  }
}
