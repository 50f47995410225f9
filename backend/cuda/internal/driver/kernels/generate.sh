#!/bin/sh
# Compiles the kernels to PTX with Debian's clang-14 (apt-get install clang-14), into the folder
# named by the first argument, or ../ptx. The result has no dates and no paths: the same on
# every machine, byte for byte.
set -eu
cd "$(dirname "$0")"
out=${1:-../ptx}
clang=${CLANG:-clang-14}
mkdir -p "$out"

# Kernels without tensor cores are compiled once, for the oldest architecture: the driver
# translates for the one it finds.
ptx() { # name source target:isa definition
  "$clang" -x cuda --cuda-device-only --cuda-gpu-arch=sm_${3%:*} -Xclang -target-feature -Xclang +ptx${3#*:} \
    -nocudainc -nocudalib -nostdinc++ -O3 -ffp-contract=off -Wall -Wno-pass-failed -Wno-unused-function ${4:-} -S -o "$out/$1.sm_${3%:*}.ptx" "$2"
}
for name in rows attention floats roofs top; do ptx $name $name.cu 75:65; done
ptx roofs roofs.cu 80:70
for name in halves flash; do ptx $name $name.cu 80:70; done
for format in Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4; do
  ptx $format matmul.cu 75:65 -DFORMAT=$format
  ptx tensor_$format tensor.cu 75:65 -DFORMAT=$format
  ptx tensor_$format tensor.cu 80:70 -DFORMAT=$format
done
