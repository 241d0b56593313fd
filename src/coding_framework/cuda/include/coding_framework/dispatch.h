// AT_DISPATCH_*: a switch over dtypes, each case with its own scalar_t.
#pragma once
#include "core.h"

#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                    \
  [&] {                                                                                        \
    const ::c10::ScalarType cf_type = TYPE;                                                    \
    switch (cf_type) {                                                                         \
      __VA_ARGS__                                                                              \
      default:                                                                                 \
        ::c10::detail::fail("", '"', NAME, "\" not implemented for '", cf_type, "'");          \
    }                                                                                          \
  }()
#define CF_CASE(ENUM, TYPE, ...)        \
  case ::c10::ScalarType::ENUM: {       \
    using scalar_t [[maybe_unused]] = TYPE; \
    return __VA_ARGS__();               \
  }
#define CF_INDEX_CASE(ENUM, TYPE, ...)      \
  case ::c10::ScalarType::ENUM: {           \
    using index_t [[maybe_unused]] = TYPE;  \
    return __VA_ARGS__();                   \
  }
#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                              \
  AT_DISPATCH_SWITCH(TYPE, NAME, CF_INDEX_CASE(Int, int32_t, __VA_ARGS__)     \
                                     CF_INDEX_CASE(Long, int64_t, __VA_ARGS__))
#define CF_FLOATS(...) CF_CASE(Double, double, __VA_ARGS__) CF_CASE(Float, float, __VA_ARGS__)
#define CF_INTEGERS(...)                                                   \
  CF_CASE(Byte, uint8_t, __VA_ARGS__) CF_CASE(Char, int8_t, __VA_ARGS__)   \
  CF_CASE(Short, int16_t, __VA_ARGS__) CF_CASE(Int, int32_t, __VA_ARGS__)  \
  CF_CASE(Long, int64_t, __VA_ARGS__)

namespace c10 {
template <ScalarType T> struct ScalarTypeToCpp;
#define CF_MAP(ENUM, TYPE) \
  template <> struct ScalarTypeToCpp<ScalarType::ENUM> { using type = TYPE; };
CF_MAP(Byte, uint8_t)
CF_MAP(Char, int8_t)
CF_MAP(Short, int16_t)
CF_MAP(Int, int32_t)
CF_MAP(Long, int64_t)
CF_MAP(Float, float)
CF_MAP(Double, double)
CF_MAP(Bool, bool)
#ifdef CF_WANT_HALF
CF_MAP(Half, Half)
#endif
#ifdef CF_WANT_BFLOAT16
CF_MAP(BFloat16, BFloat16)
#endif
#undef CF_MAP
}  // namespace c10
#define AT_DISPATCH_CASE(ENUM, ...)                                              \
  case ENUM: {                                                                   \
    using scalar_t [[maybe_unused]] = ::c10::ScalarTypeToCpp<ENUM>::type;        \
    return __VA_ARGS__();                                                        \
  }
#define AT_DISPATCH_CASE_FLOATING_TYPES(...) CF_FLOATS(__VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...) CF_INTEGERS(__VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...) CF_INTEGERS(__VA_ARGS__) CF_FLOATS(__VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, CF_FLOATS(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, CF_FLOATS(__VA_ARGS__) CF_CASE(Half, ::c10::Half, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, CF_FLOATS(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, TYPE, NAME, ...)                      \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                    \
                     CF_FLOATS(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__)        \
                         AT_DISPATCH_CASE(B, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND3(A, B, C, TYPE, NAME, ...)                   \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                    \
                     CF_FLOATS(__VA_ARGS__) AT_DISPATCH_CASE(A, __VA_ARGS__)        \
                         AT_DISPATCH_CASE(B, __VA_ARGS__) AT_DISPATCH_CASE(C, __VA_ARGS__))
// no task has complex numbers: their cases are left out
#define AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES_AND_COMPLEX(TYPE, NAME, ...) \
  AT_DISPATCH_ALL_TYPES(TYPE, NAME, __VA_ARGS__)
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(TYPE, NAME, ...)           \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                      \
                     CF_CASE(Half, ::c10::Half, __VA_ARGS__)          \
                         CF_CASE(BFloat16, ::c10::BFloat16, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, CF_INTEGERS(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, CF_INTEGERS(__VA_ARGS__) CF_FLOATS(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(A, TYPE, NAME, ...)                                   \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                        \
                     CF_INTEGERS(__VA_ARGS__) CF_FLOATS(__VA_ARGS__)                    \
                         AT_DISPATCH_CASE(A, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(A, B, TYPE, NAME, ...)                               \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                        \
                     CF_INTEGERS(__VA_ARGS__) CF_FLOATS(__VA_ARGS__)                    \
                         AT_DISPATCH_CASE(A, __VA_ARGS__) AT_DISPATCH_CASE(B, __VA_ARGS__))
