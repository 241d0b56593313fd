// Races on global memory, proved: two accesses to the same bytes, one of them a write, which nothing
// orders, whatever the schedule was.
//
// Time is counted in ticks. A warp's tick changes at a barrier and at a fence; each tick belongs to
// one block, so that a stamp (tick, warp of the block) says who accessed a unit of memory, and when.
// An access is ordered before what a warp does now when the same warp made it, when a barrier of the
// block lies between, or when the warp has seen it through a synchronisation: a fence, then a strong
// write (atomic, volatile, st.release) that a strong read of the warp observed. What a warp has seen
// is a tree (tick by warp, 32 children a node) that is never changed once it is made: warps and
// places share its parts. The schedule decides only who synchronises with whom where atomics do.
#include "rt.h"
#include <sys/mman.h>

#define MAX_NODES (2u << 20)   // of trees in a launch, 256 MB; beyond that blocks count as ordered
#define OTHERS 4u              // of reads: several blocks
#define SIBLINGS 8u            // of reads: several warps of the block
#define WHOLE 4u               // of strong writes: one word of 64 bits, which carries its value with its flag

typedef struct { u64 *write, *read; } Units;   // stamps of the last write and of the last read since
typedef struct { u64 address; u32 seen; } Place;

struct Races {
  u32 *owner; u64 owners;                // block of each tick of this launch
  u32 (*node)[LANES]; u32 nodes, room;   // node 0: nothing was seen
  Place *place; u64 places, place_room;  // what strong writes published, by address
  u64 warps; int depth, full;
};

#define TICK(stamp) ((u32)((stamp) >> 32))
#define WARP_OF(stamp) ((int)((stamp) >> 27 & 31))
#define FLAGS(stamp) ((u32)((stamp) >> 23 & 15))
#define STAMP(w, I, flags) \
  ((u64)(w)->tick << 32 | (u64)(w)->wid << 27 | (u64)(flags) << 23 | ((u64)(I)->pc & 0x7fffff))
#define SAME_SEGMENT(a, b) (!(((a) ^ (b)) >> 27))

int open_races(Launch *L) {
  Races *R = L->races = calloc(1, sizeof *R);
  if (!R) return -1;
  R->warps = (L->ntid[0] * L->ntid[1] * L->ntid[2] + 31) / 32;
  u64 all = R->warps * L->nctaid[0] * L->nctaid[1] * L->nctaid[2];
  for (R->depth = 1; R->depth < 12 && all >> 5 * R->depth; R->depth++) {}
  return 0;
}

void close_races(Launch *L) {
  Races *R = L->races;
  if (!R) return;
  free(R->owner); free(R->node); free(R->place); free(R);
  L->races = NULL;
}

u32 new_tick(Launch *L, u64 block) {
  Races *R = L->races;
  u64 at = ++L->tick - L->first_tick;
  if (at >= R->owners) {
    u64 room = R->owners ? R->owners * 2 : 1024;
    u32 *grown = realloc(R->owner, room * sizeof *grown);
    if (!grown) { L->tick--; R->full = 1; return (u32)L->tick; }
    R->owner = grown; R->owners = room;
  }
  R->owner[at] = (u32)block;
  return (u32)L->tick;
}

// --- what a warp has seen -------------------------------------------------------------------------

static u32 new_node(Races *R, u32 like) {
  if (R->nodes + 1 >= R->room) {
    u32 room = R->room ? R->room * 2 : 256;
    u32 (*grown)[LANES] = room > MAX_NODES ? NULL : realloc(R->node, room * sizeof *grown);
    if (!grown) { R->full = 1; return 0; }
    if (!R->room) memset(grown[0], 0, sizeof *grown);
    R->node = grown; R->room = room;
  }
  u32 n = ++R->nodes;
  memcpy(R->node[n], R->node[like], sizeof *R->node);
  return n;
}

static u32 seen_tick(const Races *R, u32 root, u64 warp) {
  for (int level = R->depth - 1; root && level >= 0; level--) root = R->node[root][warp >> 5 * level & 31];
  return root;
}

// The later of both, for each warp. What one of them has alone is shared, not copied.
static u32 join(Races *R, u32 a, u32 b, int level) {
  if (a == b || !b) return a;
  if (!a) return b;
  if (level < 0) return a > b ? a : b;
  u32 made[LANES];
  int is_a = 1, is_b = 1;
  for (int i = 0; i < LANES; i++) {
    made[i] = join(R, R->node[a][i], R->node[b][i], level - 1);
    is_a &= made[i] == R->node[a][i];
    is_b &= made[i] == R->node[b][i];
  }
  if (is_a) return a;
  if (is_b) return b;
  u32 n = new_node(R, a);
  if (n) memcpy(R->node[n], made, sizeof made);
  return n ? n : a;
}

// With `ticks` of `count` warps from `first` on.
static u32 with(Races *R, u32 root, int level, u64 base, u64 first, u64 count, const u32 *ticks) {
  if (level < 0) {
    u32 t = ticks[base - first];
    return t > root ? t : root;
  }
  u32 n = new_node(R, root);
  if (!n) return root;
  u64 step = 1ull << 5 * level;
  for (u64 i = 0; i < LANES; i++) {
    u64 from = base + i * step;
    if (from + step <= first || from >= first + count) continue;
    u32 child = with(R, R->node[n][i], level - 1, from, first, count, ticks);
    R->node[n][i] = child;
  }
  return n;
}

static int is_ordered(Worker *k, const Warp *w, u64 stamp) {
  Launch *L = k->L;
  Races *R = L->races;
  const Block *b = k->blk;
  u32 t = TICK(stamp);
  int warp = WARP_OF(stamp);
  if (t <= L->first_tick) {   // of an earlier launch, copy or fill: streams decide
    for (u64 i = 0; i < L->nunordered; i++)
      if (t > L->unordered[2 * i] && t <= L->unordered[2 * i + 1]) return 0;
    return 1;
  }
  u64 block = R->owner[t - L->first_tick];
  if (block == b->index) {
    if (warp == w->wid || t <= b->barrier_tick) return 1;
    if (b->partial && t <= b->since_tick[w->wid][warp]) return 1;
  } else if (R->full) return 1;
  return w->seen && seen_tick(R, w->seen, block * R->warps + (u64)warp) >= t;
}

// --- what orders ----------------------------------------------------------------------------------

// Everything that is before this fence is what the warp's next strong write publishes.
void race_fence(Worker *k, Warp *w) {
  Races *R = k->L->races;
  const Block *b = k->blk;
  u32 ticks[LANES];
  for (u64 v = 0; v < R->warps; v++) {
    ticks[v] = b->barrier_tick;
    if (b->partial && b->since_tick[w->wid][v] > ticks[v]) ticks[v] = b->since_tick[w->wid][v];
  }
  ticks[w->wid] = w->tick;
  w->fenced = with(R, w->seen, R->depth - 1, 0, b->index * R->warps, R->warps, ticks);
  w->tick = new_tick(k->L, b->index);
}

void race_start(Worker *k, Block *b, u64 warps) {
  b->barrier_tick = (u32)k->L->tick;
  u32 tick = new_tick(k->L, b->index);
  for (u64 i = 0; i < warps; i++) {
    Warp *w = &b->warps[i];
    w->tick = tick; w->seen = w->fenced = 0;
    memset(w->observed, 0, sizeof w->observed);
  }
}

// A barrier that the warps of `got` leave, and at which those of `gave` only arrived.
void race_barrier(Worker *k, Block *b, u64 warps, u32 got, u32 gave, int all) {
  Races *R = k->L->races;
  u32 seen = 0, fenced = 0, since[LANES] = {0};
  for (u32 x = got | gave; x; x &= x - 1) {
    Warp *w = &b->warps[__builtin_ctz(x)];
    seen = join(R, seen, w->seen, R->depth - 1);
    fenced = join(R, fenced, w->fenced, R->depth - 1);
  }
  if (all) b->barrier_tick = (u32)k->L->tick;
  else {
    if (!b->partial)
      for (u64 i = 0; i < warps; i++) for (u64 j = 0; j < warps; j++) b->since_tick[i][j] = b->barrier_tick;
    for (u32 x = got | gave; x; x &= x - 1) {
      int v = __builtin_ctz(x);
      for (u64 j = 0; j < warps; j++) if (b->since_tick[v][j] > since[j]) since[j] = b->since_tick[v][j];
    }
    for (u32 x = got | gave; x; x &= x - 1) since[__builtin_ctz(x)] = b->warps[__builtin_ctz(x)].tick;
  }
  u32 tick = new_tick(k->L, b->index);
  for (u32 x = got; x; x &= x - 1) {
    Warp *w = &b->warps[__builtin_ctz(x)];
    w->tick = tick; w->seen = seen; w->fenced = fenced;
    if (!all) memcpy(b->since_tick[w->wid], since, sizeof since);
  }
}

static Place *place_of(Races *R, u64 address, int make) {
  if (make && R->places * 2 >= R->place_room) {
    u64 room = R->place_room ? R->place_room * 2 : 256;
    Place *grown = calloc(room, sizeof *grown);
    if (!grown) return NULL;
    for (u64 i = 0; i < R->place_room; i++) {
      if (!R->place[i].address) continue;
      u64 h = R->place[i].address * 0x9E3779B97F4A7C15ull >> 20 & (room - 1);
      while (grown[h].address) h = (h + 1) & (room - 1);
      grown[h] = R->place[i];
    }
    free(R->place);
    R->place = grown; R->place_room = room;
  }
  if (!R->place_room) return NULL;
  u64 h = address * 0x9E3779B97F4A7C15ull >> 20 & (R->place_room - 1);
  while (R->place[h].address && R->place[h].address != address) h = (h + 1) & (R->place_room - 1);
  if (!R->place[h].address) {
    if (!make) return NULL;
    R->place[h].address = address;
    R->places++;
  }
  return &R->place[h];
}

// A strong access of the word at `address`. The warp sees what the write that it reads published (a
// missing fence behind the read is let pass), and publishes what lay before its own last fence.
void race_sync(Worker *k, Warp *w, const In *I, u64 address, int reads, int writes) {
  Races *R = k->L->races;
  address &= ~3ull;
  if (writes && (I->fl & FL_RELEASE)) race_fence(k, w);
  if (!R->places && !(writes && w->fenced)) return;
  Place *p = place_of(R, address, writes && w->fenced);
  if (!p) return;
  if (reads) w->seen = join(R, w->seen, p->seen, R->depth - 1);
  if (!writes) return;
  p->seen = reads ? join(R, p->seen, w->fenced, R->depth - 1) : w->fenced;
}

// --- accesses -------------------------------------------------------------------------------------

static void note_race(Worker *k, int kind, const In *I, u32 thread, u64 address, u64 other) {
  Check *c = &k->L->check[(u64)I->pc * CHECKS + kind];
  if (!c->count++) {
    c->address = address; c->block = k->blk->index; c->thread = thread; c->stamp = other;
    u32 t = TICK(other);
    c->other_block = t > k->L->first_tick ? k->L->races->owner[t - k->L->first_tick] : 0;
  }
}

// A race of which one side only reads, by this warp of the block (-1: by all but `not`).
static void note_reader(Launch *L, u64 block, int warp, int not) {
  if (L->instead) return;
  if (!L->readers) { L->conflicts++; return; }
  u64 warps = L->races->warps;
  for (u64 i = 0; i < warps; i++)
    if (warp < 0 ? (int)i != not : (int)i == warp) L->readers[block * warps + i] = 1;
}

int is_reader(const Worker *k, const Warp *w) {
  const Launch *L = k->L;
  return L->readers[k->blk->index * L->races->warps + (u64)w->wid];
}

// The reads behind a stamp, which race with a write of the warp.
static void note_readers(Worker *k, const Warp *w, u64 read) {
  Launch *L = k->L;
  if (TICK(read) <= L->first_tick || (FLAGS(read) & OTHERS)) { L->conflicts++; return; }
  u64 block = L->races->owner[TICK(read) - L->first_tick];
  note_reader(L, block, FLAGS(read) & SIBLINGS ? -1 : WARP_OF(read), block == k->blk->index ? w->wid : -1);
}

static int race_kind(Launch *L, u64 other) {
  return TICK(other) <= L->first_tick ? CHECK_STREAM : CHECK_GLOBAL;
}

static u64 count_of(const Alloc *a, u32 grain) { return (a->size >> grain) + 2; }

static Units units_at(const Alloc *a) {
  u64 *at = (u64 *)a->race;
  return (Units){at, at + count_of(a, a->grain)};
}

// The units of an allocation; finer from now on where the access is. 0: no memory for them.
static int make_units(Alloc *a, u32 size) {
  u32 grain = size >= 4 ? 2 : size == 2 ? 1 : 0;
  if (LIKELY(a->race && a->grain <= grain)) return 1;
  u64 count = count_of(a, grain), bytes = 2 * count * sizeof(u64);
  u64 *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return 0;
  madvise(made, bytes, MADV_HUGEPAGE);
  if (a->race) {
    u32 finer = a->grain - grain;
    u64 old_count = count_of(a, a->grain);
    Units old = units_at(a);
    for (u64 i = 0; i < count && i >> finer < old_count; i++) {
      made[i] = old.write[i >> finer];
      if (a->was_read) made[count + i] = old.read[i >> finer];
    }
    munmap(old.write, 2 * old_count * sizeof(u64));
  }
  a->race = (u64)made; a->grain = grain;
  return 1;
}

// Whether a write is one that other blocks may wait for: an atomic, or a strong store behind a fence.
static int is_signal(Races *R, u64 write, u64 address, u32 size) {
  if ((FLAGS(write) & ACCESS_ATOMIC) || (size == 8 && (FLAGS(write) & WHOLE))) return 1;
  Place *p = FLAGS(write) & ACCESS_STRONG ? place_of(R, address & ~3ull, 0) : NULL;
  return p && p->seen;
}

// Whether a strong read of the warp met this strong write: what it writes there is later, as coherence has it.
static int is_observed(const Warp *w, u64 write, u64 address) {
  for (int i = 0; i < OBSERVED; i++)
    if (w->observed[i].address == address && w->observed[i].write == write) return FLAGS(write) & ACCESS_STRONG;
  return 0;
}

static void read_unit(Worker *k, Warp *w, const In *I, int lane, u64 *write, u64 *read, u64 mine, u64 address,
                      u32 size) {
  Launch *L = k->L;
  if (FLAGS(mine) & ACCESS_STRONG) {
    u32 at = w->nobserved++ % OBSERVED;
    w->observed[at].address = address; w->observed[at].write = *write;
  }
  if (TICK(*write) >= L->race_since && !SAME_SEGMENT(*write, mine) && !is_ordered(k, w, *write)) {
    int kind = race_kind(L, *write);
    if (kind == CHECK_GLOBAL && (FLAGS(*write) & ACCESS_ATOMIC)) kind = CHECK_WEAK_READ;
    if (!(FLAGS(mine) & ACCESS_STRONG) || !is_signal(L->races, *write, address, size)) {
      if (kind == CHECK_STREAM || (FLAGS(mine) & ACCESS_STRONG)) L->conflicts++;
      else note_reader(L, k->blk->index, w->wid, -1);
      note_race(k, kind, I, w->wid * 32 + lane, address, *write);
    }
  }
  u64 old = *read;
  if (TICK(old) < L->race_since) { *read = mine; return; }
  u64 keep = old & (u64)(OTHERS | SIBLINGS) << 23;
  if (SAME_SEGMENT(old, mine)) {
    if (!(FLAGS(mine) & ACCESS_STRONG)) *read = mine | keep;   // a weak read is the one that may race
  } else if (is_ordered(k, w, old)) {
    *read = mine | (keep & (u64)OTHERS << 23);
  } else {
    int here = TICK(old) > L->first_tick && L->races->owner[TICK(old) - L->first_tick] == k->blk->index;
    *read = mine | keep | (u64)(here ? SIBLINGS : OTHERS) << 23;
  }
}

static int read_races(Worker *k, Warp *w, u64 read, u64 mine) {
  Launch *L = k->L;
  if (TICK(read) < L->race_since) return 0;
  if ((FLAGS(read) & ACCESS_STRONG) && (FLAGS(mine) & (ACCESS_ATOMIC | ACCESS_STRONG))) return 0;
  if (!SAME_SEGMENT(read, mine) && !is_ordered(k, w, read)) return 1;
  if (TICK(read) <= L->first_tick) return 0;
  if ((FLAGS(read) & OTHERS) && !w->seen && !L->races->full) return 1;
  return (FLAGS(read) & SIBLINGS) && TICK(read) > k->blk->barrier_tick && !k->blk->partial;
}

// same: the bytes are there already, which nobody can notice.
static void write_unit(Worker *k, Warp *w, const In *I, int lane, u64 *write, u64 *read, u64 mine, u64 address,
                       int same) {
  Launch *L = k->L;
  u32 how = FLAGS(mine);
  if (TICK(*write) >= L->race_since && !SAME_SEGMENT(*write, mine) && !is_ordered(k, w, *write) &&
      !((how & ACCESS_ATOMIC) && (FLAGS(*write) & (ACCESS_ATOMIC | ACCESS_STRONG))) &&
      !((how & ACCESS_STRONG) && is_observed(w, *write, address))) {
    if (same) {
      if (race_kind(L, *write) == CHECK_GLOBAL)
        note_race(k, CHECK_EQUAL, I, w->wid * 32 + lane, address, *write);
      return;
    }
    L->conflicts++;
    note_race(k, race_kind(L, *write), I, w->wid * 32 + lane, address, *write);
  }
  if (!same && read_races(k, w, *read, mine)) {
    int weak = race_kind(L, *read) == CHECK_GLOBAL && (how & ACCESS_ATOMIC);
    note_readers(k, w, *read);
    note_race(k, weak ? CHECK_WEAK_READ : race_kind(L, *read), I, w->wid * 32 + lane, address, *read);
  }
  *write = mine;
  if (*read) *read = 0;
}

void race_read(Worker *k, Warp *w, const In *I, int lane, Alloc *a, u64 address, u32 size) {
  if (!make_units(a, size)) return;
  a->was_read = 1;
  Units u = units_at(a);
  u64 mine = STAMP(w, I, k->access), at = address - a->lo;
  for (u64 i = at >> a->grain; i <= (at + size - 1) >> a->grain; i++)
    read_unit(k, w, I, lane, &u.write[i], &u.read[i], mine, address, size);
}

// `bytes` (a row of the whole warp, `each` bytes a lane, or one lane's) are about to be stored.
void race_write(Worker *k, Warp *w, const In *I, int lane, Alloc *a, u64 address, u32 size, const u8 *bytes,
                u32 each, u32 flags) {
  Launch *L = k->L;
  if (!make_units(a, each)) return;
  Units u = units_at(a);
  if (flags == ACCESS_STRONG && each == 8) flags |= WHOLE;
  u64 mine = STAMP(w, I, flags), at = address - a->lo, first = at >> a->grain;
  u64 count = ((at + size - 1) >> a->grain) - first + 1, since = (u64)L->race_since << 32, odd = 0;
  for (u64 i = first; i < first + count; i++) odd |= u.write[i] >= since;
  if (a->was_read) for (u64 i = first; i < first + count; i++) odd |= u.read[i] >= since;
  if (!odd) {
    for (u64 i = first; i < first + count; i++) u.write[i] = mine;
    return;
  }
  const u8 *there = L->arena + (address - BASE_GLOBAL);
  u32 step = 1u << a->grain;
  for (u64 i = 0; i < count; i++) {
    u64 off = i * step;
    u32 n = size - off < step ? (u32)(size - off) : step;
    int same = bytes && !memcmp(bytes + off, there + off, n);
    write_unit(k, w, I, size == each ? lane : (int)(off / each), &u.write[first + i], &u.read[first + i], mine,
               address + off, same);
  }
}

// A copy, a fill or what the caller does, as a plan has them between its launches; `tick` is its own.
// Gives the first byte that an access which is not ordered before it holds (and its stamp), or 0.
u64 race_range(Alloc *a, u64 address, u64 size, u32 tick, int writes, const u64 *unordered, u64 n, u64 *stamp) {
  if (!size || !make_units(a, 4)) return 0;
  Units u = units_at(a);
  u64 at = address - a->lo, mine = (u64)tick << 32, found = 0;
  if (!writes) a->was_read = 1;
  for (u64 i = at >> a->grain; i <= (at + size - 1) >> a->grain; i++) {
    for (u64 j = 0; j < n; j++) {
      u64 wrote = TICK(u.write[i]), read = a->was_read ? TICK(u.read[i]) : 0;
      u64 hit = wrote > unordered[2 * j] && wrote <= unordered[2 * j + 1] ? u.write[i]
              : writes && read > unordered[2 * j] && read <= unordered[2 * j + 1] ? u.read[i] : 0;
      if (hit && !found) { found = a->lo + (i << a->grain); *stamp = hit; }
    }
    if (!writes) u.read[i] = mine;
    else {
      u.write[i] = mine;
      if (a->was_read) u.read[i] = 0;
    }
  }
  return found;
}
