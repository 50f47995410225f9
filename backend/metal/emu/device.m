//go:build metalemu

// A Metal device as Objective-C classes that answer the messages which the backend sends, and refuse what Metal forbids. Commands
// run when somebody waits for them, or when they are committed: never both, so that work which counts on either is found.
#import <Metal/Metal.h>
#include <pthread.h>
#include <sys/mman.h>
#include "device.h"
#include "scheduler.h"

struct metalemu_settings metalemu_settings;
struct metalemu_counters metalemu_counters;
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER; // the scheduler runs one dispatch at a time

static NSError *failure(NSString *text) {
  return [NSError errorWithDomain:@"MetalEmulation" code:1 userInfo:[NSDictionary dictionaryWithObject:text forKey:NSLocalizedDescriptionKey]];
}
static void misuse(NSString *text) { [NSException raise:@"MetalMisuse" format:@"%@", text]; }

// Memory ends at a page that nobody may touch, as exactly as its alignment allows; the page before it is closed too.
enum { page = 4096, alignment = 64 };

@interface EmuBuffer : NSObject {
 @public
  char *p, *pages;
  NSUInteger n, mapped;
}
@end
@implementation EmuBuffer
+ (id)fresh:(NSUInteger)n {
  NSUInteger rounded = (n + alignment - 1) / alignment * alignment, inner = (rounded + page - 1) / page * page;
  char *pages = mmap(NULL, inner + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages + page, inner, PROT_READ | PROT_WRITE)) return nil;
  EmuBuffer *b = [EmuBuffer new];
  b->pages = pages;
  b->mapped = inner + 2 * page;
  b->p = pages + page + inner - rounded;
  b->n = n;
  memset(b->p, 0xff, rounded); // NaN
  return b;
}
- (id)init {
  metalemu_counters.objects++;
  return [super init];
}
- (void *)contents { return p; }
- (NSUInteger)length { return n; }
- (void)dealloc {
  metalemu_counters.objects--;
  if (pages) munmap(pages, mapped);
  [super dealloc];
}
@end

@interface EmuFunction : NSObject {
 @public
  NSString *name;
  const void *kernel;
}
@end
@implementation EmuFunction
- (NSString *)name { return name; }
- (void)dealloc {
  [name release];
  [super dealloc];
}
@end

@interface EmuPipeline : EmuFunction
@end
@implementation EmuPipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup { return metalemu_settings.max_threads ? metalemu_settings.max_threads : 1024; }
- (NSUInteger)threadExecutionWidth { return 32; }
@end

@interface EmuLibrary : NSObject {
 @public
  const void *library;
}
@end
@implementation EmuLibrary
- (id)newFunctionWithName:(NSString *)name {
  const void *kernel = metalemu_find(library, [name UTF8String]);
  if (!kernel) return nil;
  EmuFunction *f = [EmuFunction new];
  f->name = [name copy];
  f->kernel = kernel;
  return f;
}
@end

// A dispatch as it was encoded. It keeps its buffers alive, as a command buffer of Metal does.
@interface EmuDispatch : NSObject {
 @public
  EmuPipeline *pipeline;
  id buffers[METALEMU_BUFFERS];
  void *at[METALEMU_BUFFERS];
  uint32_t groups[3], threads[3];
  size_t shared[METALEMU_SHARED];
  BOOL barrier; // what was encoded before has to be done first
}
@end
@implementation EmuDispatch
- (void)dealloc {
  for (int i = 0; i < METALEMU_BUFFERS; i++) [buffers[i] release];
  [pipeline release];
  [super dealloc];
}
@end

@interface EmuCommands : NSObject {
 @public
  NSMutableArray *work, *queue;
  NSError *error;
  NSUInteger status;
  BOOL open;
}
@end

@interface EmuEncoder : NSObject {
 @public
  EmuCommands *commands;
  EmuDispatch *next;
  BOOL ended, concurrent, barrier;
}
@end
@implementation EmuEncoder
- (id)init {
  next = [EmuDispatch new];
  return [super init];
}
- (void)dealloc {
  if (!ended) misuse(@"an encoder was given up before endEncoding");
  [next release];
  [super dealloc];
}
- (void)setComputePipelineState:(EmuPipeline *)p {
  if (!p) misuse(@"setComputePipelineState: nil");
  [p retain];
  [next->pipeline release];
  next->pipeline = p;
}
- (void)bind:(EmuBuffer *)b at:(void *)at index:(NSUInteger)i {
  if (ended) misuse(@"an encoder was used after endEncoding");
  if (i >= METALEMU_BUFFERS) misuse(@"there is no buffer of this index");
  [b retain];
  [next->buffers[i] release];
  next->buffers[i] = b;
  next->at[i] = at;
}
- (void)setBuffer:(EmuBuffer *)b offset:(NSUInteger)offset atIndex:(NSUInteger)i {
  if (b && offset >= b->n) misuse(@"offset beyond the buffer");
  [self bind:b at:b ? b->p + offset : NULL index:i];
}
- (void)setBytes:(const void *)p length:(NSUInteger)n atIndex:(NSUInteger)i {
  if (n == 0 || n > 4096) misuse(@"setBytes of no bytes, or of more than 4 KiB");
  EmuBuffer *b = [EmuBuffer fresh:n];
  memcpy(b->p, p, n);
  [self bind:b at:b->p index:i];
  [b release];
}
- (void)setThreadgroupMemoryLength:(NSUInteger)n atIndex:(NSUInteger)i {
  if (n % 16) misuse(@"the length of threadgroup memory has to be a multiple of 16");
  if (i >= METALEMU_SHARED) misuse(@"there is no threadgroup memory of this index");
  next->shared[i] = n;
}
- (void)memoryBarrierWithScope:(NSUInteger)scope {
  if (!(scope & 1)) misuse(@"a barrier for something else than buffers");
  barrier = YES;
}
- (void)dispatchThreadgroups:(MTLSize)g threadsPerThreadgroup:(MTLSize)t {
  if (ended) misuse(@"an encoder was used after endEncoding");
  if (!next->pipeline) misuse(@"a dispatch without a pipeline");
  if (!g.width || !g.height || !g.depth) misuse(@"a dispatch of no threadgroups");
  if (t.width * t.height * t.depth > [next->pipeline maxTotalThreadsPerThreadgroup]) misuse(@"more threads in a threadgroup than the pipeline can have");
  EmuDispatch *d = [EmuDispatch new];
  d->pipeline = [next->pipeline retain];
  for (int i = 0; i < METALEMU_BUFFERS; i++) {
    d->buffers[i] = [next->buffers[i] retain];
    d->at[i] = next->at[i];
  }
  memcpy(d->shared, next->shared, sizeof d->shared);
  d->groups[0] = g.width, d->groups[1] = g.height, d->groups[2] = g.depth;
  d->threads[0] = t.width, d->threads[1] = t.height, d->threads[2] = t.depth;
  d->barrier = !concurrent || barrier;
  barrier = NO;
  [commands->work addObject:d];
  [d release];
}
- (void)endEncoding {
  ended = YES;
  commands->open = NO;
}
@end

@implementation EmuCommands
- (id)init {
  metalemu_counters.commands++;
  work = [NSMutableArray new];
  return [super init];
}
- (void)dealloc {
  [work release];
  [error release];
  [super dealloc];
}
- (id)computeCommandEncoderWithDispatchType:(NSUInteger)type {
  if (open) misuse(@"an encoder is open already");
  if (status) misuse(@"an encoder after commit");
  EmuEncoder *e = [[EmuEncoder new] autorelease];
  e->commands = self;
  e->concurrent = type == 1;
  open = YES;
  return e;
}
- (id)computeCommandEncoder { return [self computeCommandEncoderWithDispatchType:0]; }
- (void)commit {
  if (open) misuse(@"commit before endEncoding");
  if (status) misuse(@"commit again");
  status = 2;
  metalemu_counters.commits++;
  [queue addObject:self];
  if (metalemu_settings.eager) [self runQueue];
}
- (void)runQueue {
  while ([queue count]) {
    EmuCommands *first = [[[queue objectAtIndex:0] retain] autorelease];
    [queue removeObjectAtIndex:0];
    [first run];
  }
}
// Dispatches between two barriers may run at the same time: they run in the opposite order.
- (void)run {
  status = 4;
  NSUInteger n = [work count];
  for (NSUInteger lo = 0, hi; lo < n; lo = hi) {
    for (hi = lo + 1; hi < n && !((EmuDispatch *)[work objectAtIndex:hi])->barrier; hi++) {
    }
    for (NSUInteger i = hi; i-- > lo;) {
      if (![self runOne:[work objectAtIndex:i]]) return;
    }
  }
  [work removeAllObjects];
}
- (BOOL)runOne:(EmuDispatch *)d {
  const char *text = NULL;
  metalemu_counters.dispatches++;
  if (metalemu_settings.fail_after && !--metalemu_settings.fail_after) text = "the emulation was told to fail";
  if (!strcmp([d->pipeline->name UTF8String], metalemu_settings.fail_kernel)) text = "the emulation was told to fail";
  if (!text) {
    pthread_mutex_lock(&running);
    text = metalemu_run(d->pipeline->kernel, d->groups, d->threads, d->at, d->shared, 32 << 10);
    pthread_mutex_unlock(&running);
  }
  if (!text) return YES;
  error = [failure([NSString stringWithFormat:@"%@: %s", d->pipeline->name, text]) retain];
  status = 5;
  [work removeAllObjects];
  return NO;
}
- (void)waitUntilCompleted {
  if (!status) misuse(@"wait before commit");
  metalemu_counters.waits++;
  [self runQueue];
}
- (NSUInteger)status { return status; }
- (NSError *)error { return error; }
@end

@interface EmuQueue : NSObject {
  NSMutableArray *queue;
}
@end
@implementation EmuQueue
- (id)init {
  queue = [NSMutableArray new];
  return [super init];
}
- (id)commandBuffer {
  EmuCommands *c = [[EmuCommands new] autorelease];
  c->queue = queue;
  return c;
}
- (void)dealloc {
  if ([queue count]) misuse(@"a queue was given up before its commands were done");
  [queue release];
  [super dealloc];
}
@end

@interface EmuDevice : NSObject
@end
@implementation EmuDevice
- (NSString *)name { return @"Metal emulation"; }
- (id)newCommandQueue { return [EmuQueue new]; }
- (BOOL)hasUnifiedMemory { return !metalemu_settings.discrete; }
- (BOOL)supportsFamily:(NSInteger)family { return metalemu_settings.family == 0 || family <= metalemu_settings.family; }
- (NSUInteger)maxBufferLength { return metalemu_settings.max_buffer ? metalemu_settings.max_buffer : 1ul << 34; }
- (NSUInteger)maxThreadgroupMemoryLength { return 32 << 10; }
- (unsigned long long)recommendedMaxWorkingSetSize { return 1ull << 34; }
- (id)newLibraryWithSource:(NSString *)source options:(id)options error:(NSError **)error {
  char *text = NULL;
  EmuLibrary *l = [EmuLibrary new];
  l->library = metalemu_compile((char *)[source UTF8String], &text);
  if (l->library) return l;
  if (error) *error = failure([NSString stringWithUTF8String:text ? text : "no reason"]);
  free(text);
  [l release];
  return nil;
}
- (id)newComputePipelineStateWithFunction:(EmuFunction *)f error:(NSError **)error {
  EmuPipeline *p = [EmuPipeline new];
  p->name = [f->name copy];
  p->kernel = f->kernel;
  return p;
}
- (id)newBufferWithLength:(NSUInteger)n options:(NSUInteger)options {
  if (!n || n > [self maxBufferLength]) return nil;
  return [EmuBuffer fresh:n];
}
- (id)newBufferWithBytesNoCopy:(void *)p length:(NSUInteger)n options:(NSUInteger)options deallocator:(id)deallocator {
  if ((uintptr_t)p % page || !n || n % page) misuse(@"newBufferWithBytesNoCopy: pointer and length have to be whole pages");
  if (deallocator) misuse(@"a deallocator for memory of others");
  if (n > [self maxBufferLength]) return nil;
  metalemu_counters.in_place++;
  EmuBuffer *b = [EmuBuffer new];
  b->p = p;
  b->n = n;
  return b;
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) { return metalemu_settings.absent ? nil : [EmuDevice new]; }

@implementation MTLCompileOptions
- (void)setFastMathEnabled:(BOOL)on {
  if (on) misuse(@"fast math: results would depend on the compiler");
}
@end
