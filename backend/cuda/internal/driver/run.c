//go:build cuda

#include "run.h"

static CUresult launch(const minfer_op *o, CUstream s) {
  void *params[27];
  for (int i = 0; i < 27; i++) params[i] = (void *)&o->args[i];
  return cuLaunchKernel((CUfunction)o->fn, o->grid[0], o->grid[1], o->grid[2], o->block, 1, 1, o->shared, s, params, 0);
}

static CUresult run(const minfer_op *o, CUstream s) {
  const uint64_t *a = o->args;
  switch (o->kind) {
  case 0: return launch(o, s);
  case 1: return cuMemcpyHtoDAsync(a[0], (const void *)a[1], a[2], s);
  case 2: return cuMemcpyDtoHAsync((void *)a[0], a[1], a[2], s);
  case 3: return cuMemcpyDtoDAsync(a[0], a[1], a[2], s);
  case 4: return cuMemsetD8Async(a[0], (unsigned char)a[1], a[2], s);
  case 5: return cuGraphLaunch((CUgraphExec)o->fn, s);
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult minfer_run(const minfer_op *ops, int n, CUstream s, int *done) {
  for (*done = 0; *done < n; ++*done) {
    CUresult r = run(&ops[*done], s);
    if (r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

CUresult minfer_allow_shared(uint64_t fn, int bytes) {
  return cuFuncSetAttribute((CUfunction)fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}
