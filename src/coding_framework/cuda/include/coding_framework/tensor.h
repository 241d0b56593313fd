// at::Tensor: a handle on metadata and on an address that this process cannot read. The members are
// defined in the host runner, so that a kernel's compilation only sees declarations. What torch
// would compute (arithmetic, reductions, dtype casts, strided copies) ends the run as `rejected`.
#pragma once
#include "core.h"

extern "C" {
enum { CF_MAX_DIMS = 16 };
struct cf_storage;
struct cf_tensor {
  int32_t references;
  int32_t dims;
  c10::ScalarType dtype;
  bool on_host;
  bool given;  // by the caller, in this very layout
  int64_t sizes[CF_MAX_DIMS];
  int64_t strides[CF_MAX_DIMS];
  char* data;
  cf_storage* storage;
};
void cf_release(cf_tensor* tensor);
}

namespace at {
using namespace c10;

class Scalar {
 public:
  Scalar() : Scalar(0) {}
  Scalar(double v) : floating_(v), integer_(static_cast<int64_t>(v)), is_floating_(true) {}
  Scalar(float v) : Scalar(static_cast<double>(v)) {}
  Scalar(int64_t v) : floating_(static_cast<double>(v)), integer_(v), is_floating_(false) {}
  Scalar(long long v) : Scalar(static_cast<int64_t>(v)) {}
  Scalar(int v) : Scalar(static_cast<int64_t>(v)) {}
  Scalar(bool v) : Scalar(static_cast<int64_t>(v)) {}
  template <class T>
  T to() const { return is_floating_ ? static_cast<T>(floating_) : static_cast<T>(integer_); }
  double toDouble() const { return floating_; }
  int64_t toLong() const { return integer_; }
  bool isFloatingPoint() const { return is_floating_; }

 private:
  double floating_;
  int64_t integer_;
  bool is_floating_;
};

enum class Layout : int8_t { Strided };
constexpr Layout kStrided = Layout::Strided;
enum class MemoryFormat : int8_t { Contiguous, Preserve };

struct TypeMeta {  // what Tensor::dtype() gives: compares with, and converts to, a ScalarType
  ScalarType type;
  operator ScalarType() const { return type; }
  ScalarType toScalarType() const { return type; }
  const char* name() const { return toString(type); }
  size_t itemsize() const { return static_cast<size_t>(elementSize(type)); }
};

// What the deprecated Tensor::type() gives.
struct DeprecatedTypeProperties {
  ScalarType type;
  bool cuda;
  operator ScalarType() const { return type; }
  ScalarType scalarType() const { return type; }
  bool is_cuda() const { return cuda; }
  const char* toString() const { return c10::toString(type); }
};

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType t) : type_(t) {}
  TensorOptions(TypeMeta t) : type_(t.type) {}
  TensorOptions(Device d) : device_(d) {}
  TensorOptions(DeviceType d) : device_(d) {}
  TensorOptions dtype(ScalarType t) const { auto r = *this; r.type_ = t; return r; }
  TensorOptions device(Device d) const { auto r = *this; r.device_ = d; return r; }
  TensorOptions device(DeviceType d, int i) const { return device(Device(d, i)); }
  TensorOptions requires_grad(bool = true) const { return *this; }
  TensorOptions layout(Layout) const { return *this; }
  TensorOptions memory_format(MemoryFormat) const { return *this; }
  TensorOptions pinned_memory(bool) const { return *this; }
  TypeMeta dtype() const { return {type_}; }
  Device device() const { return device_; }

 private:
  ScalarType type_ = kFloat;
  Device device_ = Device(kCPU);  // torch's default too
};
template <class S, class = decltype(std::declval<S&>().flush())>
S& operator<<(S& out, TypeMeta type) {
  out << type.name();
  return out;
}
template <class S, class = decltype(std::declval<S&>().flush())>
S& operator<<(S& out, const TensorOptions& options) {
  out << "TensorOptions(dtype=" << options.dtype() << ", device=" << options.device() << ")";
  return out;
}
inline TensorOptions dtype(ScalarType t) { return TensorOptions(t); }
inline TensorOptions device(Device d) { return TensorOptions(d); }
inline TensorOptions requires_grad(bool = true) { return {}; }

template <class T> struct DefaultPtrTraits { using PtrType = T*; };
template <class T> struct RestrictPtrTraits { using PtrType = T* __restrict__; };
template <class T, size_t N, template <class> class P, class I> class PackedTensorAccessor;
template <class T, size_t N, template <class> class P, class I> class TensorAccessor;

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(cf_tensor* owned) : impl_(owned) {}
  Tensor(const Tensor& o) : impl_(o.impl_) { if (impl_) impl_->references++; }
  Tensor(Tensor&& o) noexcept : impl_(o.impl_) { o.impl_ = nullptr; }
  Tensor& operator=(Tensor o) { auto* t = impl_; impl_ = o.impl_; o.impl_ = t; return *this; }
  ~Tensor() { if (impl_) cf_release(impl_); }

  bool defined() const { return impl_ != nullptr; }
  void reset() { *this = Tensor(); }
  cf_tensor* impl() const;  // raises on an undefined tensor
  int64_t dim() const { return impl()->dims; }
  int64_t ndimension() const { return dim(); }
  int64_t size(int64_t i) const;
  int64_t stride(int64_t i) const;
  IntArrayRef sizes() const { auto* t = impl(); return IntArrayRef(t->sizes, t->dims); }
  IntArrayRef strides() const { auto* t = impl(); return IntArrayRef(t->strides, t->dims); }
  int64_t numel() const;
  int64_t element_size() const { return elementSize(scalar_type()); }
  int64_t itemsize() const { return element_size(); }
  size_t nbytes() const { return static_cast<size_t>(numel() * element_size()); }
  int64_t storage_offset() const;
  ScalarType scalar_type() const { return impl()->dtype; }
  TypeMeta dtype() const { return {scalar_type()}; }
  DeprecatedTypeProperties type() const { return {scalar_type(), is_cuda()}; }
  Layout layout() const { return kStrided; }
  Device device() const { return impl()->on_host ? Device(kCPU) : Device(kCUDA, 0); }
  int64_t get_device() const { return impl()->on_host ? -1 : 0; }
  TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
  bool is_cuda() const { return !impl()->on_host; }
  bool is_cpu() const { return impl()->on_host; }
  bool is_contiguous() const;
  bool is_contiguous(MemoryFormat) const { return is_contiguous(); }
  bool is_floating_point() const { return isFloatingType(scalar_type()); }
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }
  bool is_sparse() const { return false; }
  bool is_pinned() const { return false; }
  bool requires_grad() const { return false; }
  const Tensor& set_requires_grad(bool) const { return *this; }
  const Tensor& requires_grad_(bool = true) const { return *this; }

  void* data_ptr() const { return impl()->data; }
  const void* const_data_ptr() const { return impl()->data; }
  void* mutable_data_ptr() const { return impl()->data; }
  template <class T>
  T* data_ptr() const {
    return static_cast<T*>(typed(CppTypeToScalarType<std::remove_const_t<T>>::value));
  }
  template <class T> const T* const_data_ptr() const { return data_ptr<std::remove_const_t<T>>(); }
  template <class T> T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T> T* data() const { return data_ptr<T>(); }
  template <class T> T item() const { return item().template to<T>(); }
  Scalar item() const;

  // metadata only
  Tensor view(IntArrayRef sizes) const;
  Tensor reshape(IntArrayRef sizes) const;
  Tensor view_as(const Tensor& o) const { return view(o.sizes()); }
  Tensor reshape_as(const Tensor& o) const { return reshape(o.sizes()); }
  Tensor flatten(int64_t from = 0, int64_t to = -1) const;
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const;
  Tensor permute(IntArrayRef order) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t i) const;
  Tensor unsqueeze(int64_t i) const;
  Tensor expand(IntArrayRef sizes) const;
  Tensor expand_as(const Tensor& o) const { return expand(o.sizes()); }
  Tensor select(int64_t i, int64_t index) const;
  Tensor narrow(int64_t i, int64_t from, int64_t count) const;
  Tensor slice(int64_t i, int64_t from, int64_t to, int64_t step = 1) const;
  Tensor as_strided(IntArrayRef sizes, IntArrayRef strides) const;
  Tensor operator[](int64_t index) const { return select(0, index); }
  Tensor detach() const { return *this; }
  Tensor alias() const { return *this; }

  // copies between and within memories, where the layout allows a plain copy
  Tensor contiguous() const;
  Tensor contiguous(MemoryFormat) const { return contiguous(); }
  Tensor clone() const;
  Tensor to(ScalarType t) const;
  Tensor to(Device d) const;
  Tensor to(DeviceType d) const { return to(Device(d)); }
  Tensor to(const TensorOptions& o) const { return to(o.device()).to(o.dtype().type); }
  Tensor to(Device d, ScalarType t) const { return to(d).to(t); }
  Tensor to(const Tensor& o) const { return to(o.options()); }
  Tensor toType(ScalarType t) const { return to(t); }
  Tensor to_type(ScalarType t) const { return to(t); }
  Tensor type_as(const Tensor& o) const { return to(o.scalar_type()); }
  Tensor to_float() const { return to(kFloat); }
  Tensor cuda() const { return to(Device(kCUDA, 0)); }
  Tensor cpu() const { return to(Device(kCPU)); }
  Tensor pin_memory() const { return *this; }
  Tensor copy_(const Tensor& source, bool non_blocking = false) const;
  Tensor zero_() const;
  Tensor fill_(Scalar value) const;
  Tensor new_empty(IntArrayRef sizes) const;
  Tensor new_zeros(IntArrayRef sizes) const;

  template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
  PackedTensorAccessor<T, N, P, I> generic_packed_accessor() const {
    return {check_accessor<T>(N)->data, impl_->sizes, impl_->strides};
  }
  template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
  PackedTensorAccessor<T, N, P, I> packed_accessor() const {
    return generic_packed_accessor<T, N, P, I>();
  }
  template <class T, size_t N, template <class> class P = DefaultPtrTraits>
  PackedTensorAccessor<T, N, P, int32_t> packed_accessor32() const {
    return generic_packed_accessor<T, N, P, int32_t>();
  }
  template <class T, size_t N, template <class> class P = DefaultPtrTraits>
  PackedTensorAccessor<T, N, P, int64_t> packed_accessor64() const {
    return generic_packed_accessor<T, N, P, int64_t>();
  }
  template <class T, size_t N>
  TensorAccessor<T, N, DefaultPtrTraits, int64_t> accessor() const {
    cf_tensor* t = check_accessor<T>(N);
    return {reinterpret_cast<T*>(t->data), t->sizes, t->strides};
  }

#define CF_REJECTED_MEMBER(NAME)                                                     \
  template <class... A> Tensor NAME(const A&...) const { cf_reject("at::Tensor::" #NAME); } \
  template <class... A> Tensor NAME(IntArrayRef, const A&...) const { cf_reject("at::Tensor::" #NAME); }
#include "library_calls.inc"
#undef CF_REJECTED_MEMBER

 private:
  void* typed(ScalarType expected) const;
  template <class T>
  cf_tensor* check_accessor(size_t dims) const {
    data_ptr<T>();
    if (dim() != static_cast<int64_t>(dims))
      c10::detail::fail("", "TensorAccessor expected ", dims, " dims but tensor has ", dim());
    return impl_;
  }
  cf_tensor* impl_ = nullptr;
};

template <class S, class = decltype(std::declval<S&>().flush())>
S& operator<<(S&, const Tensor&) { cf_reject("operator<< of at::Tensor"); }

// Indexing for kernels: T is reached by [i][j]...; sizes and strides travel in the parameter block.
template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
class TensorAccessor {
 public:
  __host__ __device__ TensorAccessor(typename P<T>::PtrType d, const I* sizes, const I* strides)
      : data_(d), sizes_(sizes), strides_(strides) {}
  __host__ __device__ decltype(auto) operator[](I i) const {
    if constexpr (N == 1) return static_cast<T&>(data_[i * strides_[0]]);
    else return TensorAccessor<T, N - 1, P, I>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  __host__ __device__ I size(I i) const { return sizes_[i]; }
  __host__ __device__ I stride(I i) const { return strides_[i]; }
  __host__ __device__ typename P<T>::PtrType data() const { return data_; }

 private:
  typename P<T>::PtrType data_;
  const I* sizes_;
  const I* strides_;
};

template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
class PackedTensorAccessor {
 public:
  PackedTensorAccessor(char* d, const int64_t* sizes, const int64_t* strides)
      : data_(reinterpret_cast<T*>(d)) {
    for (size_t i = 0; i < N; i++) {
      sizes_[i] = static_cast<I>(sizes[i]);
      strides_[i] = static_cast<I>(strides[i]);
    }
  }
  __host__ __device__ decltype(auto) operator[](I i) const {
    if constexpr (N == 1) return static_cast<T&>(data_[i * strides_[0]]);
    else return TensorAccessor<T, N - 1, P, I>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  __host__ __device__ I size(I i) const { return sizes_[i]; }
  __host__ __device__ I stride(I i) const { return strides_[i]; }
  __host__ __device__ typename P<T>::PtrType data() const { return data_; }

 private:
  typename P<T>::PtrType data_;
  I sizes_[N];
  I strides_[N];
};
template <class T, size_t N, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor32 = PackedTensorAccessor<T, N, P, int32_t>;
template <class T, size_t N, template <class> class P = DefaultPtrTraits>
using PackedTensorAccessor64 = PackedTensorAccessor<T, N, P, int64_t>;
template <class T, size_t N, template <class> class P = DefaultPtrTraits, class I = int64_t>
using GenericPackedTensorAccessor = PackedTensorAccessor<T, N, P, I>;

Tensor empty(IntArrayRef sizes, const TensorOptions& options = {});
Tensor zeros(IntArrayRef sizes, const TensorOptions& options = {});
Tensor ones(IntArrayRef sizes, const TensorOptions& options = {});
Tensor full(IntArrayRef sizes, Scalar value, const TensorOptions& options = {});
Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {});
Tensor empty_like(const Tensor& like);
Tensor empty_like(const Tensor& like, const TensorOptions& options);
Tensor zeros_like(const Tensor& like);
Tensor zeros_like(const Tensor& like, const TensorOptions& options);
Tensor ones_like(const Tensor& like);
Tensor ones_like(const Tensor& like, const TensorOptions& options);
Tensor full_like(const Tensor& like, Scalar value);
Tensor full_like(const Tensor& like, Scalar value, const TensorOptions& options);
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {});
Tensor scalar_tensor(Scalar value, const TensorOptions& options = {});
Tensor tensor_of(const Scalar* values, size_t count, const TensorOptions& options);
template <class T>
Tensor tensor(std::initializer_list<T> values, const TensorOptions& options) {
  Scalar* list = new Scalar[values.size() + 1];
  size_t count = 0;
  for (const T& v : values) list[count++] = v;
  Tensor result = tensor_of(list, count, options);
  delete[] list;
  return result;
}
template <class T>
Tensor tensor(std::initializer_list<T> values) {
  return tensor(values, TensorOptions(CppTypeToScalarType<T>::value));
}
template <class T>
Tensor tensor(T value, const TensorOptions& options = CppTypeToScalarType<T>::value) {
  return scalar_tensor(value, options);
}
using TensorList = ArrayRef<Tensor>;
inline Device device_of(const Tensor& t) { return t.device(); }
template <class T>
constexpr T ceil_div(T a, T b) { return (a + b - 1) / b; }

// The type to accumulate in.
template <class T, bool is_cuda = true> struct AccumulateType { using type = T; };
#ifdef CF_WANT_HALF
template <bool is_cuda> struct AccumulateType<Half, is_cuda> { using type = float; };
#endif
#ifdef CF_WANT_BFLOAT16
template <bool is_cuda> struct AccumulateType<BFloat16, is_cuda> { using type = float; };
#endif
template <class T, bool is_cuda = true>
using acc_type = typename AccumulateType<T, is_cuda>::type;
template <class T> using opmath_type = acc_type<T>;

#define CF_REJECTED_OPERATOR(OP)                                                             \
  inline Tensor operator OP(const Tensor&, const Tensor&) { cf_reject("at::Tensor::operator" #OP); } \
  inline Tensor operator OP(const Tensor&, const Scalar&) { cf_reject("at::Tensor::operator" #OP); } \
  inline Tensor operator OP(const Scalar&, const Tensor&) { cf_reject("at::Tensor::operator" #OP); }
CF_REJECTED_OPERATOR(+)
CF_REJECTED_OPERATOR(-)
CF_REJECTED_OPERATOR(*)
CF_REJECTED_OPERATOR(/)
CF_REJECTED_OPERATOR(<)
CF_REJECTED_OPERATOR(>)
CF_REJECTED_OPERATOR(<=)
CF_REJECTED_OPERATOR(>=)
CF_REJECTED_OPERATOR(==)
CF_REJECTED_OPERATOR(!=)
#undef CF_REJECTED_OPERATOR
inline Tensor operator-(const Tensor&) { cf_reject("at::Tensor::operator-"); }
inline Tensor& operator+=(Tensor&, const Tensor&) { cf_reject("at::Tensor::operator+="); }
inline Tensor& operator-=(Tensor&, const Tensor&) { cf_reject("at::Tensor::operator-="); }
inline Tensor& operator*=(Tensor&, const Tensor&) { cf_reject("at::Tensor::operator*="); }
inline Tensor& operator/=(Tensor&, const Tensor&) { cf_reject("at::Tensor::operator/="); }

#define CF_REJECTED_MEMBER(NAME)                                                           \
  template <class... A> Tensor NAME(const Tensor&, const A&...) { cf_reject("at::" #NAME); } \
  template <class... A>                                                                    \
  Tensor NAME(const Tensor&, IntArrayRef, const A&...) { cf_reject("at::" #NAME); }
#define CF_FREE_FUNCTIONS
#include "library_calls.inc"
#undef CF_FREE_FUNCTIONS
#undef CF_REJECTED_MEMBER

}  // namespace at
