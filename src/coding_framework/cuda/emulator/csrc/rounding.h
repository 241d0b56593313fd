// The rounding direction of the CPU, around one handler. The memory clobbers keep the compiler from
// moving the handler's loads and stores, and so its arithmetic, across the switch.
#pragma once
#include <fenv.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#define SET_RZ _MM_ROUND_TOWARD_ZERO
#define SET_RM _MM_ROUND_DOWN
#define SET_RP _MM_ROUND_UP
static inline void set_rounding(unsigned mode) {
  __asm__ volatile("" ::: "memory");
  _mm_setcsr((_mm_getcsr() & ~(unsigned)_MM_ROUND_MASK) | mode);
  __asm__ volatile("" ::: "memory");
}
#define SET_RN _MM_ROUND_NEAREST
#else
#define SET_RZ FE_TOWARDZERO
#define SET_RM FE_DOWNWARD
#define SET_RP FE_UPWARD
#define SET_RN FE_TONEAREST
static inline void set_rounding(int mode) {
  __asm__ volatile("" ::: "memory");
  fesetround(mode);
  __asm__ volatile("" ::: "memory");
}
#endif
