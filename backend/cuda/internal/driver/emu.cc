//go:build cuda && cudaemu

// The emulated driver and all kernels, built for the host. Package driver embeds these files
// for no other reason than that a change to one of them has the package built again.
#pragma GCC optimize("fp-contract=off") // a flag that cgo does not take
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#endif
#include "emu/driver.cc"
extern "C" int minfer_cuda_init_error(void) { return 0; }
#include "kernels/rows.cu"
#include "kernels/attention.cu"
#include "kernels/roofs.cu"
#include "kernels/top.cu"
#include "kernels/halves.h"
#include "kernels/sums.h"
// These have names of one another and of tensor.cu.
namespace floats {
#include "kernels/floats.cu"
}
namespace halves {
#include "kernels/halves.cu"
}
namespace flash {
#include "kernels/flash.cu"
}
#define FORMAT Q4_0
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q4_1
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q5_0
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q5_1
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q8_0
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q2_K
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q3_K
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q4_K
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q5_K
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT Q6_K
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT IQ4_NL
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT IQ4_XS
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#define FORMAT MXFP4
#include "kernels/matmul.cu"
#include "kernels/tensor.cu"
#undef FORMAT
#include "emu/mistakes.cu"
