// What one lane computes: the functions that the expressions of instructions.toml name. Branch-free
// where it matters, so that gcc turns the 32-lane loops into vector instructions.
#pragma once
#include "rt.h"
#include <stdint.h>

static inline u32 bits_f(f32 x) { u32 u; memcpy(&u, &x, 4); return u; }
static inline f32 f_bits(u32 u) { f32 x; memcpy(&x, &u, 4); return x; }
static inline u64 bits_d(f64 x) { u64 u; memcpy(&u, &x, 8); return u; }
static inline f64 d_bits(u64 u) { f64 x; memcpy(&x, &u, 8); return x; }

// --- f32 and f64 ----------------------------------------------------------------------------------
#define FTZ(x) ftz_f(x)
#define FTZD(x) ftz_d(x)
static inline f32 ftz_f(f32 x) { u32 u = bits_f(x); return f_bits(u & ((u & 0x7f800000u) ? FULL : 0x80000000u)); }
static inline f64 ftz_d(f64 x) { return fabs(x) < 2.2250738585072014e-308 ? copysign(0.0, x) : x; }
static inline f32 SATF(f32 x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }   // NaN gives 0
static inline f64 SATD(f64 x) { return x > 0 ? (x < 1 ? x : 1.0) : 0.0; }
static inline f64 RELUD(f64 x) { return x != x ? x : x > 0 ? x : 0.0; }
static inline f32 RELUF(f32 x) { return x != x ? x : x > 0 ? x : 0.0f; }
static inline i32 SATI(i64 x) { return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (i32)x; }
static inline i32 RELUI(i32 x) { return x > 0 ? x : 0; }
static inline f32 fma_32(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
static inline f64 fma_64(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
static inline f64 upper32(f64 x) { return d_bits(bits_d(x) & 0xffffffff00000000ull); }
// min and max: of NaN and a number the number; -0 is less than +0
static inline f32 min_f(f32 a, f32 b) { f32 m = a < b ? a : a > b ? b : f_bits(bits_f(a) | bits_f(b)); return a != a ? b : b != b ? a : m; }
static inline f32 max_f(f32 a, f32 b) { f32 m = a > b ? a : a < b ? b : f_bits(bits_f(a) & bits_f(b)); return a != a ? b : b != b ? a : m; }
static inline f64 min_d(f64 a, f64 b) { f64 m = a < b ? a : a > b ? b : d_bits(bits_d(a) | bits_d(b)); return a != a ? b : b != b ? a : m; }
static inline f64 max_d(f64 a, f64 b) { f64 m = a > b ? a : a < b ? b : d_bits(bits_d(a) & bits_d(b)); return a != a ? b : b != b ? a : m; }
static inline f32 min_nan_f(f32 a, f32 b) { return a != a ? a : b != b ? b : min_f(a, b); }
static inline f32 max_nan_f(f32 a, f32 b) { return a != a ? a : b != b ? b : max_f(a, b); }
static inline f64 min_nan_d(f64 a, f64 b) { return a != a ? a : b != b ? b : min_d(a, b); }
static inline f64 max_nan_d(f64 a, f64 b) { return a != a ? a : b != b ? b : max_d(a, b); }
static inline f32 xorsign_f(f32 m, f32 a, f32 b) { return f_bits(bits_f(m) | ((bits_f(a) ^ bits_f(b)) & 0x80000000u)); }
static inline f32 lof(u64 x) { return f_bits((u32)x); }
static inline f32 hif(u64 x) { return f_bits((u32)(x >> 32)); }
static inline u64 pairf(f32 lo, f32 hi) { return bits_f(lo) | (u64)bits_f(hi) << 32; }

// --- approximations: in double and rounded once, closer than the hardware's stated error; but where
// that error is far above a rounding, as good as stated and no better: what is right here must be
// right there.
static inline f32 ex2_approx(f32 x) {
  f64 y = x > 200.0f ? 200.0 : x < -200.0f ? -200.0 : (f64)x;
  f64 n = rint(y), r = (y - n) * 0.6931471805599453;
  f64 p = 1.0 + r * (1.0 + r * (0.5 + r * (1.6666666666666666e-1 + r * (4.1666666666666664e-2 +
          r * (8.333333333333333e-3 + r * (1.388888888888889e-3 + r * (1.984126984126984e-4 +
          r * 2.48015873015873e-5)))))));
  f32 out = (f32)(p * d_bits((u64)((i64)(int)n + 1023) << 52));
  return x != x ? x : out;
}
static inline f32 lg2_approx(f32 x) {
  f64 y = (f64)x;
  u64 u = bits_d(y);
  i64 e = (i64)((u >> 52) & 0x7ff) - 1023;
  f64 m = d_bits((u & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  int up = m > 1.4142135623730951;
  m = up ? m * 0.5 : m;
  f64 s = (m - 1.0) / (m + 1.0), z = s * s;
  f64 p = 2.8853900817779268 * s * (1.0 + z * (0.3333333333333333 + z * (0.2 + z * (0.14285714285714285 +
          z * (0.1111111111111111 + z * (0.09090909090909091 + z * (0.07692307692307693 + z * 0.06666666666666667)))))));
  f32 out = (f32)((f64)(int)(e + up) + p);
  out = x == 0 ? -__builtin_inff() : out;
  out = x < 0 ? __builtin_nanf("") : out;
  return x != x || x == __builtin_inff() ? x : out;
}
// Exact but where the reciprocal of the divisor would be subnormal: there it is flushed to zero.
static inline f32 fast_div(f32 a, f32 b) {
  f32 size = fabsf(b);
  return size > 0x1p126f && size < INFINITY ? a * copysignf(0.0f, b) : a / b;
}
// Turns are rounded, as the hardware's are: the error grows with the argument.
static inline f64 turned(f32 x) { return 6.283185307179586 * (f64)(x * 0.15915494309189535f); }
static inline f32 sin_approx(f32 x) { return (f32)sin(turned(x)); }
static inline f32 cos_approx(f32 x) { return (f32)cos(turned(x)); }
static inline f32 tanh_approx(f32 x) {   // 11 bits, half an ulp of them the stated error of 2^-11
  u32 u = bits_f((f32)tanh((f64)x));
  return x != x ? x : f_bits((u + 0x1000u) & ~0x1fffu);
}

// --- f16 and bf16: values in the low 16 bits of a word --------------------------------------------
static inline f32 f16_f(u32 h) {
  u32 sign = (h & 0x8000u) << 16, body = h & 0x7fffu;
  f32 scaled = f_bits(body << 13) * 5.192296858534828e33f;         // 2^112
  u32 u = body >= 0x7c00u ? (body << 13) | 0x7f800000u : bits_f(scaled);
  return f_bits(u | sign);
}
static inline f32 bf16_f(u32 h) { return f_bits((h & 0xffffu) << 16); }
// Round to odd on the way to f32, so that the second rounding is the only one.
static inline f32 odd_f(f64 x) {
  f32 f = (f32)x;
  u32 u = bits_f(f);
  f64 back = (f64)f;
  u32 away = fabs(back) > fabs(x);
  u32 odd = ((u - away) | 1u);
  if (fabsf(f) == __builtin_inff() && fabs(x) != __builtin_inf()) return f_bits(u - 1);   // too large
  return back == x || x != x ? f : f_bits(odd);
}
static inline f64 odd_sum(f64 a, f64 b) {   // a + b rounded to odd
  f64 s = a + b, t = s - a, e = (a - (s - t)) + (b - t);
  u64 u = bits_d(s);
  int toward = (e < 0) == (s > 0) ? 1 : 0;   // the sum lies below the magnitude of s
  u64 odd = (u - (u64)toward) | 1;
  return e == 0 || s - s != 0 || e != e ? s : d_bits(odd);
}
static inline f64 fma_odd(f32 a, f32 b, f32 c) { return odd_sum((f64)a * (f64)b, (f64)c); }
static inline u32 f16_of(f32 f, int nearest) {
  u32 u = bits_f(f), sign = u >> 16 & 0x8000u, body = u & 0x7fffffffu;
  if (body > 0x7f800000u) return 0x7fffu;
  u32 r;
  if (body >= 0x38800000u) {                                         // normal in f16
    u32 base = body - 0x38000000u;
    r = nearest ? (base + 0xfffu + (base >> 13 & 1u)) >> 13 : base >> 13;
    u32 top = nearest || body == 0x7f800000u ? 0x7c00u : 0x7bffu;
    r = r > top ? top : r;
    if (body >= 0x47800000u) r = nearest || body == 0x7f800000u ? 0x7c00u : 0x7bffu;
  } else {
    u32 shift = 126u - (body >> 23);                                 // 2^-24 is the last bit
    u32 mantissa = (body & 0x7fffffu) | 0x800000u;
    if (body < 0x33000000u || shift > 31) r = 0;
    else {
      u32 rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
      r = mantissa >> shift;
      if (nearest && (rest > half || (rest == half && (r & 1)))) r++;
    }
  }
  return sign | r;
}
static inline u32 bf16_of(f32 f, int nearest) {
  u32 u = bits_f(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  if (!nearest) return u >> 16;
  return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
static inline u32 f16_r(f64 x) { return f16_of(odd_f(x), 1); }
static inline u32 f16_z(f64 x) { return f16_of(odd_f(x), 0); }
static inline u32 bf16_r(f64 x) { return bf16_of(odd_f(x), 1); }
static inline u32 bf16_z(f64 x) { return bf16_of(odd_f(x), 0); }
static inline f32 ftz_half(f32 x) { return fabsf(x) < 6.103515625e-05f ? copysignf(0.0f, x) : x; }
static inline u32 ftz_f16(u32 h) { return h & 0x7c00u ? h : h & 0x8000u; }
static inline f64 odd_u64(u64 x) { f64 d = (f64)x; return (u128)d == (u128)x ? d : d_bits((bits_d(d) - ((u128)d > (u128)x)) | 1); }
static inline f64 odd_s64(i64 x) { u64 m = x < 0 ? 0 - (u64)x : (u64)x; f64 d = odd_u64(m); return x < 0 ? -d : d; }
static inline u32 tf32_rna(f32 x) { u32 u = bits_f(x); return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0x1000u) & ~0x1fffu; }
static inline u32 tf32_rn(f32 x) { u32 u = bits_f(x); return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : (u & 0x7f800000u) == 0x7f800000u ? u : (u + 0xfffu + (u >> 13 & 1u)) & ~0x1fffu; }
static inline u32 tf32_rz(f32 x) { u32 u = bits_f(x); return (u & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : u & ~0x1fffu; }

// Floats and integers as integers: the nearest that there is, and 0 of NaN.
#define WHOLE(to, T, low, high, past) \
  static inline T sat_##to(i128 x) { return x < low ? low : x > high ? high : (T)x; } \
  static inline T whole_##to##_f(f32 x) { return x != x ? 0 : x >= past##f ? high : x <= (f32)low ? low : (T)x; } \
  static inline T whole_##to##_d(f64 x) { return x != x ? 0 : x >= past ? high : x <= (f64)low ? low : (T)x; }
WHOLE(u8, u8, 0, UINT8_MAX, 0x1p8) WHOLE(s8, i8, INT8_MIN, INT8_MAX, 0x1p7)
WHOLE(u16, u16, 0, UINT16_MAX, 0x1p16) WHOLE(s16, i16, INT16_MIN, INT16_MAX, 0x1p15)
WHOLE(u32, u32, 0, UINT32_MAX, 0x1p32) WHOLE(s32, i32, INT32_MIN, INT32_MAX, 0x1p31)
WHOLE(u64, u64, 0, UINT64_MAX, 0x1p64) WHOLE(s64, i64, INT64_MIN, INT64_MAX, 0x1p63)

// --- integers -------------------------------------------------------------------------------------
static inline u32 addc32(u32 a, u32 b, u32 c, u32 *o) { u64 s = (u64)a + b + (c & 1); if (o) *o = (u32)(s >> 32); return (u32)s; }
static inline u64 addc64(u64 a, u64 b, u32 c, u32 *o) { u64 s = a + b, t = s + (c & 1); if (o) *o = (s < a) | (t < s); return t; }
static inline u32 subc32(u32 a, u32 b, u32 c, u32 *o) { u64 s = (u64)a - b - (c & 1); if (o) *o = (u32)(s >> 63); return (u32)s; }
static inline u64 subc64(u64 a, u64 b, u32 c, u32 *o) { u64 s = a - b, t = s - (c & 1); if (o) *o = (a < b) | (s < (u64)(c & 1)); return t; }
static inline u32 brev_b32(u32 x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1; x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4; return __builtin_bswap32(x);
}
static inline u64 brev_b64(u64 x) { return (u64)brev_b32((u32)x) << 32 | brev_b32((u32)(x >> 32)); }
static inline u32 bfe_u32(u32 a, u32 b, u32 c) { b &= 255; c &= 255; if (!c || b > 31) return 0; u32 v = a >> b; return c >= 32 ? v : v & ((1u << c) - 1); }
static inline i32 bfe_s32(i32 a, u32 b, u32 c) {
  b &= 255; c &= 255; if (!c) return 0;
  u32 top = b + c - 1 > 31 ? 31 : b + c - 1, sign = (u32)a >> top & 1;
  if (b > 31) return sign ? -1 : 0;
  u32 v = (u32)a >> b;
  if (c < 32) { v &= (1u << c) - 1; if (sign) v |= ~0u << (c < 32 - b ? c : 32 - b > 31 ? 31 : 32 - b); }
  return sign && c >= 32 && b ? (i32)(v | ~0u << (32 - b)) : (i32)v;
}
static inline u64 bfe_u64(u64 a, u32 b, u32 c) { b &= 255; c &= 255; if (!c || b > 63) return 0; u64 v = a >> b; return c >= 64 ? v : v & ((1ull << c) - 1); }
static inline i64 bfe_s64(i64 a, u32 b, u32 c) {
  b &= 255; c &= 255; if (!c) return 0;
  u32 top = b + c - 1 > 63 ? 63 : b + c - 1; u64 sign = (u64)a >> top & 1;
  if (b > 63) return sign ? -1 : 0;
  u64 v = (u64)a >> b; u32 n = top - b + 1;
  if (n < 64) { v &= (1ull << n) - 1; if (sign) v |= ~0ull << n; }
  return (i64)v;
}
static inline u32 bfi_b32(u32 a, u32 b, u32 c, u32 n) { c &= 255; n &= 255; if (c > 31 || !n) return b; u32 m = (n >= 32 ? ~0u : (1u << n) - 1) << c; return (b & ~m) | (a << c & m); }
static inline u64 bfi_b64(u64 a, u64 b, u32 c, u32 n) { c &= 255; n &= 255; if (c > 63 || !n) return b; u64 m = (n >= 64 ? ~0ull : (1ull << n) - 1) << c; return (b & ~m) | (a << c & m); }
static inline u32 bfind_u32(u32 a, int s) { if (!a) return FULL; u32 p = 31 - __builtin_clz(a); return s ? 31 - p : p; }
static inline u32 bfind_s32(i32 a, int s) { return bfind_u32(a < 0 ? ~(u32)a : (u32)a, s); }
static inline u32 bfind_u64(u64 a, int s) { if (!a) return FULL; u32 p = 63 - __builtin_clzll(a); return s ? 63 - p : p; }
static inline u32 bfind_s64(i64 a, int s) { return bfind_u64(a < 0 ? ~(u64)a : (u64)a, s); }
static inline u32 pick(u64 v, u32 s) { u32 b = (u32)(v >> 8 * (s & 7)) & 255; return s & 8 ? (b & 128 ? 255 : 0) : b; }
static inline u32 prmt4(u64 v, u32 a, u32 b, u32 c, u32 d) { return pick(v, a) | pick(v, b) << 8 | pick(v, c) << 16 | pick(v, d) << 24; }
#define BOTH ((u64)b << 32 | a)
static inline u32 prmt_default(u32 a, u32 b, u32 s) { return prmt4(BOTH, s & 15, s >> 4 & 15, s >> 8 & 15, s >> 12 & 15); }
static inline u32 prmt_f4e(u32 a, u32 b, u32 s) { s &= 3; return prmt4(BOTH, s, s + 1, s + 2, s + 3); }
static inline u32 prmt_b4e(u32 a, u32 b, u32 s) { s &= 3; return prmt4(BOTH, s, (s + 7) & 7, (s + 6) & 7, (s + 5) & 7); }
static inline u32 prmt_rc8(u32 a, u32 b, u32 s) { s &= 3; return prmt4(BOTH, s, s, s, s); }
static inline u32 prmt_ecl(u32 a, u32 b, u32 s) { s &= 3; return prmt4(BOTH, s, s > 1 ? s : 1, s > 2 ? s : 2, 3); }
static inline u32 prmt_ecr(u32 a, u32 b, u32 s) { s &= 3; return prmt4(BOTH, 0, s < 1 ? s : 1, s < 2 ? s : 2, s); }
static inline u32 prmt_rc16(u32 a, u32 b, u32 s) { s = (s & 1) * 2; return prmt4(BOTH, s, s + 1, s, s + 1); }
#define DOT4(name, TA, TB) static inline u32 name(u32 a, u32 b, u32 c) { \
  for (int i = 0; i < 4; i++) c += (u32)((i32)(TA)(a >> 8 * i) * (i32)(TB)(b >> 8 * i)); return c; }
DOT4(dp4a_uu, u8, u8) DOT4(dp4a_us, u8, i8) DOT4(dp4a_su, i8, u8) DOT4(dp4a_ss, i8, i8)
#define DOT2(name, TA, TB) static inline u32 name(u32 a, u32 b, u32 c, int high) { \
  for (int i = 0; i < 2; i++) c += (u32)((i32)(TA)(a >> 16 * i) * (i32)(TB)(b >> (8 * i + 16 * high))); return c; }
DOT2(dp2a_uu, u16, u8) DOT2(dp2a_us, u16, i8) DOT2(dp2a_su, i16, u8) DOT2(dp2a_ss, i16, i8)
static inline u32 vabsdiff4(u32 a, u32 b) {
  u32 r = 0;
  for (int i = 0; i < 32; i += 8) { u32 x = a >> i & 255, y = b >> i & 255; r |= (x > y ? x - y : y - x) << i; }
  return r;
}
static inline u32 vabsdiff4_add(u32 a, u32 b, u32 c) {
  u32 r = vabsdiff4(a, b);
  return c + (r & 255) + (r >> 8 & 255) + (r >> 16 & 255) + (r >> 24);
}
static inline u32 lop3_b32(u32 a, u32 b, u32 c, u32 t) {
  u32 r = 0;
  for (int i = 0; i < 8; i++) r |= -(t >> i & 1) & (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return r;
}
static inline u32 fns_b32(u32 mask, u32 base, i32 offset) {
  if (base > 31) return FULL;
  if (!offset) return mask >> base & 1 ? base : FULL;
  int step = offset > 0 ? 1 : -1, left = offset > 0 ? offset : -offset;
  for (int i = (int)base; i >= 0 && i < 32; i += step) if (mask >> i & 1 && !--left) return (u32)i;
  return FULL;
}
static inline u32 szext_u32(u32 a, u32 n, int wrap) { n = wrap ? n & 31 : n > 32 ? 32 : n; return n >= 32 ? a : a & ((1u << n) - 1); }
static inline u32 szext_s32(u32 a, u32 n, int wrap) { n = wrap ? n & 31 : n > 32 ? 32 : n; return n == 0 ? 0 : n >= 32 ? a : (u32)((i32)(a << (32 - n)) >> (32 - n)); }
static inline u32 bmsk_b32(u32 a, u32 n, int wrap) { u64 s = wrap ? a & 31 : a, c = wrap ? n & 31 : n; if (s > 31 || !c) return 0; u64 m = c >= 32 ? FULL : (1ull << c) - 1; return (u32)(m << s); }
