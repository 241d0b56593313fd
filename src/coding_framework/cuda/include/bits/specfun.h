// In place of libstdc++'s header of this name, which its <cmath> includes from C++17 on: Bessel
// functions and the like, and half of the compiler's work on a small kernel (0.70 s with them, 0.50 s
// without). A source that may need one of them, or what comes along with them, gets the real one
// (source_features.py), as does every source that is no torch extension.
#if !defined(TORCH_EXTENSION_NAME) || defined(CF_WANT_WHOLE_CMATH)
#include_next <bits/specfun.h>
#endif
