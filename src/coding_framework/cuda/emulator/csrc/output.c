// vprintf on the device: parsed here, bounded, appended to the launch's buffer as whole calls.
//
// As CUDA documents it: the arguments lie in local memory, each aligned to its size; the result is
// the number of arguments, or -1 for a null format. What does not fit into the buffer is counted.
#include "rt.h"
#include <pthread.h>
#include <stdio.h>

#define MAX_TEXT 1024      // of one call
#define MAX_FORMAT 1024
#define MAX_WIDTH 512      // also of a precision: more only fills the buffer

static pthread_mutex_t output_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct { Worker *k; Warp *w; const In *I; int lane; u64 at; int taken, failed; } Arguments;
typedef struct { char data[MAX_TEXT]; u32 used; } Text;

static void append(Text *t, const char *from, u32 n) {
  if (n > MAX_TEXT - t->used) n = MAX_TEXT - t->used;
  memcpy(t->data + t->used, from, n);
  t->used += n;
}

static u64 next_argument(Arguments *a, u32 size) {
  u64 value = 0;
  a->at = (a->at + size - 1) / size * size;
  const u8 *p = translate(a->k, a->w, a->I, a->lane, a->at, size, SPACE_GENERIC, 0);
  if (!p) { a->failed = 1; return 0; }
  memcpy(&value, p, size);
  a->at += size;
  a->taken++;
  return value;
}

// A NUL-terminated string of the device; its length, or -1 after an illegal read.
static int read_string(Arguments *a, u64 address, char *to, int room) {
  for (int n = 0; n < room; n++) {
    const u8 *p = translate(a->k, a->w, a->I, a->lane, address + n, 1, SPACE_GENERIC, 0);
    if (!p) { a->failed = 1; return -1; }
    if (!(to[n] = (char)*p)) return n;
  }
  to[room - 1] = 0;
  return room - 1;
}

static const char *number(const char *f, Arguments *a, int *value) {
  if (*f == '*') { *value = (int)next_argument(a, 4); return f + 1; }
  int n = 0;
  for (; *f >= '0' && *f <= '9'; f++) n = n > MAX_WIDTH ? n : n * 10 + (*f - '0');
  *value = n;
  return f;
}

// One conversion behind its '%'; returns the format behind it.
static const char *convert(const char *f, Arguments *a, Text *t) {
  const char *start = f;
  char flags[8] = "", spec[64], out[MAX_TEXT];
  int nflags = 0, width = 0, precision = -1, longs = 0, shorts = 0, n = 0;
  while (*f && strchr("-+ #0", *f)) { if (nflags < 6) flags[nflags++] = *f; f++; }
  flags[nflags] = 0;
  f = number(f, a, &width);
  if (width < 0) { width = -width; if (nflags < 7) { flags[nflags++] = '-'; flags[nflags] = 0; } }
  if (*f == '.') f = number(f + 1, a, &precision);
  while (*f && strchr("hlLqjzt", *f)) { longs += *f == 'h' ? 0 : *f == 'l' ? 1 : 2; shorts += *f == 'h'; f++; }
  if (width > MAX_WIDTH) width = MAX_WIDTH;
  if (precision > MAX_WIDTH) precision = MAX_WIDTH;
  char how = *f;
  int at = snprintf(spec, sizeof spec, "%%%s", flags);
  if (width) at += snprintf(spec + at, sizeof spec - at, "%d", width);
  if (precision >= 0) at += snprintf(spec + at, sizeof spec - at, ".%d", precision);
  if (how && strchr("diouxX", how)) {
    u64 v = next_argument(a, longs ? 8 : 4);
    int is_signed = how == 'd' || how == 'i';
    if (!longs) v = is_signed ? (u64)(i64)(i32)v : (u32)v;
    if (shorts == 1) v = is_signed ? (u64)(i64)(i16)v : (u16)v;
    if (shorts > 1) v = is_signed ? (u64)(i64)(i8)v : (u8)v;
    snprintf(spec + at, sizeof spec - at, "ll%c", how);
    n = snprintf(out, sizeof out, spec, (unsigned long long)v);
  } else if (how && strchr("fFeEgGaA", how)) {
    u64 bits = next_argument(a, 8);
    double v;
    memcpy(&v, &bits, 8);
    snprintf(spec + at, sizeof spec - at, "%c", how);
    n = snprintf(out, sizeof out, spec, v);
  } else if (how == 'c') {
    snprintf(spec + at, sizeof spec - at, "c");
    n = snprintf(out, sizeof out, spec, (int)next_argument(a, 4));
  } else if (how == 'p') {
    n = snprintf(out, sizeof out, "0x%llx", (unsigned long long)next_argument(a, 8));
  } else if (how == 's') {
    char string[MAX_TEXT];
    u64 address = next_argument(a, 8);
    if (a->failed || read_string(a, address, string, sizeof string) < 0) return f;
    snprintf(spec + at, sizeof spec - at, "s");
    n = snprintf(out, sizeof out, spec, string);
  } else if (how == '%') {
    append(t, "%", 1);
    return f + 1;
  } else {   // as CUDA does: an unknown conversion is printed as it stands
    append(t, "%", 1);
    append(t, start, (u32)(f - start));
    return f;
  }
  if (n > 0 && !a->failed) append(t, out, (u32)n < sizeof out ? (u32)n : sizeof out - 1);
  return f + 1;
}

static void keep(Launch *L, const Text *t) {
  pthread_mutex_lock(&output_lock);
  u64 room = L->output_bytes < L->output_size ? L->output_size - L->output_bytes : 0;
  if (room) memcpy(L->output + L->output_bytes, t->data, t->used < room ? t->used : room);
  L->output_bytes += t->used;
  pthread_mutex_unlock(&output_lock);
}

int device_printf(Worker *k, Warp *w, const In *I) {
  const u32 *format = (const u32 *)(w->R + I->a), *list = (const u32 *)(w->R + I->b);
  u32 *d = (u32 *)(w->R + I->d);
  for (u32 x = w->mask; x; x &= x - 1) {
    int l = __builtin_ctz(x);
    u64 from = format[l] | (u64)format[LANES + l] << 32;
    Arguments a = {k, w, I, l, list[l] | (u64)list[LANES + l] << 32, 0, 0};
    if (!from) { d[l] = (u32)-1; continue; }
    char text[MAX_FORMAT];
    Text t = {.used = 0};
    if (read_string(&a, from, text, sizeof text) < 0) return FAULTED;
    for (const char *f = text; *f && !a.failed;) {
      const char *mark = strchr(f, '%');
      if (!mark) { append(&t, f, (u32)strlen(f)); break; }
      append(&t, f, (u32)(mark - f));
      f = convert(mark + 1, &a, &t);
    }
    if (a.failed) return FAULTED;
    keep(k->L, &t);
    d[l] = (u32)a.taken;
  }
  return RUN;
}
