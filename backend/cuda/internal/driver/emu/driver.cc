// A CUDA driver on the CPU, for tests: the part of libcuda that gorgonia.org/cu and package driver
// call. Kernels are the same .cu sources, built for the host (device.h); a module's PTX is read only
// for its entry points, whose parameter lists must agree with the host's kernels.
//   GPUEMU_STREAMS = lazy (default) | eager    when queued work runs
//   GPUEMU_ORDER   = fwd (default) | rev | rand[:seed]   order of threads between barriers
//   GPUEMU_CC      = 80 (default), GPUEMU_MEM_MB = 4096
//   GPUEMU_DROP    = FILE:LINE of a barrier or a wait to leave out
//   GPUEMU_KERNELS = a shared library whose kernels take the places of those with their names
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#include "device.h"

// ------------------------------------------------------------ fibers
namespace emu {
Thread *cur;
Kernel *kernels;
static void *sched_sp;
extern "C" void emu_switch(void **save, void *to);
#if defined(__x86_64__)
asm(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
static void *fiber_init(char *top, void (*f)()) {
  void **s = (void **)((uintptr_t)top & ~15ull);
  *--s = 0; *--s = (void *)f; // return address; rsp % 16 == 8 at entry
  for (int i = 0; i < 6; i++) *--s = 0;
  return s;
}
#elif defined(__aarch64__)
asm(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "sub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n");
static void *fiber_init(char *top, void (*f)()) {
  char *s = (char *)((uintptr_t)top & ~15ull) - 160;
  memset(s, 0, 160); *(void **)(s + 88) = (void *)f;
  return s;
}
#endif

static int order_mode = 0;
const size_t kStack = 64 << 10;
struct Warp { int arrived = 0, n = 0; uint32_t gen = 0; size_t size[2]; unsigned char buf[2][32 * 64]; };
static struct {
  Block b; std::vector<Thread> th; std::vector<Warp> w; char *stacks;
  int at_barrier, done; const Kernel *k; void *const *args; const char *err;
} S;

static void yield() { Thread *t = cur; emu_switch(&t->sp, sched_sp); }
static void fiber_main() {
  S.k->call(S.k->fn, S.args);
  cur->state = 3; S.done++;
  yield();
}
static int drop_line; static char drop_file[64]; // the barrier to leave out, as "file:line"
void block_barrier(const char *file, int line) {
  if (line == drop_line && strstr(file, drop_file)) return;
  cur->state = 1;
  if (++S.at_barrier == (int)S.th.size()) { // last one opens it
    S.at_barrier = 0;
    for (auto &t : S.th) if (t.state == 1) t.state = 0;
    return;
  }
  yield();
}
struct Copy { void *to; const void *from; };
static std::vector<std::vector<Copy>> copies; // of each thread
void async_copy(void *to, const void *from) {
  memset(to, 0xff, 16);
  copies[cur - S.th.data()].push_back(Copy{to, from});
}
void async_wait(const char *file, int line) {
  if (line == drop_line && strstr(file, drop_file)) return;
  auto &mine = copies[cur - S.th.data()];
  for (auto &c : mine) memcpy(c.to, c.from, 16);
  mine.clear();
}
const void *warp_gather(const void *in, size_t n, void (*make)(void *all)) {
  Thread *t = cur;
  int wi = (int)(t - S.th.data()) >> 5;
  Warp &w = S.w[wi];
  int p = t->warp_gen++ & 1;
  if (w.arrived && w.size[p] != n) S.err = "lanes of a warp are at different collectives";
  w.size[p] = n;
  memcpy(w.buf[p] + t->lane * n, in, n);
  if (++w.arrived == w.n) {
    w.arrived = 0;
    if (make) make(w.buf[p]);
    for (int i = wi * 32; i < wi * 32 + w.n; i++) if (S.th[i].state == 2) S.th[i].state = 0;
    return w.buf[p];
  }
  t->state = 2;
  // As a rule the next lane is the next to run, and there is no need to ask.
  int next = (t->lane + (order_mode == 1 ? w.n - 1 : 1)) % w.n;
  if (S.th[wi * 32 + next].state == 0) { cur = &S.th[wi * 32 + next]; emu_switch(&t->sp, cur->sp); } else yield();
  return w.buf[p];
}

static uint64_t rng = 88172645463325252ull;
static unsigned rnd() { rng ^= rng << 13; rng ^= rng >> 7; rng ^= rng << 17; return (unsigned)(rng >> 32); }
// Runs one launch; returns an error text or null.
static const char *run_kernel(const Kernel *k, const unsigned g[3], const unsigned b[3], size_t dyn, void *const *args) {
  int n = b[0] * b[1] * b[2];
  if (!S.stacks) S.stacks = (char *)mmap(0, kStack * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  // dynamic shared memory ends at an unmapped page
  size_t pg = 4096, len = (dyn + pg - 1) / pg * pg;
  char *dm = (char *)mmap(0, len + pg, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(dm + len, pg, PROT_NONE);
  std::vector<int> ord(n);
  S.k = k; S.args = args; S.err = 0;
  for (unsigned bz = 0; bz < g[2] && !S.err; bz++) for (unsigned by = 0; by < g[1] && !S.err; by++) for (unsigned bx = 0; bx < g[0] && !S.err; bx++) {
    S.b = Block{(int)bx, (int)by, (int)bz, (int)b[0], (int)b[1], (int)b[2], (int)g[0], (int)g[1], (int)g[2], dm + len - ((dyn + 15) & ~15ull)};
    memset(dm, 0xff, len);
    S.th.assign(n, Thread()); copies.assign(n, {}); S.w.assign((n + 31) / 32, Warp()); S.at_barrier = S.done = 0;
    for (int i = 0; i < n; i++) {
      Thread &t = S.th[i];
      t.tx = i % b[0]; t.ty = i / b[0] % b[1]; t.tz = i / (b[0] * b[1]); t.lane = i & 31; t.blk = &S.b;
      t.sp = fiber_init(S.stacks + kStack * (i + 1), fiber_main);
      S.w[i >> 5].n++;
      ord[i] = order_mode == 1 ? n - 1 - i : i;
    }
    while (S.done < n && !S.err) {
      bool ran = false;
      auto step = [&](int i) { Thread &t = S.th[i]; if (t.state) return false; cur = &t; emu_switch(&sched_sp, t.sp); return ran = true; };
      if (order_mode < 2) { for (int i = 0; i < n; i++) step(ord[i]); }
      else { // rand: let one warp run as far as it can while the others stand still
        int nw = (n + 31) / 32, w0 = rnd() % nw;
        for (int j = 0; j < nw && !ran; j++) {
          int w = (w0 + j) % nw, lo = w * 32, m = n - lo < 32 ? n - lo : 32, r = rnd() % m, more;
          do { more = 0; for (int i = 0; i < m; i++) more |= step(lo + (i + r) % m); } while (more);
        }
      }
      if (!ran && S.done < n) S.err = S.at_barrier ? "barrier divergence: some threads wait at a block barrier, others have exited or wait elsewhere"
                                                   : "warp divergence: some lanes wait at a warp collective that others never reach";
    }
  }
  munmap(dm, len + pg);
  return S.err;
}
} // namespace emu
using namespace emu;

// ------------------------------------------------------------ driver state
struct CUctx_st { CUdevice dev; unsigned flags; };
struct Fn;
struct CUmod_st { std::map<std::string, Fn *> fn; };
struct CUfunc_st { const Kernel *k; int max_dyn; };
struct Fn : CUfunc_st {};
struct CUevent_st { uint64_t queued = 0, done = 0; double t = 0; CUstream at = 0; CUgraph cap = 0; };
struct Op { std::function<CUresult()> run; CUevent wait = 0; uint64_t gen = 0; CUevent rec = 0; };
struct CUgraph_st { std::vector<Op> ops; bool bad = false; CUstream origin; };
struct CUgraphExec_st { std::vector<Op> ops; };
struct CUstream_st { std::deque<Op> q; unsigned flags = 0; int prio = 0; CUgraph cap = 0; bool running = false; };

static std::recursive_mutex mu;
#define LOCK std::lock_guard<std::recursive_mutex> lock_(mu)
static bool inited; static thread_local std::vector<CUcontext> ctxs;
static CUresult sticky; static long launches; // of kernels and graphs, recording included
extern "C" long minfer_emu_launches() { return launches; }
 static bool lazy = true; static int cc = 80; static size_t memcap = 4ull << 30, memused;
static CUctx_st primary; static int primary_refs;
static CUstream_st null_stream; static std::vector<CUstream> streams;
struct Alloc { size_t n, map; char *base; bool host; };
static std::map<uintptr_t, Alloc> allocs;
static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e3 + t.tv_nsec * 1e-6; }
static CUresult fail(const char *what, CUresult r) { fprintf(stderr, "gpuemu: %s\n", what); return r; }
#define NEED_CTX LOCK; if (!inited) return CUDA_ERROR_NOT_INITIALIZED; if (ctxs.empty() || !ctxs.back()) return CUDA_ERROR_INVALID_CONTEXT; if (sticky) return sticky
#define E extern "C" __attribute__((visibility("default"))) CUresult

static Alloc *find(uintptr_t p, size_t n) {
  auto it = allocs.upper_bound(p);
  if (it == allocs.begin()) return 0;
  --it;
  return p + n <= it->first + it->second.n ? &it->second : 0;
}
static CUresult alloc(uintptr_t *out, size_t n, bool host) {
  if (!n) return CUDA_ERROR_INVALID_VALUE;
  if (!host && memused + n > memcap) return CUDA_ERROR_OUT_OF_MEMORY;
  size_t r = (n + 255) & ~255ull, pg = 4096, len = (r + pg - 1) / pg * pg;
  char *b = (char *)mmap(0, len + 2 * pg, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (b == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  mprotect(b + pg, len, PROT_READ | PROT_WRITE);
  memset(b + pg, 0xff, len); // fresh memory is NaNs
  uintptr_t p = (uintptr_t)b + pg + len - r; // overruns meet the guard page
  allocs[p] = Alloc{n, len + 2 * pg, b, host};
  if (!host) memused += n;
  *out = p;
  return CUDA_SUCCESS;
}
static CUresult release(uintptr_t p, bool host) {
  auto it = allocs.find(p);
  if (it == allocs.end() || it->second.host != host) return CUDA_ERROR_INVALID_VALUE;
  if (!host) memused -= it->second.n;
  munmap(it->second.base, it->second.map);
  allocs.erase(it);
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------ streams
static CUstream S_(CUstream s) { return s == 0 || s == (CUstream)1 || s == (CUstream)2 ? &null_stream : s; }
static bool known(CUstream s) { if (s == &null_stream) return true; for (auto t : streams) if (t == s) return true; return false; }
static void drain(CUstream s, size_t upto = SIZE_MAX) { // runs queued work in order
  if (s->running) return;
  s->running = true;
  while (!s->q.empty() && upto--) {
    Op op = s->q.front();
    if (op.wait && op.wait->done < op.gen && op.wait->at && op.wait->at != s) { // run the other stream up to that record
      CUstream o = op.wait->at; size_t i = 0;
      for (; i < o->q.size(); i++) if (o->q[i].rec == op.wait && o->q[i].gen >= op.gen) { drain(o, i + 1); break; }
    }
    s->q.pop_front();
    if (op.run && !sticky) { CUresult r = op.run(); if (r) sticky = r; }
    if (op.rec) { op.rec->done = op.gen; op.rec->t = now(); }
  }
  s->running = false;
}
static void drain_all() { drain(&null_stream); for (auto s : streams) drain(s); }
static CUresult push(CUstream s, Op op) {
  s = S_(s);
  if (!known(s)) return CUDA_ERROR_INVALID_HANDLE;
  if (s->cap) { if (op.rec) op.rec->cap = s->cap; s->cap->ops.push_back(op); return CUDA_SUCCESS; }
  if (s == &null_stream) { for (auto t : streams) { if (t->cap) { t->cap->bad = true; return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; } if (!(t->flags & CU_STREAM_NON_BLOCKING)) drain(t); } }
  else if (!(s->flags & CU_STREAM_NON_BLOCKING)) drain(&null_stream);
  s->q.push_back(op);
  if (!lazy) drain(s);
  return lazy ? CUDA_SUCCESS : sticky;
}
static CUresult no_capture() { // a call that may not happen while a stream is captured
  for (auto s : streams) if (s->cap) { s->cap->bad = true; return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; }
  return CUDA_SUCCESS;
}
static CUresult copy(void *d, const void *s, size_t n, bool dd, bool ds) {
  if (dd && !find((uintptr_t)d, n)) return fail("copy to an address outside device memory", CUDA_ERROR_INVALID_VALUE);
  if (ds && !find((uintptr_t)s, n)) return fail("copy from an address outside device memory", CUDA_ERROR_INVALID_VALUE);
  memmove(d, s, n);
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------ init, devices, contexts
E cuInit(unsigned) {
  LOCK; inited = true;
  if (const char *e = getenv("GPUEMU_STREAMS")) lazy = strcmp(e, "eager") != 0;
  if (const char *e = getenv("GPUEMU_CC")) cc = atoi(e);
  if (const char *e = getenv("GPUEMU_DROP")) sscanf(e, "%63[^:]:%d", drop_file, &drop_line);
  if (const char *e = getenv("GPUEMU_MEM_MB")) memcap = (size_t)atoi(e) << 20;
  if (const char *e = getenv("GPUEMU_ORDER")) { order_mode = !strcmp(e, "rev") ? 1 : !strncmp(e, "rand", 4) ? 2 : 0; if (e[4 * (order_mode == 2)] == ':') rng ^= strtoull(e + 5, 0, 10) * 2654435761u; }
  if (const char *e = getenv("GPUEMU_KERNELS")) if (!dlopen(e, RTLD_NOW)) { fprintf(stderr, "gpuemu: %s\n", dlerror()); return CUDA_ERROR_NOT_INITIALIZED; }
  return CUDA_SUCCESS;
}
E cuDriverGetVersion(int *v) { *v = 12020; return CUDA_SUCCESS; }
E cuDeviceGetCount(int *n) { *n = 2; return CUDA_SUCCESS; }
E cuDeviceGet(CUdevice *d, int i) { if (i < 0 || i > 1) return CUDA_ERROR_INVALID_DEVICE; *d = i; return CUDA_SUCCESS; }
E cuDeviceGetName(char *s, int n, CUdevice) { snprintf(s, n, "CPU emulation of sm_%d", cc); return CUDA_SUCCESS; }
E cuDeviceGetUuid(CUuuid *u, CUdevice) { memset(u, 7, sizeof *u); return CUDA_SUCCESS; }
E cuDeviceTotalMem(size_t *n, CUdevice) { *n = memcap; return CUDA_SUCCESS; }
E cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice) {
  switch ((int)a) {
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *v = 1024; break;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *v = 64; break;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *v = 0x7fffffff; break;
  case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *v = 65535; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *v = 48 << 10; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *v = (cc == 75 ? 64 : cc == 80 ? 163 : cc >= 90 ? 227 : 99) << 10; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *v = 100 << 10; break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *v = 32; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *v = 4; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = cc / 10; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *v = cc % 10; break;
  case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *v = 1; break;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *v = 1536; break;
  default: *v = 0;
  }
  return CUDA_SUCCESS;
}
E cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) { LOCK; if (!inited) return CUDA_ERROR_NOT_INITIALIZED; primary_refs++; *c = &primary; return CUDA_SUCCESS; }
E cuDevicePrimaryCtxRelease(CUdevice) { LOCK; if (!primary_refs) return CUDA_ERROR_INVALID_CONTEXT; if (!--primary_refs) sticky = CUDA_SUCCESS; return CUDA_SUCCESS; }
E cuCtxCreate(CUcontext *c, unsigned f, CUdevice d) { LOCK; if (!inited) return CUDA_ERROR_NOT_INITIALIZED; *c = new CUctx_st{d, f}; ctxs.push_back(*c); return CUDA_SUCCESS; }
E cuCtxDestroy(CUcontext c) { LOCK; drain_all(); for (auto &x : ctxs) if (x == c) x = 0; if (c != &primary) delete c; return CUDA_SUCCESS; }
E cuCtxSetCurrent(CUcontext c) { if (ctxs.empty()) ctxs.push_back(c); else ctxs.back() = c; return CUDA_SUCCESS; }
E cuCtxPushCurrent(CUcontext c) { ctxs.push_back(c); return CUDA_SUCCESS; }
E cuCtxPopCurrent(CUcontext *c) { if (ctxs.empty()) return CUDA_ERROR_INVALID_CONTEXT; if (c) *c = ctxs.back(); ctxs.pop_back(); return CUDA_SUCCESS; }
E cuCtxGetCurrent(CUcontext *c) { *c = ctxs.empty() ? 0 : ctxs.back(); return CUDA_SUCCESS; }
E cuCtxGetDevice(CUdevice *d) { NEED_CTX; *d = 0; return CUDA_SUCCESS; }
E cuCtxGetFlags(unsigned *f) { NEED_CTX; *f = ctxs.back()->flags; return CUDA_SUCCESS; }
E cuCtxSynchronize() { NEED_CTX; if (CUresult r = no_capture()) return r; drain_all(); return sticky; }
E cuCtxGetStreamPriorityRange(int *a, int *b) { *a = 0; *b = -1; return CUDA_SUCCESS; }

// ------------------------------------------------------------ modules
static CUresult load(CUmodule *m, const char *ptx) {
  int sm = 0, ver = 0; const char *p = strstr(ptx, ".target sm_"); if (p) sm = atoi(p + 11);
  if (!(p = strstr(ptx, ".version ")) || !sm) return CUDA_ERROR_INVALID_PTX;
  ver = atoi(p + 9);
  if (ver > 8) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  if (sm > cc) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  CUmodule r = new CUmod_st;
  for (p = ptx; (p = strstr(p, ".entry ")); ) {
    p += 7; const char *e = p + strcspn(p, "( \n\t"); std::string name(p, e);
    const Kernel *k = kernels; while (k && name != k->name) k = k->next;
    if (!k) { fprintf(stderr, "gpuemu: PTX has %s, the host build has not\n", name.c_str()); return CUDA_ERROR_INVALID_PTX; }
    std::vector<int> sz; const char *q = strchr(e, '('), *end = strchr(e, ')'), *body = strchr(e, '{');
    if (q && end && body && q < body) while ((q = strstr(q, ".param ")) && q < end) {
      q += 7; int al = 0; if (!strncmp(q, ".align", 6)) { al = 1; q = strchr(q + 7, '.'); }
      int bits = atoi(q + 2); int n = bits / 8; if (al) { const char *br = strchr(q, '['); n *= atoi(br + 1); } sz.push_back(n);
    }
    bool ok = (int)sz.size() == k->nparam; for (int i = 0; ok && i < k->nparam; i++) ok = sz[i] == k->size[i];
    if (!ok) { fprintf(stderr, "gpuemu: parameters of %s differ between the PTX and the host build\n", name.c_str()); return CUDA_ERROR_INVALID_PTX; }
    Fn *f = new Fn; f->k = k; f->max_dyn = 48 << 10; r->fn[name] = f;
  }
  *m = r; return CUDA_SUCCESS;
}
E cuModuleLoadData(CUmodule *m, const void *img) { NEED_CTX; return load(m, (const char *)img); }
E cuModuleLoadDataEx(CUmodule *m, const void *img, unsigned, CUjit_option *, void **) { NEED_CTX; return load(m, (const char *)img); }
E cuModuleUnload(CUmodule m) { NEED_CTX; drain_all(); for (auto &f : m->fn) delete f.second; delete m; return CUDA_SUCCESS; }
E cuModuleGetFunction(CUfunction *f, CUmodule m, const char *n) { NEED_CTX; auto it = m->fn.find(n); if (it == m->fn.end()) return CUDA_ERROR_NOT_FOUND; *f = it->second; return CUDA_SUCCESS; }
E cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) { *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? f->max_dyn : 0; return CUDA_SUCCESS; }
E cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { NEED_CTX; int mx; cuDeviceGetAttribute(&mx, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0); if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) { if (v > mx) return CUDA_ERROR_INVALID_VALUE; f->max_dyn = v; } return CUDA_SUCCESS; }
E cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned dyn, CUstream s, void **params, void **extra) {
  NEED_CTX;
  if (extra || !gx || !gy || !gz || !bx || !by || !bz || gy > 65535 || gz > 65535 || bz > 64) return CUDA_ERROR_INVALID_VALUE;
  if ((uint64_t)bx * by * bz > (uint64_t)f->k->threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if ((int)dyn > f->max_dyn) return CUDA_ERROR_INVALID_VALUE;
  launches++;
  const Kernel *k = f->k;
  std::vector<uint64_t> v(2 * k->nparam); // the driver copies the arguments now
  for (int i = 0; i < k->nparam; i++) memcpy(&v[2 * i], params[i], k->size[i]);
  return push(s, Op{[=]() -> CUresult {
    void *a[32];
    for (int i = 0; i < k->nparam; i++) {
      a[i] = (void *)&v[2 * i];
      if (k->isptr[i] && v[2 * i] && !find(v[2 * i], 1)) { fprintf(stderr, "gpuemu: %s: argument %d is no device pointer\n", k->name, i); return CUDA_ERROR_ILLEGAL_ADDRESS; }
    }
    const unsigned g[3] = {gx, gy, gz}, b[3] = {bx, by, bz};
    if (const char *e = run_kernel(k, g, b, dyn, a)) { fprintf(stderr, "gpuemu: %s: %s\n", k->name, e); return CUDA_ERROR_LAUNCH_FAILED; }
    return CUDA_SUCCESS;
  }});
}
E cuLaunchHostFunc(CUstream s, CUhostFn fn, void *u) { NEED_CTX; return push(s, Op{[=] { fn(u); return CUDA_SUCCESS; }}); }
E cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction, int bs, size_t) { *n = 1536 / bs; return CUDA_SUCCESS; }

// ------------------------------------------------------------ memory
E cuMemGetInfo(size_t *f, size_t *t) { NEED_CTX; *t = memcap; *f = memcap - memused; return CUDA_SUCCESS; }
E cuMemAlloc(CUdeviceptr *p, size_t n) { NEED_CTX; if (CUresult r = no_capture()) return r; uintptr_t u = 0; CUresult r = alloc(&u, n, false); *p = u; return r; }
E cuMemFree(CUdeviceptr p) { NEED_CTX; if (!p) return CUDA_SUCCESS; if (CUresult r = no_capture()) return r; drain_all(); return release(p, false); }
E cuMemHostAlloc(void **p, size_t n, unsigned) { NEED_CTX; return alloc((uintptr_t *)p, n, true); }
E cuMemAllocHost(void **p, size_t n) { return cuMemHostAlloc(p, n, 0); }
E cuMemFreeHost(void *p) { NEED_CTX; drain_all(); return release((uintptr_t)p, true); }
E cuMemcpyHtoD(CUdeviceptr d, const void *s, size_t n) { NEED_CTX; if (CUresult r = no_capture()) return r; push(0, Op{}); drain(&null_stream); return copy((void *)d, s, n, true, false); }
E cuMemcpyDtoH(void *d, CUdeviceptr s, size_t n) { NEED_CTX; if (CUresult r = no_capture()) return r; push(0, Op{}); drain(&null_stream); if (sticky) return sticky; return copy(d, (void *)s, n, false, true); }
E cuMemcpyDtoD(CUdeviceptr d, CUdeviceptr s, size_t n) { NEED_CTX; return push(0, Op{[=] { return copy((void *)d, (void *)s, n, true, true); }}); }
E cuMemcpyHtoDAsync(CUdeviceptr d, const void *s, size_t n, CUstream st) {
  NEED_CTX; if (!find(d, n)) return CUDA_ERROR_INVALID_VALUE;
  Alloc *a = find((uintptr_t)s, n);
  if (a && a->host) return push(st, Op{[=] { return copy((void *)d, s, n, true, false); }}); // pinned: read later
  std::string tmp((const char *)s, n); // pageable: staged before the call returns
  return push(st, Op{[=] { return copy((void *)d, tmp.data(), n, true, false); }});
}
E cuMemcpyDtoHAsync(void *d, CUdeviceptr s, size_t n, CUstream st) {
  NEED_CTX; if (!find(s, n)) return CUDA_ERROR_INVALID_VALUE;
  Alloc *a = find((uintptr_t)d, n);
  CUresult r = push(st, Op{[=] { return copy(d, (void *)s, n, false, true); }});
  if (!r && !(a && a->host) && !S_(st)->cap) { drain(S_(st)); r = sticky; } // pageable: done on return
  return r;
}
E cuMemcpyDtoDAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) { NEED_CTX; return push(st, Op{[=] { return copy((void *)d, (void *)s, n, true, true); }}); }
E cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream st) { NEED_CTX; if (!find(d, n)) return CUDA_ERROR_INVALID_VALUE; return push(st, Op{[=] { memset((void *)d, v, n); return CUDA_SUCCESS; }}); }
E cuMemsetD32Async(CUdeviceptr d, unsigned v, size_t n, CUstream st) { NEED_CTX; if (!find(d, 4 * n)) return CUDA_ERROR_INVALID_VALUE; return push(st, Op{[=] { for (size_t i = 0; i < n; i++) ((unsigned *)d)[i] = v; return CUDA_SUCCESS; }}); }
E cuMemsetD8(CUdeviceptr d, unsigned char v, size_t n) { return cuMemsetD8Async(d, v, n, 0); }
E cuMemsetD32(CUdeviceptr d, unsigned v, size_t n) { return cuMemsetD32Async(d, v, n, 0); }

// ------------------------------------------------------------ streams and events
E cuStreamCreateWithPriority(CUstream *s, unsigned f, int p) { NEED_CTX; *s = new CUstream_st; (*s)->flags = f; (*s)->prio = p; streams.push_back(*s); return CUDA_SUCCESS; }
E cuStreamCreate(CUstream *s, unsigned f) { return cuStreamCreateWithPriority(s, f, 0); }
E cuStreamDestroy(CUstream s) { NEED_CTX; for (size_t i = 0; i < streams.size(); i++) if (streams[i] == s) { drain(s); streams.erase(streams.begin() + i); delete s; return CUDA_SUCCESS; } return CUDA_ERROR_INVALID_HANDLE; }
E cuStreamSynchronize(CUstream s) { NEED_CTX; s = S_(s); if (!known(s)) return CUDA_ERROR_INVALID_HANDLE; if (s->cap) { s->cap->bad = true; return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; } drain(s); return sticky; }
E cuStreamQuery(CUstream s) { NEED_CTX; s = S_(s); if (!known(s)) return CUDA_ERROR_INVALID_HANDLE; if (s->q.empty()) return CUDA_SUCCESS; drain(s, 1); return CUDA_ERROR_NOT_READY; }
E cuEventCreate(CUevent *e, unsigned) { NEED_CTX; *e = new CUevent_st; return CUDA_SUCCESS; }
E cuEventDestroy(CUevent e) { NEED_CTX; drain_all(); delete e; return CUDA_SUCCESS; }
E cuEventRecord(CUevent e, CUstream s) { NEED_CTX; Op o; o.rec = e; o.gen = ++e->queued; e->at = S_(s); return push(s, o); }
E cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
  NEED_CTX;
  if (e->cap) { if (!S_(s)->cap) S_(s)->cap = e->cap; return S_(s)->cap == e->cap ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_MERGE; } // joins the capture
  Op o; o.wait = e; o.gen = e->queued; return push(s, o);
}
E cuEventQuery(CUevent e) { NEED_CTX; if (e->done >= e->queued) return CUDA_SUCCESS; if (e->at) drain(e->at, 1); return CUDA_ERROR_NOT_READY; }
E cuEventSynchronize(CUevent e) { NEED_CTX; if (e->done < e->queued) { CUstream o = e->at; for (size_t i = 0; i < o->q.size(); i++) if (o->q[i].rec == e) { drain(o, i + 1); break; } } return sticky; }
E cuEventElapsedTime(float *ms, CUevent a, CUevent b) { NEED_CTX; if (!a->queued || !b->queued) return CUDA_ERROR_INVALID_HANDLE; if (a->done < a->queued || b->done < b->queued) return CUDA_ERROR_NOT_READY; *ms = (float)(b->t - a->t); return CUDA_SUCCESS; }

// ------------------------------------------------------------ capture and graphs
E cuStreamBeginCapture(CUstream s, CUstreamCaptureMode) { NEED_CTX; if (S_(s) == &null_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; if (s->cap) return CUDA_ERROR_ILLEGAL_STATE; s->cap = new CUgraph_st; s->cap->origin = s; return CUDA_SUCCESS; }
E cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *st) { *st = !S_(s)->cap ? CU_STREAM_CAPTURE_STATUS_NONE : S_(s)->cap->bad ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE; return CUDA_SUCCESS; }
E cuStreamEndCapture(CUstream s, CUgraph *g) {
  NEED_CTX; CUgraph c = s->cap; *g = 0;
  if (!c) return CUDA_ERROR_ILLEGAL_STATE;
  if (c->origin != s) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  for (auto t : streams) if (t->cap == c) t->cap = 0;
  if (c->bad) { delete c; return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED; }
  for (auto &o : c->ops) if (o.rec) { o.rec->cap = 0; o.rec = 0; }
  *g = c; return CUDA_SUCCESS;
}
E cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long) { NEED_CTX; *x = new CUgraphExec_st{g->ops}; return CUDA_SUCCESS; }
E cuGraphLaunch(CUgraphExec x, CUstream s) { NEED_CTX; launches++; for (auto &o : x->ops) if (CUresult r = push(s, o)) return r; return CUDA_SUCCESS; }
E cuGraphExecDestroy(CUgraphExec x) { NEED_CTX; drain_all(); delete x; return CUDA_SUCCESS; }
E cuGraphDestroy(CUgraph g) { NEED_CTX; delete g; return CUDA_SUCCESS; }
static const struct { CUresult r; const char *name, *text; } errors[] = {
  {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
  {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
  {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
  {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
  {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
  {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
  {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
  {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
  {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
};
E cuGetErrorString(CUresult r, const char **s) { *s = "unknown error"; for (auto &e : errors) if (e.r == r) *s = e.text; return CUDA_SUCCESS; }
E cuGetErrorName(CUresult r, const char **s) { *s = "unknown"; for (auto &e : errors) if (e.r == r) *s = e.name; return CUDA_SUCCESS; }
E cuCtxGetApiVersion(CUcontext, unsigned *v) { *v = 3020; return CUDA_SUCCESS; }
E cuMemGetAddressRange(CUdeviceptr *b, size_t *n, CUdeviceptr p) { LOCK; auto it = allocs.upper_bound(p); if (it == allocs.begin()) return CUDA_ERROR_NOT_FOUND; --it; if (p >= it->first + it->second.n) return CUDA_ERROR_NOT_FOUND; *b = it->first; *n = it->second.n; return CUDA_SUCCESS; }
E cuStreamGetFlags(CUstream s, unsigned *f) { *f = S_(s)->flags; return CUDA_SUCCESS; }
E cuStreamGetPriority(CUstream s, int *p) { *p = S_(s)->prio; return CUDA_SUCCESS; }
E cuCtxResetPersistingL2Cache() { return CUDA_SUCCESS; }
E cuMemcpy(CUdeviceptr d, CUdeviceptr s, size_t n) { return cuMemcpyDtoD(d, s, n); }
E cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, CUstream st) { return cuMemcpyDtoDAsync(d, s, n, st); }
