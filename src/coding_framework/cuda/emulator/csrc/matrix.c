// Warp-wide matrix instructions.
#include "lane_math.h"
#include "rt.h"

int warp_matrix(Worker *k, Warp *w, const In *I) {
  return raise_fault(k, w, FAULT_TRAP, I->pc, 0, 0, 0, 0);
}
