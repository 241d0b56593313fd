// For headers of libraries that a kernel must not call: types as they are, functions that end the run
// as `rejected`, naming themselves. The real headers are not read, so that a verdict does not depend
// on which libraries a machine has.
#pragma once
#include <cuda_runtime.h>
#include <library_types.h>

extern "C" [[noreturn]] void cf_reject(const char* symbol);

#define CF_REJECTED_CALL(STATUS, NAME) \
  template <class... A>                \
  STATUS NAME(const A&...) { cf_reject(#NAME); }
