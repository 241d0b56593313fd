// Instructions in which the lanes of a warp exchange values.
#include "rt.h"

#define DEST(w, off) ((u32 *)((w)->R + (off)))
#define SOURCE(w, off) ((const u32 *)((w)->R + (off)))

// shfl: d, second destination (predicate) or 0 in the lower half of imm, member mask in the upper, a
// value, b lane, c clamp; fl: mode.
void warp_shuffle(Warp *w, const In *I) {
  const u32 *a = SOURCE(w, I->a), *b = SOURCE(w, I->b), *c = SOURCE(w, I->c);
  u32 value[LANES], valid[LANES], mask = w->mask;
  EACH_LANE {
    int lane = b[l] & 31, clamp = c[l] & 31, segment = c[l] >> 8 & 31;
    int last = (l & segment) | (clamp & ~segment), first = l & segment, from, ok;
    switch (I->fl) {
      case 0: from = l - lane; ok = from >= last; break;
      case 1: from = l + lane; ok = from <= last; break;
      case 2: from = l ^ lane; ok = from <= last; break;
      default: from = first | (lane & ~segment); ok = from <= last;
    }
    if (!ok) from = l;
    value[l] = w->born >> (from & 31) & 1 ? a[from & 31] : 0;   // a lane without a thread holds zero
    valid[l] = -(u32)ok;
  }
  u32 *d = DEST(w, I->d);
  const u32 *M = (const u32 *)w->R;
  EACH_LANE d[l] = M[l] ? value[l] : d[l];
  if ((u32)I->imm) {
    u32 *p = DEST(w, (u32)I->imm);
    EACH_LANE p[l] = M[l] ? valid[l] : p[l];
  }
  (void)mask;
}

// vote: fl 0 all, 1 any, 2 uni, 3 ballot; 4 activemask. a: predicate, c: member mask; imm 1: negated.
void warp_vote(Warp *w, const In *I) {
  u32 members = w->mask, *d = DEST(w, I->d);
  const u32 *M = (const u32 *)w->R;
  if (I->fl == 4) { EACH_LANE d[l] = M[l] ? members : d[l]; return; }
  u32 votes = movemask(SOURCE(w, I->a));
  if (I->imm) votes = ~votes;
  const u32 *asked = SOURCE(w, I->c);
  u32 want = asked[__builtin_ctz(w->mask)] & members, yes = votes & want, result;
  switch (I->fl) {
    case 0: result = -(u32)(yes == want); break;
    case 1: result = -(u32)(yes != 0); break;
    case 2: result = -(u32)(yes == want || !yes); break;
    default: result = yes;
  }
  EACH_LANE d[l] = M[l] ? result : d[l];
}

// match: fl bit 0: all (else any), bit 1: 64-bit value; imm: predicate destination or 0.
void warp_match(Warp *w, const In *I) {
  u32 result[LANES] = {0}, equal = FULL;
  u64 v[LANES];
  const u32 *asked = SOURCE(w, I->c);
  u32 members = w->mask & asked[__builtin_ctz(w->mask)];
  EACH_LANE v[l] = I->fl & 2 ? ((const u64 *)(w->R + I->a))[l] : SOURCE(w, I->a)[l];
  for (u32 x = members; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    for (u32 y = members; y; y &= y - 1) {
      int j = __builtin_ctz(y);
      if (v[j] == v[l]) result[l] |= 1u << j; else equal = 0;
    }
  }
  u32 *d = DEST(w, I->d), *p = I->imm ? DEST(w, I->imm) : NULL;
  for (u32 x = w->mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    d[l] = I->fl & 1 ? (equal ? members : 0) : result[l];
    if (p) p[l] = equal;
  }
}

// redux: fl 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor; + 8: signed.
void warp_reduce(Warp *w, const In *I) {
  const u32 *a = SOURCE(w, I->a), *asked = SOURCE(w, I->c);
  u32 members = w->mask & asked[__builtin_ctz(w->mask)];
  int op = I->fl & 7, is_signed = I->fl & 8;
  u32 r = members ? a[__builtin_ctz(members)] : 0;
  for (u32 x = members & (members - 1); x; x &= x - 1) {
    u32 v = a[__builtin_ctz(x)];
    int less = is_signed ? (i32)v < (i32)r : v < r;
    switch (op) {
      case 0: r += v; break;
      case 1: r = less ? v : r; break;
      case 2: r = less ? r : v; break;
      case 3: r &= v; break;
      case 4: r |= v; break;
      default: r ^= v;
    }
  }
  u32 *d = DEST(w, I->d);
  for (u32 x = w->mask; x; x &= x - 1) d[__builtin_ctz(x)] = r;
}

static u64 mixed(u64 x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// Clocks begin anywhere, run at any rate and jump ahead at any read: nothing more is promised of them.
static u64 clock_now(Worker *k) {
  u64 noise = mixed(k->L->noise + ++k->clock_reads);
  k->clock_ahead += noise >> 8 & ((1ull << (noise & 15)) - 1);
  u64 ran = (u64)(k->slice - k->left) + k->L->executed * 4;
  return (mixed(k->L->noise) >> 16) + ran * (1 + k->L->noise % 97) + k->clock_ahead;
}
#define EPOCH_NS 1700000000000000000ull

// Special registers by number (assembler.py, SPECIAL_REGISTERS); fl 1: a 64-bit destination.
void special_register(Worker *k, Warp *w, const In *I) {
  Launch *L = k->L;
  const u32 *M = (const u32 *)w->R;
  u64 value[LANES], one = 0;
  u32 what = (u32)I->imm;
  if (what < 3 && !I->fl) {
    u32 *d = DEST(w, I->d);
    const u32 *s = w->tid[what];
    EACH_LANE d[l] = M[l] ? s[l] : d[l];
    return;
  }
  int each = 1;
  if (what < 3) EACH_LANE value[l] = w->tid[what][l];
  else if (what == 20) EACH_LANE value[l] = l;
  else if (what >= 21 && what <= 25) EACH_LANE {
    u32 bit = 1u << l;
    value[l] = what == 21 ? bit : what == 22 ? bit | (bit - 1) : what == 23 ? bit - 1
             : what == 24 ? ~(bit - 1) : ~(bit | (bit - 1));
  }
  else each = 0;
  switch (what) {
    case 3: case 4: case 5: one = L->ntid[what - 3]; break;
    case 6: case 7: case 8: one = k->blk->ctaid[what - 6]; break;
    case 9: case 10: case 11: one = L->nctaid[what - 9]; break;
    case 12: one = (mixed(L->noise + k->blk->index) + (u64)w->wid) % 64; break;   // slots, as the SM has them
    case 13: one = 64; break;
    case 14: one = mixed(L->noise ^ k->blk->index << 20) % 132; break;
    case 15: one = 132; break;
    case 16: one = L->dynamic_shared; break;
    case 17: one = L->order == ORDER_INTERLEAVED ? 233472 : L->shared_bytes; break;   // as devices reserve
    case 18: one = L->workspace >> 32; break;         // %envreg1, %envreg2: the grid's workspace
    case 19: one = L->workspace & FULL; break;
    case 26: case 28: one = clock_now(k); break;
    case 27: one = clock_now(k) >> 32; break;
    case 30: case 31: one = EPOCH_NS + clock_now(k); break;
    case 32: one = (EPOCH_NS + clock_now(k)) >> 32; break;
    case 33: one = mixed(~L->noise); break;
    default: break;                                   // 29: zero
  }
  if (I->fl) {
    u64 *d = (u64 *)(w->R + I->d);
    EACH_LANE d[l] = M[l] ? (each ? value[l] : one) : d[l];
  } else {
    u32 *d = DEST(w, I->d);
    EACH_LANE d[l] = M[l] ? (u32)(each ? value[l] : one) : d[l];
  }
}
