// Standard headers that a kernel may expect torch/extension.h to bring, each only where the
// compiler driver saw the source name something of it (source_features.py): a header costs 20 to
// 150 ms, because nvcc reads it four times, and compile time is why these headers exist.
#pragma once
#include <stddef.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <type_traits>

#ifdef CF_WANT_VECTOR
#include <vector>
#endif
#ifdef CF_WANT_STRING
#include <string>
#endif
#ifdef CF_WANT_OPTIONAL
#include <optional>
#endif
#ifdef CF_WANT_TUPLE
#include <tuple>
#endif
#ifdef CF_WANT_MINMAX
#include <bits/stl_algobase.h>  // of libstdc++: std::min, max, swap, copy, fill at a third of the cost
#endif
#ifdef CF_WANT_ALGORITHM
#include <algorithm>
#endif
#ifdef CF_WANT_SSTREAM
#include <sstream>
#endif
#ifdef CF_WANT_IOSTREAM
#include <iostream>
#endif
#ifdef CF_WANT_IOMANIP
#include <iomanip>
#endif
#ifdef CF_WANT_STDEXCEPT
#include <stdexcept>
#endif
#ifdef CF_WANT_FUNCTIONAL
#include <functional>
#endif
#ifdef CF_WANT_LIMITS
#include <limits>
#endif
#ifdef CF_WANT_MEMORY
#include <memory>
#endif
#ifdef CF_WANT_ARRAY
#include <array>
#endif
#ifdef CF_WANT_MAP
#include <map>
#endif
#ifdef CF_WANT_UNORDERED_MAP
#include <unordered_map>
#endif
#ifdef CF_WANT_SET
#include <set>
#endif
#ifdef CF_WANT_UNORDERED_SET
#include <unordered_set>
#endif
#ifdef CF_WANT_NUMERIC
#include <numeric>
#endif
#ifdef CF_WANT_CHRONO
#include <chrono>
#endif
#ifdef CF_WANT_MUTEX
#include <mutex>
#endif
#ifdef CF_WANT_ATOMIC
#include <atomic>
#endif
#ifdef CF_WANT_THREAD
#include <thread>
#endif
#ifdef CF_WANT_RANDOM
#include <random>
#endif
#ifdef CF_WANT_COMPLEX
#include <complex>
#endif
#ifdef CF_WANT_UTILITY
#include <utility>
#endif
#ifdef CF_WANT_CFLOAT
#include <float.h>
#endif
#ifdef CF_WANT_CLIMITS
#include <limits.h>
#endif
#ifdef CF_WANT_CSTDIO
#include <stdio.h>
#endif
#ifdef CF_WANT_CASSERT
#include <assert.h>
#endif
