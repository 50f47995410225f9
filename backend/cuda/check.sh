#!/bin/sh
# Runs on a machine with an NVIDIA GPU and nothing but its driver (and Go, and a C compiler for
# cgo): conformance, the small models, and speed. Under five minutes.
#
#   ./check.sh              on the GPU
#   ./check.sh rehearse     through the emulated driver, with models of two small layers
#   ./check.sh list         prints which tests it runs, besides speed, as a pattern
#   ./check.sh build FILE   only builds the program that ./check.sh FILE then runs, for machines without Go
set -eu
cd "$(dirname "$0")"
export CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -I$PWD/include"
tags=cuda
extra=
program=${TMPDIR:-/tmp}/minfer-cuda-check
tests='^(TestConformance|TestOrderOfSums|TestAttentionPrecision|TestAttentionInfinite|TestReplay|TestBits|TestObserved|TestForks|TestSaved|TestTwoDevices|TestGolden|TestStoryteller)$'
case ${1:-} in
list) echo "$tests"; exit ;;
rehearse) tags='cuda cudaemu' extra=-rehearse ;;
build) exec go test -c -tags cuda -o "$2" . ;;
'') ;;
*) program=$1 ;;
esac
[ -n "${1:-}" ] && [ "${1:-}" != rehearse ] || go test -c -tags "$tags" -o "$program" .
log=$program.log
if "$program" -test.run "$tests" -test.v -test.timeout 4m >"$log" 2>&1; then
  grep -E '^ *--- SKIP' "$log" || true
  echo "conformance, replay and small models: ok ($(grep -c -E '^ *--- PASS' "$log") tests)"
else
  grep -E '^ *--- FAIL|_test.go|panic' "$log"
  echo "the whole report is $log"
  exit 1
fi
exec "$program" -test.run '^TestSpeed$' -speed $extra -test.timeout 4m
