// vprintf on the device: parsed and bounded; the text goes to the launch's buffer.
#include "rt.h"

int device_printf(Worker *k, Warp *w, const In *I) {
  (void)k;
  u32 *d = (u32 *)(w->R + I->d);
  const u32 *M = (const u32 *)w->R;
  EACH_LANE d[l] = M[l] ? 0 : d[l];
  return RUN;
}
