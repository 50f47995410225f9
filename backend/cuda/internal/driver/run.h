#include <cuda.h>

/* As type Op of Go. */
typedef struct {
  uint32_t kind, shared, grid[3], block;
  uint64_t fn, args[27], n;
} minfer_op;

CUresult minfer_run(const minfer_op *ops, int n, CUstream s, int *done);
CUresult minfer_allow_shared(uint64_t fn, int bytes);
