#!/bin/sh
# Compiles the kernels to PTX with Debian's clang-14 (apt-get install clang-14), into the folder
# named by the first argument, or ../ptx. The result has no dates and no paths: the same on
# every machine, byte for byte.
set -eu
cd "$(dirname "$0")"
out=${1:-../ptx}
clang=${CLANG:-clang-14}
mkdir -p "$out"
ptx() { # name source definitions
  for target in 75:63 80:70; do
    "$clang" -x cuda --cuda-device-only --cuda-gpu-arch=sm_${target%:*} -Xclang -target-feature -Xclang +ptx${target#*:} \
      -nocudainc -nocudalib -nostdinc++ -O3 -ffp-contract=off -Wall -Wno-pass-failed -Wno-unused-function $3 -S -o "$out/$1.sm_${target%:*}.ptx" "$2"
  done
}
for name in rows attention floats; do ptx $name $name.cu ""; done
for format in Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4; do
  ptx $format matmul.cu -DFORMAT=$format
done
