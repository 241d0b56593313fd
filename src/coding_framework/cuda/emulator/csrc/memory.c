// Loads, stores and atomics: bounds in every space, sectors, bank conflicts, caches, shadows.
#include "rt.h"

#define SIZE_OF(I) (1u << (((I)->fl >> 2) & 3))
#define COUNT_OF(I) (1u << ((I)->fl & 3))
#define SIGNED(I) ((I)->fl & 16)
#define SPACE(I) ((I)->fl >> 5 & 7)

// --- counters -------------------------------------------------------------------------------------

static inline void touch(Worker *k, MemCount *m, u64 address, int store) {
  u64 sector = (address - BASE_GLOBAL) >> 5;
  if (!store) {   // four ways; a tag names the block too: a new block finds its L1 empty
    u64 set = (sector * 0x9E3779B97F4A7C15ull >> 40) & (k->L->l1_sectors / 4 - 1);
    u64 *tags = &k->l1[set * 4], mine = sector ^ (u64)k->block_number << 36;
    if ((tags[0] == mine) | (tags[1] == mine) | (tags[2] == mine) | (tags[3] == mine)) return;
    tags[k->victim++ & 3] = mine;
  }
  m->l1_misses++;
  if (UNLIKELY(sector >= k->L->arena_bytes >> 5)) return;
  u8 *bits = k->L->touched + (sector >> 3) + (store ? k->L->arena_bytes >> 8 : 0);
  u8 bit = 1u << (sector & 7);
  if (!(*bits & bit)) {
    *bits |= bit;
    if (store) k->dram_write++; else k->dram_read++;
  }
}

// Unique values of s[0..n), in place; returns how many.
static int unique(u64 *s, int n) {
  u64 seen[256]; u8 used[256];
  memset(used, 0, sizeof used);
  int count = 0;
  for (int i = 0; i < n; i++) {
    u32 h = (u32)(s[i] * 0x9E3779B97F4A7C15ull >> 56);
    while (used[h] && seen[h] != s[i]) h = (h + 1) & 255;
    if (!used[h]) { used[h] = 1; seen[h] = s[i]; s[count++] = s[i]; }
  }
  return count;
}

// Where s[l] differs from its neighbour below, as bits; 0 in *rising if some s[l] is smaller.
static inline u32 steps(const u64 *s, u32 *rising) {
  u32 changed = 1, falls = 0;
  u8 differs[LANES], smaller = 0;
  differs[0] = 1;
  for (int l = 1; l < LANES; l++) { differs[l] = s[l] != s[l - 1]; smaller |= s[l] < s[l - 1]; }
  for (int l = 1; l < LANES; l++) changed |= (u32)differs[l] << l;
  falls = smaller;
  *rising = !falls;
  return changed;
}

// Unique 32-byte sectors of one request; accesses are aligned, so each lies in one sector.
static void count_sectors(Worker *k, const In *I, const u64 *a, u32 width, u32 mask, int store) {
  MemCount *m = &k->mem[I->pc];
  u64 sectors[LANES], off = I->imm; int n = 0, lanes = __builtin_popcount(mask);
  m->requests++; m->lanes += lanes; m->bytes += (u64)lanes * width;
  m->ideal += (lanes * width + 31) / 32;
  if (mask == FULL) {
    u32 rising;
    EACH_LANE sectors[l] = (a[l] + off) >> 5;
    u32 changed = steps(sectors, &rising);
    if (!rising) {
      u64 other = 0;
      for (int l = 0; l < 16; l++) other |= sectors[l] ^ sectors[l + 16];
      if (!other) {   // the halves are alike, as in a 16-wide tile
        u64 below = 0;
        for (int l = 1; l < 16; l++) below |= sectors[l] < sectors[l - 1];
        changed &= 0xffff;
        rising = !below;
      }
    }
    if (rising) {
      u32 lines = 0;
      u64 line = ~0ull;
      for (u32 x = changed; x; x &= x - 1) {
        u64 here = sectors[__builtin_ctz(x)] >> 2;
        lines += here != line;
        line = here;
      }
      m->sectors += __builtin_popcount(changed);
      m->tags += lines;
      for (u32 x = changed; x; x &= x - 1) touch(k, m, sectors[__builtin_ctz(x)] << 5, store);
      return;
    }
    n = LANES;
  } else {
    for (u32 x = mask; x; x &= x - 1) {
      u64 s = (a[__builtin_ctz(x)] + off) >> 5;
      if (!n || sectors[n - 1] != s) sectors[n++] = s;
    }
  }
  if (n > 1) n = unique(sectors, n);
  m->sectors += n;
  for (int i = 0; i < n; i++) touch(k, m, sectors[i] << 5, store);
  for (int i = 0; i < n; i++) sectors[i] >>= 2;
  m->tags += n > 1 ? unique(sectors, n) : n;
}

static inline void count_row(Worker *k, const In *I, u64 first, u32 bytes, int store) {
  MemCount *m = &k->mem[I->pc];
  u64 from = first >> 5, to = (first + bytes - 1) >> 5;
  m->requests++; m->lanes += LANES; m->bytes += bytes;
  m->ideal += bytes / 32; m->sectors += to - from + 1; m->tags += (to >> 2) - (from >> 2) + 1;
  for (u64 s = from; s <= to; s++) touch(k, m, s << 5, store);
}

// The largest number of different words in one bank: so many turns the request takes.
static int bank_rounds(const u32 *words, int n) {
  u32 bank[32], seen[256], clash = 0; u8 used[256], turns[32]; int worst = 1;
  for (int i = 0; i < n; i++) bank[words[i] & 31] = words[i];
  for (int i = 0; i < n; i++) clash |= bank[words[i] & 31] ^ words[i];
  if (!clash) return 1;
  memset(used, 0, sizeof used);
  memset(turns, 0, sizeof turns);
  for (int i = 0; i < n; i++) {
    u32 h = words[i] * 0x9E3779B1u >> 24;
    while (used[h] && seen[h] != words[i]) h = (h + 1) & 255;
    if (used[h]) continue;
    used[h] = 1; seen[h] = words[i];
    int t = ++turns[words[i] & 31];
    if (t > worst) worst = t;
  }
  return worst;
}

// Wavefronts of a shared-memory request: words in the same bank of different rows take turns.
static void count_banks(Worker *k, const In *I, const u32 *a, u32 width, u32 mask) {
  MemCount *m = &k->mem[I->pc];
  int lanes = __builtin_popcount(mask);
  m->requests++; m->lanes += lanes; m->bytes += (u64)lanes * width;
  if (width == 4 && mask == FULL) {
    u32 same = 0, row = 0, words[LANES], off = (u32)I->imm;
    EACH_LANE { same |= a[l] ^ a[0]; row |= (a[l] - a[0]) ^ (4u * l); }
    if (!same || !row) { m->wavefronts++; m->ideal++; return; }
    EACH_LANE words[l] = (a[l] + off) >> 2;
    m->wavefronts += bank_rounds(words, LANES);
    m->ideal++;
    return;
  }
  int phases = width <= 4 ? 1 : width / 4, each = (width + 3) / 4;
  if (phases > 4) phases = 4;
  int per = LANES / phases;
  for (int q = 0; q < phases; q++) {
    u32 words[LANES * 2]; int n = 0;
    for (int l = q * per; l < (q + 1) * per; l++)
      if (mask >> l & 1)
        for (int j = 0; j < each && n < LANES * 2; j++) words[n++] = ((a[l] + (u32)I->imm) >> 2) + j;
    if (!n) continue;
    m->wavefronts += bank_rounds(words, n);
    m->ideal++;
  }
}

// --- global memory --------------------------------------------------------------------------------

static inline int inside(const Alloc *a, u64 address, u64 size) {
  u64 at = address - a->lo;
  return at < a->size && at + size <= a->size;
}

static Alloc *find_alloc(Worker *k, const In *I, u64 address, u64 size, int store) {
  Launch *L = k->L;
  u64 low = 0, high = L->nallocs;
  while (low < high) {
    u64 middle = (low + high) / 2;
    if (L->allocs[middle].lo <= address) low = middle + 1; else high = middle;
  }
  if (!low) return NULL;
  Alloc *a = &L->allocs[low - 1];
  if (!inside(a, address, size) || a->freed || (store && a->read_only)) return NULL;
  k->alloc_cache[I->pc] = (u32)(low - 1);
  if (store && !a->stored) a->stored = 1;
  return a;
}

static inline Alloc *alloc_of(Worker *k, const In *I, u64 address, u64 size, int store) {
  u32 cached = k->alloc_cache[I->pc];
  if (LIKELY(cached != NOWHERE && inside(&k->L->allocs[cached], address, size)))
    return &k->L->allocs[cached];
  return find_alloc(k, I, address, size, store);
}

enum { READ, WRITE, ATOMIC };
static void check_global(Worker *k, Warp *w, const In *I, int lane, Alloc *a, u64 address, u32 size,
                         int store) {
  if (a->written == WRITE_ALL) return;
  u8 *shadow = k->L->shadow + (address - BASE_GLOBAL);
  if (store != WRITE && (a->written == WRITE_NONE || memchr(shadow, 0, size)))
    note_check(k, CHECK_UNINIT, I->pc, w->wid * 32 + lane, 0, address);
  if (store) {
    a->written = WRITE_SOME;
    memset(shadow, 1, size);
  }
}

// Stamps of shared memory: epoch(32) | warp epoch(16) | atomic(1) | thread + 1 (11), one for the last
// write and one for the last reads since. A word has four pairs, one a byte; as long as the word is
// only touched as a whole, the first pair stands for all of them. Epochs never repeat in a worker, so
// stamps of earlier blocks are simply old.
#define STAMP(k, w, lane, atomic) \
  ((u64)(k)->blk->epoch << 32 | (u64)((w)->epoch & 0xffff) << 16 | (u64)(atomic) << 11 | \
   (u64)((w)->wid * 32 + (lane) + 1))
#define STAMP_THREAD(s) ((u32)(s) & 2047)
#define MANY 2047u         // several threads of several warps
#define MANY_OF_WARP 1025u // + warp: several threads of one warp
#define NARROW (1ull << 15)  // in the first write stamp of a word: bytes are followed one by one

// Whether no barrier lies between what `other` did in `epoch` and now; of MANY: of none of them.
static inline int unordered(const Block *b, const Warp *w, u32 epoch, u32 other) {
  if (!b->partial) return epoch == b->epoch;
  if (other != MANY) return epoch > b->since[w->wid][other];
  for (int v = 0; v < LANES; v++)
    if (v != w->wid && epoch <= b->since[w->wid][v]) return 0;
  return 1;
}

static void conflict(Worker *k, Warp *w, const In *I, u64 mine, u64 other, u32 address) {
  u32 a = STAMP_THREAD(mine), b = STAMP_THREAD(other);
  if (a == b || !b) return;
  if ((mine & other) >> 11 & 1) return;                 // two atomics
  u32 other_warp = b == MANY ? MANY : b >= MANY_OF_WARP ? b - MANY_OF_WARP : (b - 1) / 32;
  if (!unordered(k->blk, w, (u32)(other >> 32), other_warp)) return;
  int same_warp = (u32)w->wid == other_warp;
  if (same_warp && (mine >> 16 & 0xffff) != (other >> 16 & 0xffff)) return;   // __syncwarp between
  // volatile accesses of one warp have an order on hardware, on which much honest code relies
  note_check(k, same_warp && (I->fl & FL_STRONG) ? CHECK_RACE_WARP : CHECK_RACE, I->pc, a - 1,
             b == MANY ? 0 : b >= MANY_OF_WARP ? other_warp * 32 : b - 1, address);
}

static void merge_read(Warp *w, u64 *read, u64 mine) {
  u32 a = STAMP_THREAD(*read), b = STAMP_THREAD(mine);
  if (*read >> 32 != mine >> 32 || a == b || !a) { *read = mine; return; }
  u32 warp = a == MANY ? MANY : a >= MANY_OF_WARP ? a - MANY_OF_WARP : (a - 1) / 32;
  *read = (mine & ~2047ull) | (warp == (u32)w->wid ? MANY_OF_WARP + warp : MANY);
}

// One word or byte. same: a store of the value that is there already, which nobody can notice.
static int check_pair(Worker *k, Warp *w, const In *I, u64 *pair, u64 mine, u32 at, int how, int same) {
  u64 keep = pair[0] & NARROW, write = pair[0] & ~NARROW;
  int fresh = write >> 32 < k->blk->first_epoch;
  if (!fresh && !same) conflict(k, w, I, mine, write, at);
  if (how == READ) merge_read(w, &pair[1], mine);
  else {
    if (!same) conflict(k, w, I, mine, pair[1], at);
    if (!same || fresh) pair[0] = mine | keep;
  }
  return fresh && how != WRITE;
}

static void check_shared(Worker *k, Warp *w, const In *I, int lane, u32 address, u32 size, int how,
                         int same) {
  u64 mine = STAMP(k, w, lane, how == ATOMIC);
  int unwritten = 0;
  for (u32 at = address & ~3u; at < address + size; at += 4) {
    u64 *pairs = k->blk->stamps + 2 * at;
    u32 first = address > at ? address - at : 0, last = address + size - at > 4 ? 4 : address + size - at;
    if (last - first == 4 && !(pairs[0] & NARROW)) {
      unwritten |= check_pair(k, w, I, pairs, mine, at, how, same);
      continue;
    }
    if (!(pairs[0] & NARROW)) {
      for (int i = 1; i < 4; i++) { pairs[2 * i] = pairs[0]; pairs[2 * i + 1] = pairs[1]; }
      pairs[0] |= NARROW;
    }
    for (u32 i = first; i < last; i++)
      unwritten |= check_pair(k, w, I, pairs + 2 * i, mine, at + i, how, same);
  }
  if (unwritten) note_check(k, CHECK_UNINIT_SHARED, I->pc, w->wid * 32 + lane, 0, address);
}

// Pointer behind an address of any space, or NULL after raising the fault.
u8 *translate(Worker *k, Warp *w, const In *I, int lane, u64 address, u32 size, int space, int store) {
  Launch *L = k->L;
  if (UNLIKELY(address & (size - 1))) {
    raise_fault(k, w, FAULT_MISALIGNED, I->pc, lane, address, size, space);
    return NULL;
  }
  u64 window = address >> 40;
  if (space == SPACE_GENERIC && window != BASE_GLOBAL >> 40) {
    if (window == BASE_SHARED >> 40) { space = SPACE_SHARED; address &= (1ull << 40) - 1; }
    else if (window == BASE_LOCAL >> 40) { space = SPACE_LOCAL; address &= (1ull << 40) - 1; }
    else if (window == BASE_PARAM >> 40) { space = SPACE_PARAM; address &= (1ull << 40) - 1; }
  }
  if (space == SPACE_SHARED) {
    if (address < L->shared_bytes && address + size <= L->shared_bytes) {
      if (L->checks && store != WRITE) check_shared(k, w, I, lane, (u32)address, size, store, 0);
      return k->blk->shared + address;
    }
  } else if (space == SPACE_LOCAL) {
    if (address < L->local_bytes && address + size <= L->local_bytes)
      return k->blk->local + (u64)(w->wid * 32 + lane) * L->local_bytes + address;
  } else if (space == SPACE_PARAM) {
    if (!store && address < L->nparams && address + size <= L->nparams) return (u8 *)L->params + address;
  } else {
    Alloc *a = alloc_of(k, I, address, size, store);
    if (a) {
      if (L->checks) check_global(k, w, I, lane, a, address, size, store);
      if (store == READ && a->watched) {
        race_read(k, w, I, lane, a, address, size);
        if (UNLIKELY(L->instead != NULL) && !k->access && is_reader(k, w))
          return (u8 *)L->instead + (address - BASE_GLOBAL);
      }
      return L->arena + (address - BASE_GLOBAL);
    }
  }
  raise_fault(k, w, FAULT_BOUNDS, I->pc, lane, address, size, space);
  return NULL;
}

static inline void put(void *slot, int l, const u8 *p, u32 size, int is_signed) {
  switch (size) {
    case 1: ((u32 *)slot)[l] = is_signed ? (u32)(i32)*(const i8 *)p : *p; break;
    case 2: { u16 v; memcpy(&v, p, 2); ((u32 *)slot)[l] = is_signed ? (u32)(i32)(i16)v : v; break; }
    case 4: memcpy((u32 *)slot + l, p, 4); break;
    default: memcpy((u64 *)slot + l, p, 8);
  }
}

static inline void get(const void *slot, int l, u8 *p, u32 size) {
  switch (size) {
    case 1: *p = (u8)((const u32 *)slot)[l]; break;
    case 2: { u16 v = (u16)((const u32 *)slot)[l]; memcpy(p, &v, 2); break; }
    case 4: memcpy(p, (const u32 *)slot + l, 4); break;
    default: memcpy(p, (const u64 *)slot + l, 8);
  }
}

static inline void slots_of(char *R, const In *I, void **slots) {
  slots[0] = R + I->d;
  if (COUNT_OF(I) > 1) {
    const u32 *more = (const u32 *)(I + 1);
    for (u32 j = 0; j < COUNT_OF(I); j++) slots[j] = R + more[j];
  }
}

static inline int is_row(const u64 *a, u32 step) {
  u64 off = 0, first = a[0];
  EACH_LANE off |= (a[l] - first) ^ (u64)(l * step);
  return !off;
}

// Host pointer of a[0] + off when the whole warp's accesses lie in one written allocation.
static inline Alloc *whole_warp(Worker *k, const In *I, const u64 *a, u32 width, int store, u64 *low) {
  u64 lo = ~0ull, hi = 0, bits = 0;
  EACH_LANE { u64 x = a[l] + I->imm; lo = x < lo ? x : lo; hi = x > hi ? x : hi; bits |= x; }
  if ((bits & (width - 1)) || hi - lo > 1ull << 36) return NULL;
  *low = lo;
  return alloc_of(k, I, lo, hi - lo + width, store);
}

static void check_store(Worker *k, Warp *w, const In *I, int l, u64 address, u8 *p, void **slots);

// A thread that finds the same once more, where others may change it, waits for them: its turn ends.
static void poll(Worker *k, Warp *w, const In *I, u64 address, u64 value) {
  u64 found = (value * 0x9E3779B97F4A7C15ull ^ address) * 0x9E3779B97F4A7C15ull + (u64)I->pc + 1;
  if (found != w->polled) { w->polled = found; w->polls = 0; return; }
  if (++w->polls < 2 || k->left <= 0) return;
  k->slice -= k->left;
  k->left = 0;
  k->polled++;
}

static inline int is_global(Worker *k, const u8 *p) { return (u64)(p - k->L->arena) < k->L->arena_bytes; }

// The first word that a strong load got, and what its place publishes.
static void strong_read(Worker *k, Warp *w, const In *I, const u64 *at, const u8 *const *p) {
  u64 value = 0;
  u32 size = SIZE_OF(I);
  int first = __builtin_ctz(w->mask);
  memcpy(&value, p[first], size);
  poll(k, w, I, at[first] + I->imm, value);
  if (!k->L->races) return;
  for (u32 x = w->mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    if (is_global(k, p[l])) race_sync(k, w, I, at[l] + I->imm, 1, 0);
  }
}

int memory_load(Worker *k, Warp *w, const In *I) {
  Launch *L = k->L;
  w->loads++;
  const u64 *a = (const u64 *)(w->R + I->a);
  u32 size = SIZE_OF(I), count = COUNT_OF(I), width = size * count, mask = w->mask;
  void *slots[8];
  slots_of(w->R, I, slots);
  int strong = I->fl & FL_STRONG;
  if (LIKELY(mask == FULL && size == 4 && !strong)) {
    u64 low;
    Alloc *al = whole_warp(k, I, a, width, 0, &low);
    if (LIKELY(al && (!L->checks || (al->written == WRITE_ALL && !al->watched)))) {
      const u8 *arena = L->arena - BASE_GLOBAL;
      if (is_row(a, width)) {
        u64 first = a[0] + I->imm;
        if (L->count) count_row(k, I, first, width * LANES, 0);
        if (count == 1) memcpy(slots[0], arena + first, 128);
        else for (u32 j = 0; j < count; j++) {
          u32 *d = slots[j];
          const u32 *p = (const u32 *)(arena + first) + j;
          EACH_LANE d[l] = p[l * count];
        }
        return RUN;
      }
      if (L->count) count_sectors(k, I, a, width, mask, 0);
      u64 at[LANES];   // a destination may be the address register itself
      EACH_LANE at[l] = a[l] + I->imm;
      for (u32 j = 0; j < count; j++) {
        u32 *d = slots[j];
#pragma GCC ivdep
        EACH_LANE d[l] = *(const u32 *)(arena + at[l] + 4 * j);
      }
      return RUN;
    }
  }
  u8 *p[LANES];
  k->access = strong ? ACCESS_STRONG : 0;
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    if (!(p[l] = translate(k, w, I, l, a[l] + I->imm, width, SPACE(I), 0))) return FAULTED;
  }
  k->access = 0;
  if (UNLIKELY(strong)) strong_read(k, w, I, a, (const u8 *const *)p);
  if (L->count) count_sectors(k, I, a, width, mask, 0);
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    for (u32 j = 0; j < count; j++) put(slots[j], l, p[l] + j * size, size, SIGNED(I));
  }
  return RUN;
}

int memory_store(Worker *k, Warp *w, const In *I) {
  Launch *L = k->L;
  const u64 *a = (const u64 *)(w->R + I->a);
  u32 size = SIZE_OF(I), count = COUNT_OF(I), width = size * count, mask = w->mask;
  void *slots[8];
  slots_of(w->R, I, slots);
  int strong = I->fl & FL_STRONG;
  if (LIKELY(mask == FULL && size == 4 && !strong && is_row(a, width))) {
    u64 first = a[0] + I->imm;
    Alloc *al = first & (width - 1) ? NULL : alloc_of(k, I, first, width * LANES, 1);
    if (LIKELY(al != NULL)) {
      if (L->count) count_row(k, I, first, width * LANES, 1);
      if (L->checks) check_global(k, w, I, 0, al, first, width * LANES, 1);
      u32 row[LANES * 4];
      u8 *to = L->arena + (first - BASE_GLOBAL);
      int watched = L->checks && al->watched;
      u32 *into = watched ? row : (u32 *)to;
      if (count == 1) memcpy(into, slots[0], 128);
      else for (u32 j = 0; j < count; j++) {
        const u32 *s = slots[j];
        u32 *p = into + j;
        EACH_LANE p[l * count] = s[l];
      }
      if (watched) {
        race_write(k, w, I, 0, al, first, width * LANES, (const u8 *)row, width, 0);
        memcpy(to, row, width * LANES);
      }
      return RUN;
    }
  }
  u8 *p[LANES];
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    if (!(p[l] = translate(k, w, I, l, a[l] + I->imm, width, SPACE(I), 1))) return FAULTED;
  }
  if (L->count) count_sectors(k, I, a, width, mask, 1);
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    if (L->checks) check_store(k, w, I, l, a[l] + I->imm, p[l], slots);
    for (u32 j = 0; j < count; j++) get(slots[j], l, p[l] + j * size, size);
  }
  if (UNLIKELY(strong) && L->races)
    for (u32 x = mask; x; x &= x - 1) {
      int l = __builtin_ctz(x);
      if (is_global(k, p[l])) race_sync(k, w, I, a[l] + I->imm, 0, 1);
    }
  return RUN;
}

// --- shared memory --------------------------------------------------------------------------------

static void check_shared_store(Worker *k, Warp *w, const In *I, int l, u8 *p, void **slots) {
  u32 size = SIZE_OF(I), count = COUNT_OF(I);
  u64 at = (u64)(p - k->blk->shared);
  if (at >= k->L->shared_bytes) return;   // a generic store to another space
  u8 bytes[8];
  for (u32 j = 0; j < count; j++) {
    get(slots[j], l, bytes, size);
    check_shared(k, w, I, l, (u32)at + j * size, size, WRITE, !memcmp(bytes, p + j * size, size));
  }
}

// A store to shared or global memory, before it is done.
static void check_store(Worker *k, Warp *w, const In *I, int l, u64 address, u8 *p, void **slots) {
  if (!is_global(k, p)) { check_shared_store(k, w, I, l, p, slots); return; }
  u32 size = SIZE_OF(I), count = COUNT_OF(I);
  u8 bytes[32];
  for (u32 j = 0; j < count; j++) get(slots[j], l, bytes + j * size, size);
  race_store(k, w, I, l, address, size * count, bytes);
}

// The same of any instruction that stores `bytes` for one lane.
void race_store(Worker *k, Warp *w, const In *I, int lane, u64 address, u32 size, const u8 *bytes) {
  Alloc *a = k->L->races ? alloc_of(k, I, address, size, 1) : NULL;
  if (a && a->watched)
    race_write(k, w, I, lane, a, address, size, bytes, size, I->fl & FL_STRONG ? ACCESS_STRONG : 0);
}

// The checks of a whole warp's words at once, where each was last written before the last barrier:
// nothing to report. 0: some lane needs the long way; then nothing was changed.
static int check_words(Worker *k, Warp *w, const u32 *at, u32 count, int store) {
  u32 now = k->blk->epoch, first = (u32)k->blk->first_epoch, odd = 0;
  u64 *stamps = k->blk->stamps;
  if (UNLIKELY(k->blk->partial)) return 0;
  for (u32 j = 0; j < count; j++) EACH_LANE {
    const u64 *pair = stamps + 2 * (u64)(at[l] + 4 * j);
    u32 written = (u32)(pair[0] >> 32), read = (u32)(pair[1] >> 32);
    odd |= (pair[0] & NARROW) != 0;
    odd |= written == now;
    odd |= store ? read == now : written < first;
  }
  if (odd) return 0;
  for (u32 j = 0; j < count; j++) EACH_LANE {
    u64 *pair = stamps + 2 * (u64)(at[l] + 4 * j), mine = STAMP(k, w, l, 0);
    if (store) {
      if (pair[0] >> 32 == now) return -1;      // two lanes store to one word
      pair[0] = mine;
    } else merge_read(w, &pair[1], mine);
  }
  return 1;
}

// Whether all lanes' accesses are aligned and inside; their offsets go to `at`.
static inline int shared_inside(Worker *k, const u32 *a, u32 off, u32 width, u32 *at) {
  u32 highest = 0, bits = 0;
  EACH_LANE { u32 x = at[l] = a[l] + off; highest = x > highest ? x : highest; bits |= x; }
  return !(bits & (width - 1)) && (u64)highest + width <= k->L->shared_bytes;
}

int shared_load(Worker *k, Warp *w, const In *I) {
  Launch *L = k->L;
  const u32 *a = (const u32 *)(w->R + I->a);
  u32 size = SIZE_OF(I), count = COUNT_OF(I), width = size * count, mask = w->mask, off = (u32)I->imm;
  if (L->count) count_banks(k, I, a, width, mask);
  void *slots[8]; u8 *p[LANES];
  slots_of(w->R, I, slots);
  u32 at[LANES];
  if (LIKELY(mask == FULL && size == 4 && shared_inside(k, a, off, width, at)) &&
      (!L->checks || check_words(k, w, at, count, 0))) {
    const u8 *shared = k->blk->shared;
    for (u32 j = 0; j < count; j++) {
      u32 *d = slots[j];
#pragma GCC ivdep
      EACH_LANE d[l] = *(const u32 *)(shared + at[l] + 4 * j);
    }
    return RUN;
  }
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    if (!(p[l] = translate(k, w, I, l, (u32)(a[l] + off), width, SPACE_SHARED, 0))) return FAULTED;
  }
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    for (u32 j = 0; j < count; j++) put(slots[j], l, p[l] + j * size, size, SIGNED(I));
  }
  return RUN;
}

int shared_store(Worker *k, Warp *w, const In *I) {
  Launch *L = k->L;
  const u32 *a = (const u32 *)(w->R + I->a);
  u32 size = SIZE_OF(I), count = COUNT_OF(I), width = size * count, mask = w->mask, off = (u32)I->imm;
  void *slots[8];
  slots_of(w->R, I, slots);
  if (L->count) count_banks(k, I, a, width, mask);
  u32 at[LANES];
  if (LIKELY(mask == FULL && size == 4 && shared_inside(k, a, off, width, at)) &&
      (!L->checks || check_words(k, w, at, count, 1) == 1)) {
    u8 *shared = k->blk->shared;
    for (u32 j = 0; j < count; j++) {
      const u32 *s = slots[j];
      EACH_LANE memcpy(shared + at[l] + 4 * j, s + l, 4);
    }
    return RUN;
  }
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    u8 *p = translate(k, w, I, l, (u32)(a[l] + off), width, SPACE_SHARED, WRITE);
    if (!p) return FAULTED;
    if (L->checks) check_shared_store(k, w, I, l, p, slots);
    for (u32 j = 0; j < count; j++) get(slots[j], l, p + j * size, size);
  }
  return RUN;
}

// --- local memory and parameters ------------------------------------------------------------------

int local_access(Worker *k, Warp *w, const In *I, int store) {
  const u64 *a = (const u64 *)(w->R + I->a);
  u32 size = SIZE_OF(I), count = COUNT_OF(I), mask = w->mask;
  void *slots[8]; u8 *p[LANES];
  slots_of(w->R, I, slots);
  if (k->L->count) {     // local memory is interleaved by words, so equal offsets share sectors
    u64 spread[LANES]; In J = *I;
    EACH_LANE spread[l] = BASE_LOCAL + ((a[l] + I->imm) >> 2) * 128 + 4 * l - I->imm;
    (void)J;
    MemCount *m = &k->mem[I->pc];
    u64 last = ~0ull; int n = 0;
    EACH_LANE if (mask >> l & 1) { u64 s = (spread[l] + I->imm) >> 5; n += s != last; last = s; }
    m->requests++; m->lanes += __builtin_popcount(mask); m->sectors += (u64)n * count * (size > 4 ? 2 : 1);
    m->bytes += (u64)__builtin_popcount(mask) * size * count;
  }
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    if (!(p[l] = translate(k, w, I, l, a[l] + I->imm, size * count, SPACE_LOCAL, store))) return FAULTED;
  }
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    for (u32 j = 0; j < count; j++)
      if (store) get(slots[j], l, p[l] + j * size, size);
      else put(slots[j], l, p[l] + j * size, size, SIGNED(I));
  }
  return RUN;
}

// Kernel parameters: the same bytes for all lanes; the assembler checked the range.
void param_load(Worker *k, Warp *w, const In *I) {
  u32 size = SIZE_OF(I), count = COUNT_OF(I);
  const u32 *M = (const u32 *)w->R;
  const u8 *p = k->L->params + I->imm;
  void *slots[8];
  slots_of(w->R, I, slots);
  for (u32 j = 0; j < count; j++, p += size) {
    if (size == 8) {
      u64 v, *d = slots[j];
      memcpy(&v, p, 8);
      EACH_LANE d[l] = M[l] ? v : d[l];
    } else {
      u32 v[LANES], *d = slots[j];
      put(v, 0, p, size, SIGNED(I));
      EACH_LANE d[l] = M[l] ? v[0] : d[l];
    }
  }
}

// Parameters of device functions: words of 32 lanes inside the frame, at I->a + imm bytes.
void frame_param(Warp *w, const In *I, int store) {
  u32 size = SIZE_OF(I), count = COUNT_OF(I), mask = w->mask;
  void *slots[8];
  slots_of(w->R, I, slots);
  for (u32 j = 0; j < count; j++) {
    u32 at = (u32)I->imm + j * size;
    char *word = w->R + I->a + (at >> 2) * 128;
    for (u32 x = mask; x; x &= x - 1) {
      int l = __builtin_ctz(x);
      u8 bytes[8];
      u8 *low = (u8 *)((u32 *)word + l) + (at & 3);
      if (store) {
        get(slots[j], l, bytes, size);
        memcpy(low, bytes, size > 4 ? 4 : size);
        if (size == 8) memcpy((u32 *)(word + 128) + l, bytes + 4, 4);
      } else {
        memcpy(bytes, low, size > 4 ? 4 : size);
        if (size == 8) memcpy(bytes + 4, (u32 *)(word + 128) + l, 4);
        put(slots[j], l, bytes, size, SIGNED(I));
      }
    }
  }
}

// --- atomics --------------------------------------------------------------------------------------

enum { AT_ADD, AT_MIN, AT_MAX, AT_INC, AT_DEC, AT_EXCH, AT_CAS, AT_AND, AT_OR, AT_XOR };
enum { KIND_U, KIND_S, KIND_F, KIND_H2, KIND_B2, KIND_H, KIND_B };
#include "lane_math.h"

static u64 combine(int op, int kind, u32 size, u64 old, u64 v, u64 v2) {
  if (kind == KIND_F) {
    if (size == 4) {
      f32 x, y; u32 o = (u32)old, n = (u32)v;
      memcpy(&x, &o, 4); memcpy(&y, &n, 4);
      x = op == AT_MIN ? min_f(x, y) : op == AT_MAX ? max_f(x, y) : x + y;
      memcpy(&o, &x, 4);
      return o;
    }
    f64 x, y; memcpy(&x, &old, 8); memcpy(&y, &v, 8);
    x += y; memcpy(&old, &x, 8);
    return old;
  }
  if (kind >= KIND_H2) {
    int bf = kind == KIND_B2 || kind == KIND_B, two = kind == KIND_H2 || kind == KIND_B2;
    u32 out = 0;
    for (int i = 0; i <= two; i++) {
      u32 a = (u32)old >> 16 * i & 0xffff, b = (u32)v >> 16 * i & 0xffff, r;
      if (bf) r = bf16_r(op == AT_ADD ? (f64)bf16_f(a) + bf16_f(b) : op == AT_MIN ? min_f(bf16_f(a), bf16_f(b)) : max_f(bf16_f(a), bf16_f(b)));
      else r = f16_r(op == AT_ADD ? (f64)f16_f(a) + f16_f(b) : op == AT_MIN ? min_f(f16_f(a), f16_f(b)) : max_f(f16_f(a), f16_f(b)));
      out |= r << 16 * i;
    }
    return out;
  }
  i64 so = size == 4 ? (i64)(i32)old : (i64)old, sv = size == 4 ? (i64)(i32)v : (i64)v;
  switch (op) {
    case AT_ADD: return old + v;
    case AT_MIN: return kind == KIND_S ? (so < sv ? old : v) : (old < v ? old : v);
    case AT_MAX: return kind == KIND_S ? (so > sv ? old : v) : (old > v ? old : v);
    case AT_INC: return old >= v ? 0 : old + 1;
    case AT_DEC: return old == 0 || old > v ? v : old - 1;
    case AT_EXCH: return v;
    case AT_CAS: return old == v ? v2 : old;
    case AT_AND: return old & v;
    case AT_OR: return old | v;
    default: return old ^ v;
  }
}

// Atomics on one address take turns in L2. Of integers the compiler makes one a warp where neighbours
// mean the same address.
static void count_hot(Worker *k, const u64 *at, u32 mask, int merged) {
  if (!k->hot && !(k->hot = calloc(HOT_PLACES, sizeof *k->hot))) return;
  u64 last = 0;
  for (u32 x = mask; x; x &= x - 1) {
    u64 address = at[__builtin_ctz(x)];
    if ((!merged || address != last) && address >> 40 == BASE_GLOBAL >> 40)
      k->hot[(address >> 1) * 0x9E3779B97F4A7C15ull >> 52]++;
    last = address;
  }
}

#define EXCHANGE(T) do { T *q = (T *)p, old = __atomic_load_n(q, __ATOMIC_RELAXED), next; \
    do next = (T)combine(op, kind, size, old, v, v2); \
    while (!__atomic_compare_exchange_n(q, &old, next, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)); \
    return old; } while (0)

static u64 exchange(int op, int kind, u32 size, u8 *p, u64 v, u64 v2) {
  if (size == 2) EXCHANGE(u16);
  if (size == 4) EXCHANGE(u32);
  EXCHANGE(u64);
}

// An atomic on global memory. failed: a compare-and-swap that found another value only read.
static void check_atomic(Worker *k, Warp *w, const In *I, int lane, u64 address, u32 size, int failed) {
  race_sync(k, w, I, address, 1, !failed);
  Alloc *a = alloc_of(k, I, address, size, 1);
  if (!a || !a->watched) return;
  if (!failed) {
    race_write(k, w, I, lane, a, address, size, NULL, size, ACCESS_ATOMIC | ACCESS_STRONG);
    return;
  }
  k->access = ACCESS_STRONG;
  race_read(k, w, I, lane, a, address, size);
  k->access = 0;
}

// fl: count and size as for loads, space; b: operand slots; c: op | kind << 8 | has result << 16.
// With several elements (red.v2.f32) the following record lists destinations, then operands.
int memory_atomic(Worker *k, Warp *w, const In *I) {
  u32 size = SIZE_OF(I), mask = w->mask, op = I->c & 255, kind = I->c >> 8 & 255;
  int space = SPACE(I), count = COUNT_OF(I);
  const u32 *more = (const u32 *)(I + 1);   // second operand slot, or slots of a vector
  u64 at[LANES];
  const void *base = w->R + I->a;
  EACH_LANE at[l] = (space == SPACE_SHARED ? (u64)(u32)(((const u32 *)base)[l] + (u32)I->imm)
                                           : ((const u64 *)base)[l] + I->imm);
  if (k->L->count) {
    In J = *I; J.imm = 0;
    if (space == SPACE_SHARED) {
      u32 narrow[LANES];
      EACH_LANE narrow[l] = (u32)at[l];
      count_banks(k, &J, narrow, size * count, mask);
    } else {
      count_sectors(k, &J, at, size * count, mask, 1);
      count_hot(k, at, mask, kind <= KIND_S && op != AT_CAS && op != AT_EXCH);
    }
  }
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    u8 *p = translate(k, w, I, l, at[l], size * count, space, ATOMIC);
    if (!p) return FAULTED;
    u64 before = 0, after = 0;
    int failed = 0;
    if (size * count <= 8) memcpy(&before, p, size);
    for (int j = 0; j < count; j++) {
      u64 v = 0, v2 = 0, old;
      get(w->R + (count > 1 ? more[4 + j] : I->b), l, (u8 *)&v, size);
      if (op == AT_CAS) get(w->R + more[0], l, (u8 *)&v2, size);
      old = exchange(op, kind, size, p + j * size, v, v2);
      put(w->R + (count > 1 ? more[j] : I->d), l, (u8 *)&old, size, 0);
      if (op == AT_CAS) failed = old != v;
    }
    if (op != AT_MIN && op != AT_MAX && count == 1) {
      memcpy(&after, p, size);
      if (before == after && l == __builtin_ctz(mask)) poll(k, w, I, at[l], before);
    }
    if (k->L->races && is_global(k, p)) check_atomic(k, w, I, l, at[l], size * count, failed);
  }
  return RUN;
}

// The data of those lanes' copies are there now; a copy that no lane waits for is forgotten.
static void arrive(Worker *k, Warp *w, Async *copy, u32 lanes) {
  for (u32 x = lanes & copy->mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    memcpy(k->blk->shared + copy->to[l], copy->data[l], copy->size);
  }
  copy->mask &= ~lanes;
}

// fl: 0 commit, 1 wait for all groups but the latest imm, 2 wait for all copies. Groups are a thread's own.
void async_group(Worker *k, Warp *w, const In *I) {
  if (LIKELY(k->L->order != ORDER_INTERLEAVED)) return;
  u32 kept = 0;
  for (u32 i = 0; I->fl && i < w->nasync; i++) {
    Async *copy = &w->async[i];
    u32 done = 0;
    EACH_LANE done |= (u32)(I->fl == 2 || (u64)copy->group[l] + (u64)I->imm < w->group[l]) << l;
    arrive(k, w, copy, done & w->mask);
    if (copy->mask) w->async[kept++] = *copy;
  }
  if (I->fl) w->nasync = kept;
  else EACH_LANE w->group[l] += w->mask >> l & 1;
}

// Room to keep a copy back; where there is none, the oldest arrives. NULL: no memory.
static Async *keep_back(Worker *k, Warp *w) {
  if (!w->async && !(w->async = malloc(MAX_ASYNC * sizeof(Async)))) return NULL;
  if (w->nasync == MAX_ASYNC) {
    arrive(k, w, &w->async[0], FULL);
    memmove(w->async, w->async + 1, --w->nasync * sizeof(Async));
  }
  return &w->async[w->nasync++];
}

// cp.async, done at once, or, interleaved, when it is waited for: until then its words are poison.
// a: shared address (u32), b: global address, c: bytes | source bytes slot, imm: shared offset; the
// following record: global offset (i64), slot of the source size or 0.
int async_copy(Worker *k, Warp *w, const In *I) {
  u32 mask = w->mask, size = I->c;
  const u64 *more = (const u64 *)(I + 1);
  const u32 *to = (const u32 *)(w->R + I->a);
  const u64 *from = (const u64 *)(w->R + I->b);
  const u32 *limit = more[1] ? (const u32 *)(w->R + more[1]) : NULL;
  u64 at[LANES];
  EACH_LANE at[l] = from[l] + more[0];
  u32 reading = 0;
  EACH_LANE if ((mask >> l & 1) && (!limit || limit[l])) reading |= 1u << l;
  w->loads += reading != 0;
  if (k->L->count && reading) {
    In J = *I; J.imm = 0;
    count_sectors(k, &J, at, size, reading, 0);
  }
  Async *later = NULL;
  if (k->L->order == ORDER_INTERLEAVED) {
    if (!(later = keep_back(k, w))) return raise_fault(k, w, FAULT_MEMORY, I->pc, 0, 0, 0, 0);
    later->mask = mask; later->size = size;
    memcpy(later->group, w->group, sizeof w->group);
  }
  for (u32 x = mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    u32 n = limit ? (limit[l] < size ? limit[l] : size) : size;
    u8 *d = translate(k, w, I, l, (u32)(to[l] + (u32)I->imm), size, SPACE_SHARED, WRITE), *s = NULL;
    if (!d) return FAULTED;
    if (k->L->checks) check_shared(k, w, I, l, (u32)(d - k->blk->shared), size, WRITE, 0);
    if (n) {
      if (at[l] & (size - 1)) return raise_fault(k, w, FAULT_MISALIGNED, I->pc, l, at[l], size, SPACE_GLOBAL);
      for (u32 j = 0, step; j < n; j += step) {   // any number of bytes may be read
        step = n - j >= 4 ? 4 : 1;
        if (!(s = translate(k, w, I, l, at[l] + j, step, SPACE_GLOBAL, READ))) return FAULTED;
        memcpy((later ? later->data[l] : d) + j, s, step);
      }
    }
    memset((later ? later->data[l] : d) + n, 0, size - n);
    if (later) {
      later->to[l] = (u32)(d - k->blk->shared);
      memset(d, 0xfb, size);
    }
  }
  return RUN;
}
