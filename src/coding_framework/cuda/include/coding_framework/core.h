// c10's small types: Device, IntArrayRef, Error, TORCH_CHECK and its relatives.
#pragma once
#include "scalar_type.h"

// Ends the run as `rejected`: the candidate called a library instead of computing in its kernels.
extern "C" [[noreturn]] void cf_reject(const char* symbol);

namespace c10 {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;

class Device {
 public:
  Device(DeviceType type = kCUDA, int index = -1) : type_(type), index_(index) {}
  Device(const char* name);
  DeviceType type() const { return type_; }
  int index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  bool operator==(const Device& o) const { return type_ == o.type_ && index_ == o.index_; }
  bool operator!=(const Device& o) const { return !(*this == o); }

 private:
  DeviceType type_;
  int index_;
};

template <class T>
class ArrayRef {
 public:
  ArrayRef() = default;
  ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  ArrayRef(const T& one) : data_(&one), size_(1) {}
  ArrayRef(const std::initializer_list<T>& list) : data_(list.begin()), size_(list.size()) {}
  template <class C, class = decltype(static_cast<const T*>(static_cast<const C*>(nullptr)->data()))>
  ArrayRef(const C& container) : data_(container.data()), size_(container.size()) {}
  template <size_t N>
  ArrayRef(const T (&array)[N]) : data_(array), size_(N) {}
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const { return data_[i]; }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }
  ArrayRef slice(size_t from, size_t count) const { return ArrayRef(data_ + from, count); }
  ArrayRef slice(size_t from) const { return ArrayRef(data_ + from, size_ - from); }
  bool equals(ArrayRef o) const {
    if (size_ != o.size_) return false;
    for (size_t i = 0; i < size_; i++)
      if (!(data_[i] == o.data_[i])) return false;
    return true;
  }
#ifdef CF_WANT_VECTOR
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  operator std::vector<T>() const { return vec(); }
#endif

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) { return a.equals(b); }
template <class T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) { return !a.equals(b); }
using IntArrayRef = ArrayRef<int64_t>;

// Of any stream, whose header need not be there.
template <class S, class T, class = decltype(std::declval<S&>().flush())>
S& operator<<(S& out, ArrayRef<T> values) {
  out << "[";
  for (size_t i = 0; i < values.size(); i++) {
    if (i > 0) out << ", ";
    out << values[i];
  }
  out << "]";
  return out;
}
template <class S, class = decltype(std::declval<S&>().flush())>
S& operator<<(S& out, ScalarType type) {
  out << toString(type);
  return out;
}
template <class S, class = decltype(std::declval<S&>().flush())>
S& operator<<(S& out, DeviceType type) {
  out << (type == kCUDA ? "cuda" : "cpu");
  return out;
}
template <class S, class = decltype(std::declval<S&>().flush())>
S& operator<<(S& out, Device device) {
  out << device.type();
  if (device.has_index()) out << ":" << device.index();
  return out;
}

#ifdef CF_WANT_OPTIONAL
template <class T>
using optional = std::optional<T>;
using std::nullopt;
using std::nullopt_t;
#endif

// A message of bounded length, put together without <sstream>.
class Text {
 public:
  Text& put(const char* s);
  Text& put(bool v) { return put(v ? "1" : "0"); }
  Text& put(char c);
  Text& put(long long v);
  Text& put(unsigned long long v);
  Text& put(int v) { return put(static_cast<long long>(v)); }
  Text& put(long v) { return put(static_cast<long long>(v)); }
  Text& put(unsigned v) { return put(static_cast<unsigned long long>(v)); }
  Text& put(unsigned long v) { return put(static_cast<unsigned long long>(v)); }
  Text& put(double v);
  Text& put(float v) { return put(static_cast<double>(v)); }
  Text& put(ScalarType t) { return put(toString(t)); }
  Text& put(Device d);
  Text& put(DeviceType t) { return put(t == kCUDA ? "cuda" : "cpu"); }
  Text& put(IntArrayRef v);
#ifdef CF_WANT_STRING
  Text& put(const std::string& s) { return put(s.c_str()); }
#endif
  template <class T>
  Text& put(const T& v) {
    if constexpr (std::is_convertible<T, ScalarType>::value) return put(static_cast<ScalarType>(v));
    else if constexpr (__is_enum(T)) return put(static_cast<long long>(v));
    else if constexpr (std::is_convertible<T, IntArrayRef>::value) return put(IntArrayRef(v));
    else if constexpr (std::is_convertible<T, const char*>::value) return put(static_cast<const char*>(v));
    else return put("<value>");
  }
  const char* c_str() const { return text_; }

 private:
  char text_[1000] = {};
  unsigned size_ = 0;
};

class Error : public std::exception {
 public:
  explicit Error(const Text& text) : text_(text) {}
  const char* what() const noexcept override;
  const char* msg() const { return what(); }

 private:
  Text text_;
};

namespace detail {
[[noreturn]] void raise(const Text& text);
template <class... A>
[[noreturn]] void fail(const char* otherwise, const A&... parts) {
  Text text;
  if constexpr (sizeof...(A) == 0) text.put(otherwise);
  else (text.put(parts), ...);
  raise(text);
}
inline void warn() {}
void check_cuda(cudaError_t code);
}  // namespace detail

#ifdef CF_WANT_STRING
template <class... A>
std::string str(const A&... parts) {
  Text text;
  (text.put(parts), ...);
  return text.c_str();
}
#endif

}  // namespace c10

#define CF_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TORCH_CHECK(COND, ...)                                                               \
  do {                                                                                       \
    if (CF_UNLIKELY(!(COND)))                                                                \
      ::c10::detail::fail("Expected " #COND " to be true, but got false.", ##__VA_ARGS__);   \
  } while (0)
#define TORCH_CHECK_WITH(ERROR, COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define AT_ASSERT(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define AT_ASSERTM(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define AT_CHECK(COND, ...) TORCH_CHECK(COND, ##__VA_ARGS__)
#define AT_ERROR(...) ::c10::detail::fail("error", ##__VA_ARGS__)
#define CF_COMPARE(A, OP, B, ...) TORCH_CHECK((A)OP(B), ##__VA_ARGS__)
#define TORCH_CHECK_EQ(A, B, ...) CF_COMPARE(A, ==, B, ##__VA_ARGS__)
#define TORCH_CHECK_NE(A, B, ...) CF_COMPARE(A, !=, B, ##__VA_ARGS__)
#define TORCH_CHECK_LT(A, B, ...) CF_COMPARE(A, <, B, ##__VA_ARGS__)
#define TORCH_CHECK_LE(A, B, ...) CF_COMPARE(A, <=, B, ##__VA_ARGS__)
#define TORCH_CHECK_GT(A, B, ...) CF_COMPARE(A, >, B, ##__VA_ARGS__)
#define TORCH_CHECK_GE(A, B, ...) CF_COMPARE(A, >=, B, ##__VA_ARGS__)
#define TORCH_WARN(...) ((void)0)
#define TORCH_WARN_ONCE(...) ((void)0)
#define C10_CUDA_CHECK(EXPR) ::c10::detail::check_cuda(EXPR)
#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define TORCH_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define C10_CUDA_CHECK_WARN(EXPR) ((void)(EXPR))
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_RESTRICT __restrict__
#define C10_LIKELY(x) __builtin_expect(!!(x), 1)
#define C10_UNLIKELY(x) CF_UNLIKELY(x)
#define C10_LAUNCH_BOUNDS_1(a) __launch_bounds__(a)
#define C10_LAUNCH_BOUNDS_2(a, b) __launch_bounds__(a, b)
#define C10_ALWAYS_INLINE inline __attribute__((always_inline))
#define TORCH_API
#define C10_API
#define C10_EXPORT
