// Data of the interpreter, shared by all its parts and, field by field, with library.py.
//
// Registers are arrays of 32 lanes, addressed by byte offset from a warp's frame R: a slot of 128
// bytes holds 32 bits a lane, one of 256 holds 64. Slot 0 is the mask of active lanes (all ones or
// zero), slot 1 the carry flag, slot 2 takes results that nobody wants. Device addresses are numbers:
// every access is checked against the table of allocations before it becomes a pointer.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8; typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64;
typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64;
typedef float f32; typedef double f64;
__extension__ typedef __int128 i128; __extension__ typedef unsigned __int128 u128;

#define LANES 32
#define EACH_LANE for (int l = 0; l < LANES; l++)
#define FULL 0xffffffffu
#define NOWHERE 0xffffffffu
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define SLOT_CARRY 128
#define SLOT_SINK 256

#define MAX_STACK 512      // reconvergence entries of a warp
#define MAX_FRAMES 48      // call depth of a warp
#define BARRIERS 16
#define HOT_PLACES 4096
#define MAX_ASYNC 64       // asynchronous copies of a warp that are kept back, where they are

// Windows of the generic address space; each is 2^40 bytes wide (isspacep compares the upper bits).
#define BASE_GLOBAL 0x7e0000000000ull
#define BASE_SHARED 0x7d0000000000ull
#define BASE_LOCAL  0x7c0000000000ull
#define BASE_PARAM  0x7b0000000000ull
#define BASE_CODE   0x7a0000000000ull

enum { SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_CONST, SPACE_PARAM, SPACE_GENERIC };
enum { RUN = 0, BLOCKED = 1, DONE = 2, YIELD = 3, FAULTED = 4 };
enum {
  FAULT_NONE, FAULT_BOUNDS, FAULT_MISALIGNED, FAULT_TRAP, FAULT_BUDGET, FAULT_DEADLOCK,
  FAULT_STACK, FAULT_DIVERGENCE, FAULT_ASSERT, FAULT_CPU_TIME, FAULT_CALL, FAULT_MEMORY,
  FAULT_READ_ONLY, FAULT_FREED,
};
enum {
  CHECK_UNINIT, CHECK_UNINIT_SHARED, CHECK_RACE, CHECK_RACE_WARP, CHECK_BARRIER, CHECK_GLOBAL, CHECK_STREAM,
  CHECK_EQUAL, CHECK_WEAK_READ, CHECKS
};
// Of loads, stores and atomics, in `fl`: volatile, relaxed, acquire or release; and a release.
enum { FL_STRONG = 256, FL_RELEASE = 512 };
enum { ACCESS_ATOMIC = 1, ACCESS_STRONG = 2 };
enum { OBSERVED = 4 };
enum { WRITE_NONE, WRITE_SOME, WRITE_ALL };
enum { ORDER_FORWARD, ORDER_REVERSE, ORDER_INTERLEAVED };

typedef struct { u16 op, fl; u32 d, a, b, c; i32 pc; i64 imm; } In;
// bypass: program counter + 1 of a barrier that some of the region's threads stopped at, or 0
typedef struct { u32 pc, rpc, mask, bypass; } Entry;
// barrier: program counter + 1 of a barrier, 0 for another .sync instruction, NOWHERE for a long loop
typedef struct { u32 pc, mask, barrier; } Parked;
// race: who accessed it (races.c), in units of 2^grain bytes; watched: whether accesses are noted there;
// was_read: whether there are reads among them
typedef struct { u64 lo, size; u32 written, stored, read_only, freed; u64 race; u32 grain, watched, was_read, unused; } Alloc;
typedef struct {
  u64 requests, sectors, lanes, wavefronts, ideal, l1_misses, bytes, tags;
} MemCount;
typedef struct { u64 count, address, block; u32 thread, other; u64 other_block, stamp; } Check;
typedef struct { u64 kind, block, address, size; i64 pc; u64 thread, space, extra; } Fault;
typedef struct {
  u64 entry, frame_bytes, const_at, const_bytes, local_bytes;
  const u8 *consts; const u32 *params;   // params: [n, (offset, words)..., m, (offset, words)...]
} Func;

typedef struct {
  char *R; u32 ret_pc, floor, act, mask, local_base, func; const u32 *site;
} Frame;

// A cp.async whose data are not there yet, for the lanes in `mask`; group: which of the lane's groups.
typedef struct { u32 mask, size, to[LANES], group[LANES]; u8 data[LANES][16]; } Async;

typedef struct {
  char *R; char *base;
  u32 live, act, mask, bar; int sp, fp, state, wid;
  u32 func, local_base, bar_dst, bar_kind, bar_mask, epoch, forced, stuck, slice, paused; int nparked;
  u64 ran, loads;   // instructions, and loads from global memory
  u64 polled; u32 polls;         // what a strong access gave last, and how often again
  u32 tick, seen, fenced;        // races.c: now; what the warp has seen; what its next strong write tells
  Async *async; u32 nasync, group[LANES], born;   // born: lanes that a thread was started in
  Parked parked[LANES];
  struct { u64 address, write; } observed[OBSERVED];   // words that strong reads met, and whose writes
  u32 nobserved;
  u32 tid[3][LANES] __attribute__((aligned(64)));
  Frame frames[MAX_FRAMES];
  Entry st[MAX_STACK];
} Warp;

// gave: warps that only arrived
typedef struct { u32 expected, arrived, waiting, popc, any, all, gave; } Barrier;

typedef struct Block {
  struct Block *next;
  u32 ctaid[3]; u64 index, first_epoch, nwarps; u32 epoch, done;
  Warp *warps; char *registers; u8 *shared, *local; u64 *stamps;
  Barrier bars[BARRIERS];
  // After a barrier of a part of the block, until the next of all: since[w][v] is the last epoch whose
  // accesses by warp v are ordered before what warp w does now.
  u32 partial, since[LANES][LANES];
  u32 barrier_tick, since_tick[LANES][LANES];   // races.c: the same in ticks
} Block;

typedef struct Races Races;

typedef struct {
  // module
  const In *code; const Func *funcs; u64 nfuncs, entry_func;
  // launch
  u64 ntid[3], nctaid[3]; const u8 *params; u64 nparams, shared_bytes, dynamic_shared, local_bytes;
  u64 register_bytes, cooperative, order, workspace;
  // memory
  u8 *arena, *shadow, *touched; Alloc *allocs; u64 nallocs, arena_bytes;
  // what to watch
  u64 count, checks, nblocks_code, ninstructions, l1_sectors;
  i64 budget; u64 cpu_ns, threads, max_resident;
  // results
  u64 *block_warps, *block_lanes; MemCount *mem; Check *check; Fault fault;
  u64 executed, branches, divergent, dram_read, dram_write, barriers, longest_warp, longest_block;
  u64 most_loads_warp, most_loads_block, hottest_atomics, output_bytes;
  u8 *output; u64 output_size;
  // races: the last tick before the launch, the first whose accesses may race, those of earlier work
  // that nothing orders before the launch (from, to], and the last tick so far
  u64 first_tick, race_since; const u64 *unordered; u64 nunordered, tick;
  // what a race may change: the warps of all blocks whose reads race, and races that are no such read;
  // in a repetition, what these warps read instead of the arena
  u8 *readers; u64 conflicts; const u8 *instead;
  u64 noise;   // what clocks, and the names of grids and processors, are made of
  // inner
  u64 next_block; Races *races; i32 stop;
} Launch;

typedef struct {
  Launch *L; Block *blk; i64 left; i64 slice;
  u64 *block_warps, *block_lanes; MemCount *mem; u32 *alloc_cache; u64 *l1;
  u64 branches, divergent, dram_read, dram_write, barriers, longest_warp, longest_block;
  u64 most_loads_warp, most_loads_block;
  u32 *hot;   // atomics by address, HOT_PLACES sums
  Block *parked, *parked_last, *pool; u64 nparked;
  struct Slab *slabs; char *slab, *slab_end; u64 nblocks;   // memory of blocks; blocks made so far
  u64 started_ns; u32 epoch, block_number, victim, spins;
  u64 clock_reads, clock_ahead;
  u32 access, polled;   // strength of the access that is made; warps that found nothing new in this turn
} __attribute__((aligned(128))) Worker;   // no cache line of two: each counts at every instruction

// Record the first fault of a launch and stop all workers. Always returns FAULTED.
int raise_fault(Worker *k, Warp *w, u32 kind, i32 pc, int lane, u64 address, u32 size, u32 space);
void note_check(Worker *k, int kind, i32 pc, u32 thread, u32 other, u64 address);

int open_races(Launch *L);
void close_races(Launch *L);
void race_start(Worker *k, Block *b, u64 warps);
void race_barrier(Worker *k, Block *b, u64 warps, u32 got, u32 gave, int all);
void race_fence(Worker *k, Warp *w);
void race_sync(Worker *k, Warp *w, const In *I, u64 address, int reads, int writes);
int is_reader(const Worker *k, const Warp *w);
void race_read(Worker *k, Warp *w, const In *I, int lane, Alloc *a, u64 address, u32 size);
void race_write(Worker *k, Warp *w, const In *I, int lane, Alloc *a, u64 address, u32 size, const u8 *bytes,
                u32 unit, u32 flags);

int memory_load(Worker *k, Warp *w, const In *I);
int memory_store(Worker *k, Warp *w, const In *I);
int shared_load(Worker *k, Warp *w, const In *I);
int shared_store(Worker *k, Warp *w, const In *I);
int local_access(Worker *k, Warp *w, const In *I, int store);
int memory_atomic(Worker *k, Warp *w, const In *I);
int async_copy(Worker *k, Warp *w, const In *I);
void async_group(Worker *k, Warp *w, const In *I);
u8 *translate(Worker *k, Warp *w, const In *I, int lane, u64 address, u32 size, int space, int store);
void param_load(Worker *k, Warp *w, const In *I);
void frame_param(Warp *w, const In *I, int store);
void warp_shuffle(Warp *w, const In *I);
void warp_vote(Warp *w, const In *I);
void warp_match(Warp *w, const In *I);
void warp_reduce(Warp *w, const In *I);
void special_register(Worker *k, Warp *w, const In *I);
int warp_matrix(Worker *k, Warp *w, const In *I);
int device_printf(Worker *k, Warp *w, const In *I);
void race_store(Worker *k, Warp *w, const In *I, int lane, u64 address, u32 size, const u8 *bytes);
int run_warp(Worker *k, Warp *w);

static inline u32 movemask(const u32 *p) {
  u32 r = 0;
#if defined(__AVX512F__)
  typedef u32 v16 __attribute__((vector_size(64)));
  typedef int s16v __attribute__((vector_size(64)));
  (void)sizeof(v16);
  for (int i = 0; i < 2; i++)
    r |= (u32)(u16)__builtin_ia32_ptestmd512(*(const s16v *)(p + 16 * i), *(const s16v *)(p + 16 * i), (u16)-1)
         << (16 * i);
#elif defined(__AVX__)
  typedef float v8 __attribute__((vector_size(32)));
  for (int i = 0; i < 4; i++) r |= (u32)__builtin_ia32_movmskps256(*(const v8 *)(p + 8 * i)) << (8 * i);
#else
  EACH_LANE r |= (p[l] >> 31) << l;
#endif
  return r;
}

static inline void set_mask(Warp *w, u32 m) {
  w->mask = m;
  u32 *M = (u32 *)w->R;
  EACH_LANE M[l] = -((m >> l) & 1u);
}
