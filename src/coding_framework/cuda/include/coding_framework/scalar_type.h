// c10::ScalarType, c10::Half, c10::BFloat16, and the map between C++ types and dtypes.
#pragma once
#include <cuda_runtime.h>

#include "standard_library.h"
#ifdef CF_WANT_HALF
#include <cuda_fp16.h>
#endif
#ifdef CF_WANT_BFLOAT16
#include <cuda_bf16.h>
#endif

namespace c10 {

enum class ScalarType : int8_t {  // the numbers are torch's, and those of the wire
  Byte = 0,
  Char = 1,
  Short = 2,
  Int = 3,
  Long = 4,
  Half = 5,
  Float = 6,
  Double = 7,
  Bool = 11,
  BFloat16 = 15,
  Undefined = 21
};

constexpr int64_t elementSize(ScalarType t) {
  switch (t) {
    case ScalarType::Short:
    case ScalarType::Half:
    case ScalarType::BFloat16:
      return 2;
    case ScalarType::Int:
    case ScalarType::Float:
      return 4;
    case ScalarType::Long:
    case ScalarType::Double:
      return 8;
    default:
      return 1;
  }
}
constexpr bool isFloatingType(ScalarType t) {
  return t == ScalarType::Float || t == ScalarType::Double || t == ScalarType::Half ||
         t == ScalarType::BFloat16;
}
constexpr bool isIntegralType(ScalarType t, bool with_bool = false) {
  return t <= ScalarType::Long || (with_bool && t == ScalarType::Bool);
}
const char* toString(ScalarType t);

// Both convert implicitly to and from float, and compute in float, as torch's do.
#define CF_SMALL_FLOAT(NAME, VENDOR, EXPLICIT, TO_FLOAT, FROM_FLOAT)                                       \
  struct alignas(2) NAME {                                                                       \
    unsigned short x;                                                                            \
    NAME() = default;                                                                            \
    struct from_bits_t {};                                                                       \
    static constexpr __host__ __device__ from_bits_t from_bits() { return from_bits_t(); }       \
    constexpr __host__ __device__ NAME(unsigned short bits, from_bits_t) : x(bits) {}            \
    __host__ __device__ NAME(float v) {                                                          \
      VENDOR h = FROM_FLOAT(v);                                                                  \
      x = *reinterpret_cast<unsigned short*>(&h);                                                \
    }                                                                                            \
    __host__ __device__ NAME(const VENDOR& h)                                                    \
        : x(*reinterpret_cast<const unsigned short*>(&h)) {}                                     \
    __host__ __device__ operator float() const {                                                 \
      return TO_FLOAT(*reinterpret_cast<const VENDOR*>(&x));                                     \
    }                                                                                            \
    __host__ __device__ EXPLICIT operator VENDOR() const {                                       \
      return *reinterpret_cast<const VENDOR*>(&x);                                               \
    }                                                                                            \
    __host__ __device__ NAME& operator+=(const NAME& o) { return *this = *this + o; }            \
    __host__ __device__ NAME& operator-=(const NAME& o) { return *this = *this - o; }            \
    __host__ __device__ NAME& operator*=(const NAME& o) { return *this = *this * o; }            \
    __host__ __device__ NAME& operator/=(const NAME& o) { return *this = *this / o; }            \
    CF_SMALL_FLOAT_OPERATOR(NAME, +)                                                             \
    CF_SMALL_FLOAT_OPERATOR(NAME, -)                                                             \
    CF_SMALL_FLOAT_OPERATOR(NAME, *)                                                             \
    CF_SMALL_FLOAT_OPERATOR(NAME, /)                                                             \
    friend __host__ __device__ NAME operator-(const NAME& a) { return -float(a); }               \
  };
#define CF_SMALL_FLOAT_OPERATOR(NAME, OP)                                                       \
  friend __host__ __device__ NAME operator OP(const NAME& a, const NAME& b) {                   \
    return float(a) OP float(b);                                                                \
  }                                                                                             \
  friend __host__ __device__ float operator OP(const NAME& a, float b) { return float(a) OP b; } \
  friend __host__ __device__ float operator OP(float a, const NAME& b) { return a OP float(b); } \
  friend __host__ __device__ double operator OP(const NAME& a, double b) {                      \
    return double(float(a)) OP b;                                                               \
  }                                                                                             \
  friend __host__ __device__ double operator OP(double a, const NAME& b) {                      \
    return a OP double(float(b));                                                               \
  }                                                                                             \
  friend __host__ __device__ NAME operator OP(const NAME& a, int b) {                           \
    return float(a) OP float(b);                                                                \
  }                                                                                             \
  friend __host__ __device__ NAME operator OP(int a, const NAME& b) {                           \
    return float(a) OP float(b);                                                                \
  }
// Found by the namespace of its argument, as torch's are.
#ifdef __CUDACC__
#define CF_SMALL_FLOAT_LDG(NAME)                                         \
  inline __device__ NAME __ldg(const NAME* at) {                                 \
    return NAME(::__ldg(reinterpret_cast<const unsigned short*>(at)), NAME::from_bits()); \
  }
#else
#define CF_SMALL_FLOAT_LDG(NAME)
#endif
#ifdef CF_WANT_HALF
CF_SMALL_FLOAT(Half, __half, , __half2float, __float2half_rn)
CF_SMALL_FLOAT_LDG(Half)
#endif
#ifdef CF_WANT_BFLOAT16
CF_SMALL_FLOAT(BFloat16, __nv_bfloat16, explicit, __bfloat162float, __float2bfloat16_rn)
CF_SMALL_FLOAT_LDG(BFloat16)
#endif

template <class T>
struct CppTypeToScalarType;
#define CF_MAP(TYPE, NAME)                               \
  template <>                                            \
  struct CppTypeToScalarType<TYPE> {                     \
    static constexpr ScalarType value = ScalarType::NAME; \
  };
CF_MAP(uint8_t, Byte)
CF_MAP(int8_t, Char)
CF_MAP(int16_t, Short)
CF_MAP(int32_t, Int)
CF_MAP(int64_t, Long)
CF_MAP(long long, Long)
CF_MAP(float, Float)
CF_MAP(double, Double)
CF_MAP(bool, Bool)
#ifdef CF_WANT_HALF
CF_MAP(Half, Half)
CF_MAP(__half, Half)
#endif
#ifdef CF_WANT_BFLOAT16
CF_MAP(BFloat16, BFloat16)
CF_MAP(__nv_bfloat16, BFloat16)
#endif
#undef CF_MAP

constexpr ScalarType kByte = ScalarType::Byte, kUInt8 = kByte;
constexpr ScalarType kChar = ScalarType::Char, kInt8 = kChar;
constexpr ScalarType kShort = ScalarType::Short, kInt16 = kShort;
constexpr ScalarType kInt = ScalarType::Int, kInt32 = kInt;
constexpr ScalarType kLong = ScalarType::Long, kInt64 = kLong;
constexpr ScalarType kHalf = ScalarType::Half, kFloat16 = kHalf;
constexpr ScalarType kFloat = ScalarType::Float, kFloat32 = kFloat;
constexpr ScalarType kDouble = ScalarType::Double, kFloat64 = kDouble;
constexpr ScalarType kBool = ScalarType::Bool;
constexpr ScalarType kBFloat16 = ScalarType::BFloat16;

}  // namespace c10
