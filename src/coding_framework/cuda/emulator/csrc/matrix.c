// Warp-wide matrix instructions: mma.sync, ldmatrix, stmatrix, movmatrix and wmma.
//
// Half, bfloat16 and TF32 are added up as Hopper's tensor cores add, bit for bit (tensor_sums). Double
// and integers are summed as they are. The layout of wmma fragments is ours to choose (the manual
// leaves it open): lane l holds elements l*E .. l*E+E-1 of the matrix in row-major order.
#include "lane_math.h"
#include "rt.h"

enum { TYPE_F16, TYPE_BF16, TYPE_TF32, TYPE_F64, TYPE_S8, TYPE_U8, TYPE_F32, TYPE_S32 };
enum { MMA, LDMATRIX, STMATRIX, MOVMATRIX, WMMA_LOAD, WMMA_STORE, WMMA_MMA };
#define MOST 512     // elements of the largest fragment matrix: 32 x 16

static int per_register(int type) { return type <= TYPE_BF16 ? 2 : type == TYPE_S8 || type == TYPE_U8 ? 4 : 1; }

static f64 element(const char *slot, int type, int lane, int part) {
  if (type == TYPE_F64) return ((const f64 *)slot)[lane];
  u32 v = ((const u32 *)slot)[lane];
  switch (type) {
    case TYPE_F16: return f16_f(part ? v >> 16 : v & 0xffff);
    case TYPE_BF16: return bf16_f(part ? v >> 16 : v & 0xffff);
    case TYPE_TF32: return f_bits(v & ~0x1fffu);
    case TYPE_S8: return (i8)(v >> 8 * part);
    case TYPE_U8: return (u8)(v >> 8 * part);
    case TYPE_S32: return (i32)v;
    default: return f_bits(v);
  }
}

static void set_element(char *slot, int type, int lane, int part, f64 x, int saturate) {
  if (type == TYPE_F64) { ((f64 *)slot)[lane] = x; return; }
  u32 *v = (u32 *)slot + lane;
  if (type == TYPE_F16 || type == TYPE_BF16) {
    u32 half = type == TYPE_F16 ? f16_r(x) : bf16_r(x);
    *v = part ? (*v & 0xffff) | half << 16 : (*v & 0xffff0000u) | half;
  } else if (type == TYPE_S32) {
    *v = saturate ? (u32)SATI((i64)x) : (u32)(i64)x;
  } else {
    f32 f = (f32)x;
    *v = bits_f(f);
  }
}

// --- mma.sync: where the manual puts element i of lane l -------------------------------------------

// Element i of lane l lies at first + (l / 4) * row + (l % 4) * col of its matrix.
typedef struct { int first, row, col; } Place;

static Place place_a(int m, int k, int type, int i) {
  int per = per_register(type), reg = i / per, part = i % per;
  if (m == 8) return (Place){i, k, per};
  return (Place){(reg & 1 ? 8 : 0) * k + part + (reg >= 2 ? 4 * per : 0), k, per};
}

static Place place_b(int n, int type, int i) {
  int per = per_register(type);
  return (Place){(i % per + i / per * 4 * per) * n, 1, per * n};
}

static Place place_c(int m, int n, int i) {
  return (Place){(m == 16 && i >= 2 ? 8 : 0) * n + (i & 1), n, 2};
}

// A register's values of all lanes, to their places. What is the same for all lanes is outside the loops: with each lane's
// place worked out for itself this took twice as long as the sums.
static void spread(const char *slot, int type, int part, f64 *matrix, Place p) {
  f64 *to = matrix + p.first;
  const u32 *u = (const u32 *)slot;
  int shift = type <= TYPE_BF16 ? 16 * part : 8 * part;
#define SPREAD(value) for (int l = 0; l < LANES; l++) to[(l >> 2) * p.row + (l & 3) * p.col] = (value); break
  switch (type) {
    case TYPE_F64: SPREAD(((const f64 *)slot)[l]);
    case TYPE_F16: SPREAD(f16_f(u[l] >> shift & 0xffff));
    case TYPE_BF16: SPREAD(bf16_f(u[l] >> shift & 0xffff));
    case TYPE_TF32: SPREAD(f_bits(u[l] & ~0x1fffu));
    case TYPE_S8: SPREAD((i8)(u[l] >> shift));
    case TYPE_U8: SPREAD((u8)(u[l] >> shift));
    case TYPE_S32: SPREAD((i32)u[l]);
    default: SPREAD(f_bits(u[l]));
  }
#undef SPREAD
}

// The other way.
static void collect(char *slot, int type, int part, const f64 *matrix, Place p, int saturate) {
  const f64 *from = matrix + p.first;
  u32 *u = (u32 *)slot;
  if (type == TYPE_F32) {
    EACH_LANE u[l] = bits_f((f32)from[(l >> 2) * p.row + (l & 3) * p.col]);
    return;
  }
  EACH_LANE set_element(slot, type, l, part, from[(l >> 2) * p.row + (l & 3) * p.col], saturate);
}

typedef struct { f64 a[MOST], b[MOST], c[MOST]; } Matrices;

static void plain_sums(Matrices *x, int m, int n, int k) {
  for (int i = 0; i < m; i++) {
    f64 sum[32];
    for (int j = 0; j < n; j++) sum[j] = 0;
    for (int p = 0; p < k; p++) {
      f64 a = x->a[i * k + p];
      for (int j = 0; j < n; j++) sum[j] += a * x->b[p * n + j];
    }
    for (int j = 0; j < n; j++) x->c[i * n + j] += sum[j];
  }
}

#define NO_EXPONENT (-100000)    // of a zero
#define KEPT_BITS 25             // behind the point of the largest addend

static i32 exponent_of(f64 v, i32 least) {
  u64 bits;
  memcpy(&bits, &v, 8);
  i32 e = (i32)(bits >> 52 & 0x7ff) - 1023;
  return v == 0 ? NO_EXPONENT : e < least ? least : e;
}

static int all_finite(const f64 *v, int count) {
  u64 none = 0;
  for (int i = 0; i < count; i++) {
    u64 bits;
    memcpy(&bits, v + i, 8);
    none |= (bits >> 52 & 0x7ff) == 0x7ff;
  }
  return !none;
}

// A row has eight, sixteen or thirty-two sums: so many of them at a time.
#if defined(__AVX512F__)
#include <immintrin.h>
#define WIDE 8
#define TRUNCATED(v) ((Row)_mm512_roundscale_pd((__m512d)(v), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC))
#elif defined(__AVX2__)
#include <immintrin.h>
#define WIDE 4
#define TRUNCATED(v) ((Row)_mm256_round_pd((__m256d)(v), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC))
#else
#define WIDE 2
#define TRUNCATED(v) truncated(v)
#endif
typedef f64 Row __attribute__((vector_size(8 * WIDE), aligned(8)));
typedef i64 Bits __attribute__((vector_size(8 * WIDE), aligned(8)));
typedef u64 Unsigned __attribute__((vector_size(8 * WIDE), aligned(8)));
#define ALL(x) ((Bits){} + (x))
#define CHOOSE(mask, yes, no) (((Bits)(mask) & (Bits)(yes)) | (~(Bits)(mask) & (Bits)(no)))
#define MAGNITUDE(v) ((Row)((Bits)(v) & 0x7fffffffffffffffll))

#if WIDE == 2
static inline Row truncated(Row v) { return (Row){trunc(v[0]), trunc(v[1])}; }
#endif

static inline Bits exponents_of(Row v, i64 least) {
  Bits e = (Bits)((Unsigned)v >> 52 & 0x7ff) - 1023;
  e = CHOOSE(e < least, ALL(least), e);
  return CHOOSE(v == 0, ALL(NO_EXPONENT), e);
}

static inline Row powers_of_two(Bits e) { return (Row)((e + 1023) << 52); }

static inline Row cut_to_floats(Row v) {
  Row size = MAGNITUDE(v), subnormal = TRUNCATED(v * 0x1p149) * 0x1p-149;
  Bits cut = CHOOSE(size < 0x1p-126, subnormal, (Bits)v & ~0x1fffffffll);
  return (Row)CHOOSE(size >= 0x1p128, v, cut);      // becomes infinite
}

// Products are exact. Each addend, the accumulator among them, is aligned to the largest exponent (of
// a product: the sum of its factors' exponents, not normalised), keeps KEPT_BITS there, and what is
// below is cut off. The sum of all k products and the accumulator is exact; float32 results are cut,
// halves rounded to nearest by set_element. A result of zero is +0. Of one NVIDIA H200 (2026-11-22)
// 2.5 million results were as here, bit for bit, but one in half precision (random, wide exponents,
// cancellation, subnormals, zeros).
static void tensor_sums(Matrices *x, int m, int n, int k, int type, int type_d) {
  i64 least = type == TYPE_F16 ? -14 : -126, ea[MOST];
  for (int i = 0; i < m * k; i++) ea[i] = exponent_of(x->a[i], least);
  for (int j = 0; j < n; j += WIDE) {
    Bits eb[32];
    Row b[32];
    for (int p = 0; p < k; p++) b[p] = *(Row *)(x->b + p * n + j), eb[p] = exponents_of(b[p], least);
    for (int i = 0; i < m; i++) {
      Row *to = (Row *)(x->c + i * n + j), c = *to;
      const f64 *a = x->a + i * k;
      const i64 *e = ea + i * k;
      Bits top = exponents_of(c, -126);
      for (int p = 0; p < k; p++) {
        Bits of_product = eb[p] + e[p];
        top = CHOOSE(of_product > top, of_product, top);
      }
      top = CHOOSE(top < -600, ALL(-600), top);      // nothing but zeros
      Row scale = powers_of_two(KEPT_BITS - top), sum = TRUNCATED(c * scale);
      for (int p = 0; p < k; p++) sum += TRUNCATED(b[p] * a[p] * scale);
      Row v = sum * powers_of_two(top - KEPT_BITS) + 0.0;
      *to = type_d != TYPE_F16 ? cut_to_floats(v) : (Row)CHOOSE(MAGNITUDE(v) <= 0x1p-25, (Row){}, v);
    }
  }
}

static void multiply(Matrices *x, int m, int n, int k, int type, int type_d) {
  if (type <= TYPE_TF32 && all_finite(x->a, m * k) && all_finite(x->b, k * n) && all_finite(x->c, m * n))
    tensor_sums(x, m, n, k, type, type_d);
  else plain_sums(x, m, n, k);
}

// imm: m | n << 8 | k << 16 | type a, b, c, d << 24, 28, 32, 36 | saturate << 40. Behind the record:
// slots of d, a, b, c, eight of each.
#define FIELD(I, at, bits) ((int)((u64)(I)->imm >> (at) & ((1u << (bits)) - 1)))

static int count_of(const u32 *slots) {
  int n = 0;
  while (n < 8 && slots[n]) n++;
  return n;
}

static int run_mma(Warp *w, const In *I) {
  int m = FIELD(I, 0, 8), n = FIELD(I, 8, 8), k = FIELD(I, 16, 8);
  int ta = FIELD(I, 24, 4), tb = FIELD(I, 28, 4), tc = FIELD(I, 32, 4), td = FIELD(I, 36, 4);
  const u32 *d = (const u32 *)(I + 1), *a = d + 8, *b = d + 16, *c = d + 24;
  int pa = per_register(ta), pb = per_register(tb), pc = per_register(tc), pd = per_register(td);
  int na = count_of(a) * pa, nb = count_of(b) * pb, nc = count_of(c) * pc, nd = count_of(d) * pd;
  Matrices x;      // all of it is written: the lanes' elements are the whole matrices
  for (int i = 0; i < na; i++) spread(w->R + a[i / pa], ta, i % pa, x.a, place_a(m, k, ta, i));
  for (int i = 0; i < nb; i++) spread(w->R + b[i / pb], tb, i % pb, x.b, place_b(n, tb, i));
  for (int i = 0; i < nc; i++) spread(w->R + c[i / pc], tc, i % pc, x.c, place_c(m, n, i));
  multiply(&x, m, n, k, ta, td);
  for (int i = 0; i < nd; i++) collect(w->R + d[i / pd], td, i % pd, x.c, place_c(m, n, i), FIELD(I, 40, 1));
  return RUN;
}

// --- ldmatrix, stmatrix, movmatrix -----------------------------------------------------------------

static void count_rows(Worker *k, const In *I, const u32 *address, int matrices) {
  if (!k->L->count) return;
  MemCount *m = &k->mem[I->pc];
  m->requests++; m->lanes += LANES; m->bytes += 128ull * matrices;
  for (int i = 0; i < matrices; i++) {
    u8 turns[8] = {0}; int worst = 1;      // a row takes 4 of the 32 banks
    for (int r = 0; r < 8; r++) {
      int group = address[i * 8 + r] >> 4 & 7, fresh = 1;
      for (int q = 0; q < r; q++) fresh &= address[i * 8 + q] != address[i * 8 + r];
      if (fresh && ++turns[group] > worst) worst = turns[group];
    }
    m->wavefronts += worst; m->ideal++;
  }
}

// a: address slot, imm: offset; b: matrices | transposed << 4; d..: slots behind the record.
static int move_matrix(Worker *k, Warp *w, const In *I, int store) {
  int matrices = I->b & 15, transposed = I->b >> 4 & 1;
  const u32 *slots = (const u32 *)(I + 1), *base = (const u32 *)(w->R + I->a);
  u32 address[LANES];
  EACH_LANE address[l] = base[l] + (u32)I->imm;
  count_rows(k, I, address, matrices);
  u16 m[4][8][8];
  u8 *p[LANES];
  for (int i = 0; i < matrices * 8; i++) {
    if (!(p[i] = translate(k, w, I, i, address[i], 16, SPACE_SHARED, store))) return FAULTED;
    if (!store) memcpy(m[i / 8][i % 8], p[i], 16);
  }
  for (int i = 0; i < matrices; i++) EACH_LANE {
    u32 *v = (u32 *)(w->R + slots[i]) + l;
    int r = l / 4, c = l % 4 * 2;
    u16 *low = transposed ? &m[i][c][r] : &m[i][r][c], *high = transposed ? &m[i][c + 1][r] : &m[i][r][c + 1];
    if (store) { *low = (u16)*v; *high = (u16)(*v >> 16); }
    else *v = *low | (u32)*high << 16;
  }
  if (store)
    for (int i = 0; i < matrices * 8; i++) memcpy(p[i], m[i / 8][i % 8], 16);
  return RUN;
}

static int transpose_registers(Warp *w, const In *I) {
  const u32 *s = (const u32 *)(w->R + I->a);
  u32 *d = (u32 *)(w->R + I->d);
  u16 m[8][8];
  EACH_LANE { m[l / 4][l % 4 * 2] = (u16)s[l]; m[l / 4][l % 4 * 2 + 1] = (u16)(s[l] >> 16); }
  EACH_LANE d[l] = m[l % 4 * 2][l / 4] | (u32)m[l % 4 * 2 + 1][l / 4] << 16;
  return RUN;
}

// --- wmma -----------------------------------------------------------------------------------------

static u32 bytes_of(int type) {
  return type <= TYPE_BF16 ? 2 : type == TYPE_F64 ? 8 : type == TYPE_S8 || type == TYPE_U8 ? 1 : 4;
}

// a: address slot, c: records behind, b: stride slot, d: space; imm: offset. Behind: rows, columns,
// type, column-major, registers; then slots.
static int wmma_move(Worker *k, Warp *w, const In *I, int store) {
  const u32 *x = (const u32 *)(I + 1), *slots = x + 8;
  u32 rows = x[0], columns = x[1], type = x[2], column_major = x[3], registers = x[4];
  u32 per = per_register((int)type), size = bytes_of((int)type), each = registers * per;
  int shared = I->d == SPACE_SHARED, watch = k->L->races && !shared;
  for (u32 e = 0; e < each; e++) {
    u64 at[LANES];
    u8 *p[LANES];
    EACH_LANE {
      u64 base = shared ? (u64)((const u32 *)(w->R + I->a))[l] : ((const u64 *)(w->R + I->a))[l];
      u32 stride = ((const u32 *)(w->R + I->b))[l], i = (l * each + e) % (rows * columns);
      u64 index = column_major ? (u64)(i % columns) * stride + i / columns
                               : (u64)(i / columns) * stride + i % columns;
      at[l] = base + (u64)I->imm + index * size;
      if (shared) at[l] = at[l] > 0xffffffffull ? 0xffffffffull : at[l];
      if (!(p[l] = translate(k, w, I, l, at[l], size, (int)I->d, store))) return FAULTED;
    }
    if (k->L->count) {
      MemCount *m = &k->mem[I->pc];
      u64 last = ~0ull;
      m->requests += e == 0; m->lanes += LANES; m->bytes += size * LANES; m->wavefronts++; m->ideal++;
      EACH_LANE { u64 s = at[l] >> 5; m->sectors += s != last; last = s; }
    }
    EACH_LANE {
      char *slot = w->R + slots[e / per];
      u32 shift = 8 * size * (e % per);
      if (size == 8) {
        if (store && watch) race_store(k, w, I, l, at[l], 8, (const u8 *)((u64 *)slot + l));
        if (store) memcpy(p[l], (u64 *)slot + l, 8); else memcpy((u64 *)slot + l, p[l], 8);
        continue;
      }
      u32 *v = (u32 *)slot + l, keep = size == 4 ? 0 : ~(((1u << 8 * size) - 1) << shift), bits = 0;
      if (store) {
        bits = *v >> shift;
        if (watch) race_store(k, w, I, l, at[l], size, (const u8 *)&bits);
        memcpy(p[l], &bits, size);
      }
      else { memcpy(&bits, p[l], size); *v = (*v & keep) | bits << shift; }
    }
  }
  return RUN;
}

static void wmma_read(Warp *w, const u32 *slots, int type, int count, f64 *out, int elements) {
  int per = per_register(type), each = count * per;
  EACH_LANE for (int e = 0; e < each; e++)
    out[(l * each + e) % elements] = element(w->R + slots[e / per], type, l, e % per);
}

static int run_wmma(Warp *w, const In *I) {
  int m = FIELD(I, 0, 8), n = FIELD(I, 8, 8), k = FIELD(I, 16, 8);
  int ta = FIELD(I, 24, 4), tb = FIELD(I, 28, 4), tc = FIELD(I, 32, 4), td = FIELD(I, 36, 4);
  const u32 *d = (const u32 *)(I + 1), *a = d + 8, *b = d + 16, *c = d + 24;
  Matrices x;
  wmma_read(w, a, ta, count_of(a), x.a, m * k);
  wmma_read(w, b, tb, count_of(b), x.b, k * n);
  wmma_read(w, c, tc, count_of(c), x.c, m * n);
  multiply(&x, m, n, k, ta, td);
  int per = per_register(td), each = count_of(d) * per;
  EACH_LANE for (int e = 0; e < each; e++)
    set_element(w->R + d[e / per], td, l, e % per, x.c[(l * each + e) % (m * n)], FIELD(I, 40, 1));
  return RUN;
}

int warp_matrix(Worker *k, Warp *w, const In *I) {
  if (w->mask != FULL) return raise_fault(k, w, FAULT_CALL, I->pc, 0, w->mask, 0, 0);
  switch (I->fl) {
    case MMA: return run_mma(w, I);
    case LDMATRIX: return move_matrix(k, w, I, 0);
    case STMATRIX: return move_matrix(k, w, I, 1);
    case MOVMATRIX: return transpose_registers(w, I);
    case WMMA_LOAD: return wmma_move(k, w, I, 0);
    case WMMA_STORE: return wmma_move(k, w, I, 1);
    default: return run_wmma(w, I);
  }
}
