#!/usr/bin/env bash
# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what is missing, builds, and runs every check: the tests, the same
# under AddressSanitizer and UBSan, random checks of one seed, the fuzzer for a
# minute, the linters. Needs about 45 minutes on two cores from nothing, minutes
# afterwards.
#
#   LADLE_FUZZ_SECONDS   how long to fuzz (60)
#   LADLE_TIDY_SECONDS   how long to let clang-tidy run, on what has no MLIR
#                        first, then on what changed last (240, and 90 when the
#                        budget has passed)
#   LADLE_BUDGET_SECONDS when a third of it has passed, sanitizers check a part of
#                        the tests, and when all has, none; where the build took
#                        three quarters, the registers of kernels are not looked
#                        at. The summary says so (2100)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=$(nproc)
summary=()
failures=0

# step NAME COMMAND...: runs it, with its name before and its time after.
step() {
  local name=$1 start=$SECONDS verdict=passed
  shift
  printf '\n== %s\n' "$name"
  "$@" </dev/null || {
    verdict=FAILED
    failures=$((failures + 1))
  }
  summary+=("$(printf '%-24s %-6s %5d s' "$name" $verdict $((SECONDS - start)))")
  printf '== %s: %s, %d s\n' "$name" "$verdict" $((SECONDS - start))
  [[ $verdict == passed ]]
}

finish() {
  printf '\n== summary\n'
  printf '%s\n' "${summary[@]}"
  # The closing lines of ctest, repeated where they are looked for.
  grep -hE 'tests passed' build/*-ctest.log 2>/dev/null || true
  if ((failures > 0)); then
    printf '%d steps failed\n' "$failures"
    exit 1
  fi
  printf 'all %d steps passed\n' "${#summary[@]}"
}

# Later steps say nothing when what they need did not build.
need() {
  step "$@" || finish
}

configure() {
  local log=build/$1-configure.log
  cmake --preset "$1" >"$log" 2>&1 || {
    cat "$log"
    return 1
  }
}

# run_ctest PRESET OPTIONS...
run_ctest() {
  ctest --preset "$1" -j "$jobs" "${@:2}" | tee "build/$1-ctest.log"
}

fuzz() {
  local seconds=${LADLE_FUZZ_SECONDS:-60} work=build/asan/fuzz
  mkdir -p "$work/corpus"
  # MLIR's shared library is not instrumented: containers that cross into it
  # look overflown, arenas poisoned. New inputs go to the first folder, crashes
  # beside it.
  ASAN_OPTIONS=detect_container_overflow=0:allow_user_poisoning=0 \
    build/asan/bin/ladle-parser-fuzzer -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$work/" -dict=tests/fuzz/ladle.dict \
    "$work/corpus" examples tests/fuzz/corpus
}

mkdir -p build
need 'set-up' tools/setup.sh
need 'configure dev' configure dev
need 'build dev' cmake --build --preset dev -j "$jobs"
budget=${LADLE_BUDGET_SECONDS:-2100}
selected=()
if ((SECONDS > budget * 3 / 4)); then
  selected=(-LE resources)
  summary+=("registers of kernels    skipped: $SECONDS s have passed")
fi
step 'tests' run_ctest dev "${selected[@]}" || true
step 'random checks' tools/random_checks.py --cases 24 --jobs "$jobs" || true
for check in tools/lint/check_*; do
  step "lint: $(basename "${check%.*}" | sed 's/check_//')" "$check" || true
done
# On a slow machine a part of the suite, or none, is built a second time.
sanitized=asan-quick
((SECONDS < budget / 3)) && sanitized=asan
if ((SECONDS < budget)); then
  need 'configure sanitizers' configure asan
  need "build $sanitized" cmake --build --preset "$sanitized" -j "$jobs"
  step "tests, $sanitized" run_ctest "$sanitized" || true
  need 'build the fuzzer' cmake --build --preset fuzz -j "$jobs"
  step 'fuzz the parser' fuzz || true
else
  summary+=("sanitizers, fuzzer      skipped: $SECONDS s have passed")
fi
tidy=240
((SECONDS < budget)) || tidy=90
step 'lint: clang-tidy' tools/lint/tidy.py build/dev \
  --seconds "${LADLE_TIDY_SECONDS:-$tidy}" || true
finish
