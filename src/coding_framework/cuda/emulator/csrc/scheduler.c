// Blocks over worker threads, warps over barriers, and the budget that ends endless kernels.
//
// A worker runs one block until it ends or waits too long. A block that makes no end within
// BLOCK_SLICE is parked and others start (up to max_resident), so that blocks which wait for each
// other, as in a grid-wide barrier, get on as they would on a GPU that holds them all.
//
// Interleaved, every warp also stops before each store and atomic to global memory until the other
// warps of its block, and a few other blocks, have come as far: what one thread reads, changes and
// writes back without an atomic, another has then read as well, so that the update is lost, as it can
// be on a GPU. Asynchronous copies arrive when they are waited for, no sooner. A launch whose threads do
// not depend on each other gives the same bits.
#include "rt.h"
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

#define WARP_SLICE 65536            // instructions a warp may run before the next one gets its turn
#define BLOCK_SLICE (8ll << 20)     // instructions a block may run before it is parked
#define COOPERATIVE_SLICE (1ll << 20)
#define INTERLEAVED_WARPS 1024      // resident at once, unless blocks wait for each other
#define INTERLEAVED_BLOCKS 8        // and so many blocks at least
#define SLAB_BYTES (32ull << 20)    // at most at a time
#define PAGE_BYTES (2ull << 20)     // of a large page

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;

int raise_fault(Worker *k, Warp *w, u32 kind, i32 pc, int lane, u64 address, u32 size, u32 space) {
  Launch *L = k->L;
  pthread_mutex_lock(&fault_lock);
  if (!L->fault.kind) {
    L->fault = (Fault){.kind = kind, .block = k->blk ? k->blk->index : 0, .address = address,
                       .size = size, .pc = pc, .space = space,
                       .thread = w ? (u64)(w->wid * 32 + lane) : 0};
  }
  __atomic_store_n(&L->stop, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&fault_lock);
  return FAULTED;
}

void note_check(Worker *k, int kind, i32 pc, u32 thread, u32 other, u64 address) {
  Check *c = &k->L->check[(u64)pc * CHECKS + kind];
  pthread_mutex_lock(&fault_lock);
  if (!c->count++) {
    c->address = address; c->block = k->blk->index; c->thread = thread; c->other = other;
  }
  pthread_mutex_unlock(&fault_lock);
}

static u64 cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (u64)t.tv_sec * 1000000000ull + (u64)t.tv_nsec;
}

// --- blocks ---------------------------------------------------------------------------------------

static u64 round_up(u64 n, u64 to) { return (n + to - 1) / to * to; }

// What was never written is NaN for floats of any width; interleaved, large numbers of either sign in
// turn, as a minimum or maximum passes over NaN. `bytes` is rounded up to whole words.
static void poison(const Launch *L, void *at, u64 bytes) {
  if (L->order != ORDER_INTERLEAVED) { memset(at, 0xff, bytes); return; }
  u32 *word = at;
  for (u64 i = 0; i < (bytes + 3) / 4; i++) word[i] = i & 1 ? 0xfbfbfbfbu : 0x7b7b7b7bu;
}

// Memory for blocks, until the worker is closed: the first one's from the heap; of many blocks, which
// are resident at once, in large pages, as the first touch of each small one takes longer than the
// block does.
typedef struct Slab { struct Slab *next; u64 mapped; char data[] __attribute__((aligned(128))); } Slab;

static char *carve(Worker *k, u64 bytes, u64 blocks) {
  if ((u64)(k->slab_end - k->slab) < bytes) {
    u64 wanted = bytes * blocks < SLAB_BYTES ? bytes * blocks : SLAB_BYTES;
    u64 room = sizeof(Slab) + (wanted < bytes ? bytes : wanted), large = room >= PAGE_BYTES;
    room = round_up(room, large ? PAGE_BYTES : 128);
    Slab *s;
    if (large) {
      s = mmap(NULL, room + PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (s == MAP_FAILED) return NULL;
      char *at = (char *)s, *from = (char *)round_up((u64)at, PAGE_BYTES);
      if (from > at) munmap(at, from - at);
      if (from < at + PAGE_BYTES) munmap(from + room, at + PAGE_BYTES - from);
      s = (Slab *)from;
      madvise(s, room, MADV_HUGEPAGE);
    } else if (!(s = aligned_alloc(128, room))) return NULL;
    *s = (Slab){k->slabs, large ? room : 0};
    k->slabs = s;
    k->slab = s->data;
    k->slab_end = (char *)s + room;
  }
  k->slab += bytes;
  return k->slab - bytes;
}

static void free_slabs(Worker *k) {
  for (Slab *s = k->slabs, *n; s; s = n) {
    n = s->next;
    if (s->mapped) munmap(s, s->mapped); else free(s);
  }
}

static Block *new_block(Worker *k, u64 more) {   // more: blocks that may follow it
  Launch *L = k->L;
  Block *b = k->pool;
  if (b) { k->pool = b->next; b->next = NULL; return b; }
  u64 threads = L->ntid[0] * L->ntid[1] * L->ntid[2], warps = (threads + 31) / 32;
  u64 own = round_up(sizeof(Warp) * warps, 128), registers = round_up(L->register_bytes * warps, 128);
  u64 shared = round_up(L->shared_bytes + 128, 128), local = round_up(L->local_bytes * warps * 32, 128);
  b = calloc(1, sizeof *b);
  if (!b) return NULL;
  char *at = carve(k, own + registers + shared + local, k->nblocks++ ? more : 1);
  b->stamps = L->checks ? calloc((L->shared_bytes + 16) / 4 * 8, 8) : NULL;
  if (!at || (L->checks && !b->stamps)) { free(b->stamps); free(b); return NULL; }
  b->warps = (Warp *)at;
  b->registers = at + own;
  b->shared = (u8 *)at + own + registers;
  b->local = local ? (u8 *)at + own + registers + shared : NULL;
  b->nwarps = warps;
  for (u64 i = 0; i < warps; i++) b->warps[i].async = NULL;
  poison(L, b->registers, L->register_bytes * warps);
  if (b->local) poison(L, b->local, L->local_bytes * warps * 32);
  const Func *f = &L->funcs[L->entry_func];
  for (u64 i = 0; i < warps; i++) {
    Warp *w = &b->warps[i];
    w->wid = (int)i;
    w->base = b->registers + L->register_bytes * i;
    memcpy(w->base + f->const_at, f->consts, f->const_bytes);
    EACH_LANE {
      u64 t = i * 32 + l;
      w->tid[0][l] = t % L->ntid[0];
      w->tid[1][l] = t / L->ntid[0] % L->ntid[1];
      w->tid[2][l] = t / L->ntid[0] / L->ntid[1];
    }
  }
  return b;
}

static void free_block(Block *b) {
  if (!b) return;
  for (u64 i = 0; i < b->nwarps; i++) free(b->warps[i].async);
  free(b->stamps); free(b);
}

static void start_block(Worker *k, Block *b, u64 index) {
  Launch *L = k->L;
  b->index = index;
  b->ctaid[0] = index % L->nctaid[0];
  b->ctaid[1] = index / L->nctaid[0] % L->nctaid[1];
  b->ctaid[2] = index / L->nctaid[0] / L->nctaid[1];
  b->first_epoch = b->epoch = ++k->epoch; b->done = 0; b->partial = 0;
  memset(b->bars, 0, sizeof b->bars);
  poison(L, b->shared, L->shared_bytes);
  k->block_number++;
  u64 threads = L->ntid[0] * L->ntid[1] * L->ntid[2];
  const Func *f = &L->funcs[L->entry_func];
  for (u64 i = 0; i < (threads + 31) / 32; i++) {
    Warp *w = &b->warps[i];
    u64 n = threads - i * 32;
    w->R = w->base; w->live = w->act = n >= 32 ? FULL : (1u << n) - 1;
    w->sp = 0; w->fp = 0; w->state = RUN; w->func = (u32)L->entry_func; w->local_base = 0; w->epoch = 0;
    w->bar_dst = 0; w->nparked = 0; w->forced = 0; w->stuck = 0; w->slice = WARP_SLICE;
    w->paused = 0; w->ran = w->loads = 0; w->nasync = 0; w->born = w->live; w->polled = w->polls = 0;
    memset(w->group, 0, sizeof w->group);
    w->st[0] = (Entry){(u32)f->entry, NOWHERE, w->live, 0};
    set_mask(w, w->live);
  }
  if (L->races) race_start(k, b, (threads + 31) / 32);
}

// --- barriers -------------------------------------------------------------------------------------

// Who is ordered after whom by a barrier of the warps in `got`, and of those in `gave` that only
// arrived: what they did in this epoch, and what was before them already.
static void order_after(Block *b, u64 warps, u32 got, u32 gave) {
  u32 seen[LANES] = {0};
  if (!b->partial)
    for (u64 i = 0; i < warps; i++)
      for (u64 j = 0; j < warps; j++) b->since[i][j] = b->epoch - 1;
  b->partial = 1;
  for (u32 x = got | gave; x; x &= x - 1) {
    int v = __builtin_ctz(x);
    for (u64 j = 0; j < warps; j++) if (b->since[v][j] > seen[j]) seen[j] = b->since[v][j];
    seen[v] = b->epoch;
  }
  for (u32 x = got; x; x &= x - 1) memcpy(b->since[__builtin_ctz(x)], seen, sizeof seen);
}

static void release(Worker *k, Block *b, u64 warps, u32 id) {
  Barrier *bar = &b->bars[id];
  if (k->L->checks) {
    u32 got = 0, live = 0;
    for (u64 i = 0; i < warps; i++) {
      live |= (u32)(b->warps[i].state != DONE) << i;
      got |= (u32)(b->warps[i].state == BLOCKED && b->warps[i].bar == id) << i;
    }
    // one that counts fewer threads than the block has does not wait for warps that have exited
    int all = got == live && !(bar->expected && bar->expected < warps * LANES);
    if (k->L->races) race_barrier(k, b, warps, got, all ? 0 : bar->gave, all);
    if (all) b->partial = 0;
    else order_after(b, warps, got, bar->gave);
  }
  for (u64 i = 0; i < warps; i++) {
    Warp *w = &b->warps[i];
    if (w->state != BLOCKED || w->bar != id) continue;
    w->state = RUN;
    if (w->bar_dst) {
      u32 *d = (u32 *)(w->R + w->bar_dst);
      u32 v = w->bar_kind == 0 ? bar->popc : w->bar_kind == 1 ? -(u32)!!bar->all : -(u32)!!bar->any;
      EACH_LANE if (w->bar_mask >> l & 1) d[l] = v;
      w->bar_dst = 0;
    }
  }
  memset(bar, 0, sizeof *bar);
  b->epoch = ++k->epoch;
}

// Free the barriers at which all that are expected have arrived; 1 where one was freed.
static int settle(Worker *k, Block *b, u64 warps) {
  int freed = 0;
  for (u32 id = 0; id < BARRIERS; id++) {
    Barrier *bar = &b->bars[id];
    if (!bar->waiting) continue;
    int ready = bar->expected ? bar->arrived >= bar->expected : 1;
    if (!bar->expected)
      for (u64 i = 0; ready && i < warps; i++)
        ready = b->warps[i].state == DONE || (b->warps[i].state == BLOCKED && b->warps[i].bar == id);
    if (ready) { release(k, b, warps, id); freed = 1; }
  }
  return freed;
}

static int charge(Worker *k, Warp *w, i64 used) {
  Launch *L = k->L;
  i64 left = __atomic_sub_fetch(&L->budget, used, __ATOMIC_RELAXED);
  __atomic_add_fetch(&L->executed, (u64)used, __ATOMIC_RELAXED);
  i32 pc = L->code[w->st[w->sp < 0 ? 0 : w->sp].pc].pc;
  if (left < 0) return raise_fault(k, w, FAULT_BUDGET, pc, 0, 0, 0, 0);
  if (L->cpu_ns && cpu_ns() - k->started_ns > L->cpu_ns)
    return raise_fault(k, w, FAULT_CPU_TIME, pc, 0, 0, 0, 0);
  return 0;
}

// Run a block for `slice` instructions. DONE, YIELD or FAULTED.
static int run_block(Worker *k, Block *b, i64 slice) {
  Launch *L = k->L;
  u64 warps = (L->ntid[0] * L->ntid[1] * L->ntid[2] + 31) / 32;
  k->blk = b;
  for (;;) {
    u32 ran = 0;
    i64 round = 0;
    k->polled = 0;
    for (u64 i = 0; i < warps; i++) {
      Warp *w = &b->warps[i];
      if (w->state != RUN) continue;
      ran++;
      k->slice = k->left = w->slice;
      int how = run_warp(k, w);
      i64 used = k->slice - k->left;
      round += used;
      w->ran += (u64)used;
      if (how == FAULTED || __atomic_load_n(&L->stop, __ATOMIC_RELAXED)) return FAULTED;
      if (how == DONE) b->done++;
      w->state = how == YIELD ? RUN : how;
    }
    if (charge(k, &b->warps[0], round)) return FAULTED;
    if (round >= WARP_SLICE || k->polled) k->spins = 1;
    slice -= round;
    if (b->done == warps) return DONE;
    int freed = settle(k, b, warps);
    if (!freed && !ran) {
      Warp *stuck = &b->warps[0];
      for (u64 i = 0; i < warps; i++) if (b->warps[i].state == BLOCKED) { stuck = &b->warps[i]; break; }
      i32 pc = L->code[stuck->st[stuck->sp < 0 ? 0 : stuck->sp].pc - 1].pc;
      return raise_fault(k, stuck, FAULT_DEADLOCK, pc, __builtin_ctz(stuck->mask ? stuck->mask : 1), 0, 0, 0);
    }
    if (slice <= 0 || (ran && !freed && k->polled == ran)) return YIELD;   // all of them wait for others
  }
}

// --- workers --------------------------------------------------------------------------------------

static void at_least(u64 *most, u64 n) { if (n > *most) *most = n; }

// What one warp and one block did at most: a launch takes at least that long.
static void weigh(Worker *k, const Block *b, u64 warps) {
  u64 ran = 0, loads = 0;
  for (u64 i = 0; i < warps; i++) {
    const Warp *w = &b->warps[i];
    ran += w->ran;
    loads += w->loads;
    at_least(&k->longest_warp, w->ran);
    at_least(&k->most_loads_warp, w->loads);
  }
  at_least(&k->longest_block, ran);
  at_least(&k->most_loads_block, loads);
}

static void *work(void *argument) {
  Worker *k = argument;
  Launch *L = k->L;
  u64 total = L->nctaid[0] * L->nctaid[1] * L->nctaid[2];
  int interleaved = L->order == ORDER_INTERLEAVED;
  u64 warps = (L->ntid[0] * L->ntid[1] * L->ntid[2] + 31) / 32, resident = L->max_resident;
  if (interleaved && !L->cooperative) {
    u64 few = INTERLEAVED_WARPS / warps < INTERLEAVED_BLOCKS ? INTERLEAVED_BLOCKS : INTERLEAVED_WARPS / warps;
    if (few < resident) resident = few;
  }
  i64 slice = interleaved ? 0 : L->cooperative ? COOPERATIVE_SLICE : BLOCK_SLICE;
  k->started_ns = cpu_ns();
  for (;;) {
    if (__atomic_load_n(&L->stop, __ATOMIC_RELAXED)) break;
    Block *b = NULL;
    if (k->nparked < (k->spins ? L->max_resident : resident)) {
      u64 next = __atomic_fetch_add(&L->next_block, 1, __ATOMIC_RELAXED);
      if (next < total) {
        b = new_block(k, (resident < total - next ? resident : total - next));
        if (!b) { raise_fault(k, NULL, FAULT_MEMORY, 0, 0, 0, 0, 0); break; }
        start_block(k, b, L->order == ORDER_FORWARD ? next : total - 1 - next);
      }
    }
    if (!b && k->parked) {
      b = k->parked;
      k->parked = b->next;
      if (!k->parked) k->parked_last = NULL;
      k->nparked--;
    }
    if (!b) break;
    int how = run_block(k, b, slice);
    if (how == DONE) { weigh(k, b, warps); b->next = k->pool; k->pool = b; }
    else {
      b->next = NULL;
      if (k->parked_last) k->parked_last->next = b; else k->parked = b;
      k->parked_last = b;
      k->nparked++;
      if (how == FAULTED) break;
    }
  }
  return NULL;
}

static int open_worker(Worker *k, Launch *L) {
  memset(k, 0, sizeof *k);
  k->L = L;
  k->block_warps = calloc(L->nblocks_code + 1, 8);
  k->block_lanes = calloc(L->nblocks_code + 1, 8);
  k->mem = calloc(L->ninstructions + 1, sizeof(MemCount));
  k->alloc_cache = malloc((L->ninstructions + 1) * 4);
  k->l1 = L->count ? calloc(L->l1_sectors, 8) : NULL;
  if (!k->block_warps || !k->block_lanes || !k->mem || !k->alloc_cache || (L->count && !k->l1)) return -1;
  memset(k->alloc_cache, 0xff, (L->ninstructions + 1) * 4);
  return 0;
}

static void close_worker(Worker *k) {
  Launch *L = k->L;
  for (u64 i = 0; k->block_warps && k->block_lanes && i < L->nblocks_code; i++) {
    L->block_warps[i] += k->block_warps[i];
    L->block_lanes[i] += k->block_lanes[i];
  }
  for (u64 i = 0; k->mem && i < L->ninstructions; i++) {
    u64 *to = (u64 *)&L->mem[i], *from = (u64 *)&k->mem[i];
    for (u64 j = 0; j < sizeof(MemCount) / 8; j++) to[j] += from[j];
  }
  L->branches += k->branches; L->divergent += k->divergent; L->barriers += k->barriers;
  L->dram_read += k->dram_read; L->dram_write += k->dram_write;
  at_least(&L->longest_warp, k->longest_warp);
  at_least(&L->longest_block, k->longest_block);
  at_least(&L->most_loads_warp, k->most_loads_warp);
  at_least(&L->most_loads_block, k->most_loads_block);
  for (Block *b = k->pool, *n; b; b = n) { n = b->next; free_block(b); }
  for (Block *b = k->parked, *n; b; b = n) { n = b->next; free_block(b); }
  free_slabs(k);
  free(k->block_warps); free(k->block_lanes); free(k->mem); free(k->alloc_cache); free(k->l1); free(k->hot);
}

// The atomics on the one address that had most of them, about: addresses share places.
static u64 hottest(const Worker *workers, u64 n) {
  u64 most = 0, any = 0;
  for (u64 i = 0; i < n; i++) any |= workers[i].hot != NULL;
  for (u64 place = 0; any && place < HOT_PLACES; place++) {
    u64 here = 0;
    for (u64 i = 0; i < n; i++) here += workers[i].hot ? workers[i].hot[place] : 0;
    most = here > most ? here : most;
  }
  return most;
}

// Run a launch to its end; the fault, if any, is in L->fault. -1: no memory for the workers.
int emulator_run(Launch *L) {
  if (L->count)
    for (u64 i = 0; i < L->nallocs; i++) {
      u64 from = (L->allocs[i].lo - BASE_GLOBAL) >> 8, bytes = (L->allocs[i].size >> 8) + 1;
      if (L->allocs[i].freed) continue;
      memset(L->touched + from, 0, bytes);
      memset(L->touched + (L->arena_bytes >> 8) + from, 0, bytes);
    }
  u64 n = L->threads < 1 ? 1 : L->threads > 64 ? 64 : L->threads;
  Worker *workers = aligned_alloc(128, sizeof(Worker) * n);
  if (!workers) return -1;
  int failed = 0;
  for (u64 i = 0; i < n; i++) failed |= open_worker(&workers[i], L);
  L->tick = L->first_tick;
  if (L->checks && n == 1) failed |= open_races(L);
  if (!failed && n == 1) work(&workers[0]);
  else if (!failed) {
    pthread_t thread[64];
    u64 started = 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    for (u64 i = 1; i < n; i++, started++)
      if (pthread_create(&thread[i], &attributes, work, &workers[i])) break;
    work(&workers[0]);
    for (u64 i = 1; i <= started; i++) pthread_join(thread[i], NULL);
    pthread_attr_destroy(&attributes);
  }
  L->hottest_atomics = hottest(workers, n);
  for (u64 i = 0; i < n; i++) close_worker(&workers[i]);
  close_races(L);
  free(workers);
  return failed ? -1 : 0;
}

// Sizes of the structures, for the check against their description in Python.
u64 emulator_sizes(int which) {
  switch (which) {
    case 0: return sizeof(In);
    case 1: return sizeof(Alloc);
    case 2: return sizeof(MemCount);
    case 3: return sizeof(Check);
    case 4: return sizeof(Func);
    case 5: return sizeof(Launch);
    default: return sizeof(Warp);
  }
}
