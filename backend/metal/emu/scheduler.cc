//go:build metalemu

// The scheduler runs the threads of a threadgroup as fibers, in an order that is set, and finds what would hang a GPU or spoil its
// memory.
#include "scheduler.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vector>
#include "include/emulation.h"

namespace emu {

extern "C" void metalemu_switch(void **save, void *to);
#if defined(__x86_64__)
asm(".text\n.globl metalemu_switch\n.hidden metalemu_switch\n.type metalemu_switch,@function\nmetalemu_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
static void *prepare_stack(char *top, void (*f)()) {
  void **s = (void **)((uintptr_t)top & ~15ull);
  *--s = 0; // so that the stack is aligned as after a call
  *--s = (void *)f;
  for (int i = 0; i < 6; i++) *--s = 0;
  return s;
}
#elif defined(__aarch64__)
asm(".text\n.globl metalemu_switch\n.hidden metalemu_switch\n.type metalemu_switch,@function\nmetalemu_switch:\n"
    "sub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
    "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
    "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\nldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
    "add sp,sp,#160\nret\n");
static void *prepare_stack(char *top, void (*f)()) {
  char *s = (char *)((uintptr_t)top & ~15ull) - 160;
  memset(s, 0, 160);
  *(void **)(s + 88) = (void *)f;
  return s;
}
#endif

enum { ready, at_barrier, at_collective, done };

const size_t stack_size = 64 << 10;
const size_t canary = 64; // bytes after each piece of threadgroup memory

struct Simdgroup {
  int arrived, lanes;
  size_t size[2];
  unsigned char buffer[2][32 * 64];
};

// State of the group that runs. One dispatch runs at a time.
static struct {
  Group group;
  std::vector<Thread> threads;
  std::vector<Simdgroup> simdgroups;
  char *stacks;
  size_t waiting, finished;
  const Kernel *kernel;
  void *const *buffers;
  void *shared[METALEMU_SHARED];
  const char *error;
  void *scheduler;
  unsigned char arena[METALEMU_ARENA] __attribute__((aligned(64)));
  size_t reserved; // bytes of the arena that dispatches set aside
  struct Piece {
    size_t at, size;
  } pieces[64];
  int count;
} S;

static Thread *current;

static void wait() {
  Thread *t = current;
  metalemu_switch(&t->stack, S.scheduler);
}

static void fail(const char *text) {
  if (!S.error) S.error = text;
  current->state = done;
  wait();
}

static void barrier() {
  current->state = at_barrier;
  if (++S.waiting == S.threads.size()) { // the last one opens it
    S.waiting = 0;
    for (auto &t : S.threads) {
      if (t.state == at_barrier) t.state = ready;
    }
    return;
  }
  wait();
}

static const void *gather(const void *mine, size_t size) {
  Thread *t = current;
  const size_t first = t->index & ~31u;
  Simdgroup &w = S.simdgroups[first / 32];
  const int parity = t->collectives++ & 1;
  if (w.arrived && w.size[parity] != size) fail("lanes of a simdgroup are at different collectives");
  w.size[parity] = size;
  memcpy(w.buffer[parity] + t->lane * size, mine, size);
  if (++w.arrived == w.lanes) {
    w.arrived = 0;
    for (int i = 0; i < w.lanes; i++) {
      if (S.threads[first + i].state == at_collective) S.threads[first + i].state = ready;
    }
    return w.buffer[parity];
  }
  t->state = at_collective;
  wait();
  return w.buffer[parity];
}

// place sets a piece of the arena aside and returns where the next may begin.
static size_t place(size_t at, size_t size) {
  const size_t end = at + ((size + 15) & ~(size_t)15);
  if (end + canary > METALEMU_ARENA || S.count == 64) return 0;
  bool known = false;
  for (int i = 0; i < S.count; i++) known |= S.pieces[i].at == at;
  if (!known) S.pieces[S.count++] = {at, size};
  return end + canary;
}

// shared returns the memory of a declaration. All threads pass the same declarations in the same order.
static void *shared(size_t size) {
  Thread *t = current;
  const size_t at = t->shared, next = place(at, size);
  if (!next) fail("more threadgroup memory than the emulator has");
  t->shared = next;
  return S.arena + at;
}

static bool arena_spoilt(size_t limit) {
  size_t total = 0;
  for (int i = 0; i < S.count; i++) {
    const auto &p = S.pieces[i];
    total += (p.size + 15) & ~(size_t)15;
    for (size_t b = p.at + p.size; b < p.at + ((p.size + 15) & ~(size_t)15) + canary; b++) {
      if (S.arena[b] != 0xff) {
        S.error = "write beyond a piece of threadgroup memory";
        return true;
      }
    }
  }
  if (total > limit) S.error = "more threadgroup memory than the device has";
  return total > limit;
}

static int order;
static uint64_t dice = 88172645463325252ull;
static unsigned roll() {
  dice ^= dice << 13;
  dice ^= dice >> 7;
  dice ^= dice << 17;
  return (unsigned)(dice >> 32);
}

// An access to memory that no buffer has ends the dispatch. Faults of others go to whoever had them before.
static thread_local volatile bool running;
static thread_local sigjmp_buf escape;
static struct sigaction before[2];

static void fault(int sig, siginfo_t *info, void *context) {
  if (running) siglongjmp(escape, 1);
  const struct sigaction &old = before[sig == SIGBUS];
  if (old.sa_flags & SA_SIGINFO) old.sa_sigaction(sig, info, context);
  else signal(sig, SIG_DFL);
}

static void entry() {
  S.kernel->call(S.buffers, S.shared);
  current->state = done;
  S.finished++;
  wait();
}

static bool step(size_t i) {
  Thread &t = S.threads[i];
  if (t.state != ready || S.error) return false;
  current = &t;
  metalemu_switch(&S.scheduler, t.stack);
  return true;
}

// advance lets threads run, and reports whether any could.
static bool advance() {
  const size_t n = S.threads.size();
  bool ran = false;
  if (order == METALEMU_FORWARD) {
    for (size_t i = 0; i < n; i++) ran |= step(i);
    return ran;
  }
  if (order == METALEMU_REVERSE) {
    for (size_t i = n; i-- > 0;) ran |= step(i);
    return ran;
  }
  // One simdgroup runs as far as it can while the others stand still.
  const size_t count = S.simdgroups.size(), first = roll() % count;
  for (size_t j = 0; j < count && !ran; j++) {
    const size_t lo = (first + j) % count * 32, lanes = S.simdgroups[lo / 32].lanes, from = roll() % lanes;
    for (bool more = true; more; ran |= more) {
      more = false;
      for (size_t i = 0; i < lanes; i++) more |= step(lo + (i + from) % lanes);
    }
  }
  return ran;
}

static void run_group(const uint32_t threads[3]) {
  const size_t n = (size_t)threads[0] * threads[1] * threads[2];
  memset(S.arena, 0xff, sizeof S.arena); // NaN
  S.threads.assign(n, Thread());
  S.simdgroups.assign((n + 31) / 32, Simdgroup());
  S.waiting = S.finished = 0;
  for (size_t i = 0; i < n; i++) {
    Thread &t = S.threads[i];
    t.at[0] = i % threads[0];
    t.at[1] = i / threads[0] % threads[1];
    t.at[2] = i / (threads[0] * threads[1]);
    t.index = i;
    t.lane = i & 31;
    t.shared = S.reserved;
    t.group = &S.group;
    t.stack = prepare_stack(S.stacks + stack_size * (i + 1), entry);
    S.simdgroups[i / 32].lanes++;
  }
  while (S.finished < n && !S.error) {
    if (advance() || S.finished == n || S.error) continue;
    S.error = S.waiting ? "some threads wait at a threadgroup_barrier that others never reach"
                        : "some lanes wait at a collective of their simdgroup that others never reach";
  }
}

static const char *run_all(const uint32_t groups[3], const uint32_t threads[3], size_t limit) {
  for (uint32_t z = 0; z < groups[2]; z++) {
    for (uint32_t y = 0; y < groups[1]; y++) {
      for (uint32_t x = 0; x < groups[0]; x++) {
        // Groups may run in any order as well.
        const bool back = order == METALEMU_REVERSE;
        S.group = Group{{back ? groups[0] - 1 - x : x, back ? groups[1] - 1 - y : y, back ? groups[2] - 1 - z : z},
                        {threads[0], threads[1], threads[2]},
                        {groups[0], groups[1], groups[2]}};
        run_group(threads);
        if (S.error || arena_spoilt(limit)) return S.error;
      }
    }
  }
  return nullptr;
}

static const Services services = {&current, barrier, gather, shared, fail};

} // namespace emu

using namespace emu;

extern "C" void metalemu_set_order(int o, uint64_t seed) {
  order = o;
  if (seed) dice = seed;
}

extern "C" const void *metalemu_load(const char *path, const char **error) {
  void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const Library *(*entry)() = so ? (const Library *(*)())dlsym(so, "metalemu_library") : nullptr;
  if (!entry) {
    *error = dlerror();
    return nullptr;
  }
  const Library *l = entry();
  l->bind(&services);
  return l;
}

extern "C" const void *metalemu_find(const void *library, const char *name) {
  const Library *l = (const Library *)library;
  for (size_t i = 0; i < l->count; i++) {
    if (!strcmp(l->kernels[i].name, name)) return &l->kernels[i];
  }
  return nullptr;
}

extern "C" const char *metalemu_run(const void *kernel, const uint32_t groups[3], const uint32_t threads[3], void *const *buffers,
                                    const size_t *shared_sizes, size_t limit) {
  const Kernel *k = (const Kernel *)kernel;
  const size_t n = (size_t)threads[0] * threads[1] * threads[2];
  if (n == 0 || n > 1024) return "a threadgroup of no threads, or of more than 1024";
  for (int i = 0; i < METALEMU_BUFFERS; i++) {
    if (k->buffers >> i & 1 && !buffers[i]) return "a buffer that the kernel uses is not bound";
  }
  if (!S.stacks) {
    S.stacks = (char *)mmap(nullptr, stack_size * 1024, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  S.kernel = k;
  S.buffers = buffers;
  S.error = nullptr;
  S.reserved = 0;
  S.count = 0;
  for (int i = 0; i < METALEMU_SHARED; i++) {
    S.shared[i] = nullptr;
    if (k->shared >> i & 1 && !shared_sizes[i]) return "threadgroup memory that the kernel uses has no length";
    if (!shared_sizes[i]) continue;
    S.shared[i] = S.arena + S.reserved;
    if (!(S.reserved = place(S.reserved, shared_sizes[i]))) return "more threadgroup memory than the emulator has";
  }
  struct sigaction act = {};
  act.sa_sigaction = fault;
  act.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&act.sa_mask);
  sigaction(SIGSEGV, &act, &before[0]);
  sigaction(SIGBUS, &act, &before[1]);
  const char *error;
  if (sigsetjmp(escape, 1)) {
    error = "access to memory that is in no buffer";
  } else {
    running = true;
    error = run_all(groups, threads, limit);
  }
  running = false;
  sigaction(SIGSEGV, &before[0], nullptr);
  sigaction(SIGBUS, &before[1], nullptr);
  return error;
}
