// at::Tensor for candidates' host code: metadata here, bytes on the device.
#include <torch/extension.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "functions.hpp"
#include "runtime.hpp"

struct cf_storage {
  int64_t references;
  char* data;
  bool on_host, owned;
};

extern "C" void cf_release(cf_tensor* t) {
  if (--t->references > 0) return;
  auto* s = t->storage;
  if (--s->references == 0) {
    if (s->owned && s->on_host) std::free(s->data);
    else if (s->owned) host::device_free(s->data);
    delete s;
  }
  delete t;
}

namespace at {

using c10::detail::check_cuda;
using c10::detail::fail;

static Device checked_device(const TensorOptions& o) { return o.device(); }

static int64_t checked_bytes(IntArrayRef sizes, ScalarType type) {
  if (sizes.size() > CF_MAX_DIMS) fail("", "a tensor of ", sizes.size(), " dimensions");
  int64_t bytes = elementSize(type);
  for (int64_t n : sizes) {
    if (n < 0) fail("", "Trying to create tensor with negative dimension ", n, ": ", sizes);
    if (__builtin_mul_overflow(bytes, n, &bytes)) fail("", "tensor size overflows: ", sizes);
  }
  return bytes;
}

static void set_contiguous(cf_tensor* t, IntArrayRef sizes) {
  t->dims = static_cast<int32_t>(sizes.size());
  int64_t step = 1;
  for (int i = t->dims - 1; i >= 0; i--) {
    t->sizes[i] = sizes[static_cast<size_t>(i)];
    t->strides[i] = step;
    step *= t->sizes[i] > 1 ? t->sizes[i] : 1;
  }
}

static Tensor make(IntArrayRef sizes, const TensorOptions& o, char* data, bool owned) {
  bool on_host = checked_device(o).is_cpu();
  auto* t = new cf_tensor{};
  t->references = 1;
  t->dtype = o.dtype().type;
  t->on_host = on_host;
  set_contiguous(t, sizes);
  t->data = data;
  t->storage = new cf_storage{1, data, on_host, owned};
  return Tensor(t);
}

static Tensor share(const Tensor& of) {  // another view of the same storage
  auto* t = new cf_tensor(*of.impl());
  t->references = 1;
  t->given = false;
  t->storage->references++;
  return Tensor(t);
}

static int64_t wrap(int64_t i, int64_t dims) {
  if (dims == 0 && (i == 0 || i == -1)) return 0;
  if (i < -dims || i >= dims)
    fail("", "Dimension out of range (expected to be in range of [", -dims, ", ", dims - 1,
         "], but got ", i, ")");
  return i < 0 ? i + dims : i;
}

// --- making -------------------------------------------------------------------------------------

Tensor empty(IntArrayRef sizes, const TensorOptions& o) {
  int64_t bytes = checked_bytes(sizes, o.dtype().type);
  void* data = nullptr;
  if (o.device().is_cpu()) {
    data = std::malloc(bytes > 0 ? static_cast<size_t>(bytes) : 1);
    if (data == nullptr) throw std::bad_alloc();
  } else {
    check_cuda(cudaMalloc(&data, static_cast<size_t>(bytes)));
  }
  return make(sizes, o, static_cast<char*>(data), true);
}

static cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream(-1); }

Tensor Tensor::zero_() const {
  if (!is_contiguous()) cf_reject("at::Tensor::zero_ (strided)");
  if (is_cpu()) std::memset(data_ptr(), 0, nbytes());
  else check_cuda(host::fill(data_ptr(), 0, nbytes(), current_stream()));
  return *this;
}

static void encode(ScalarType type, Scalar v, char* out) {
  auto store = [out](auto x) { std::memcpy(out, &x, sizeof x); };
  switch (type) {
    case kByte: return store(v.to<uint8_t>());
    case kChar: return store(v.to<int8_t>());
    case kShort: return store(v.to<int16_t>());
    case kInt: return store(v.to<int32_t>());
    case kLong: return store(v.to<int64_t>());
    case kFloat: return store(v.to<float>());
    case kDouble: return store(v.to<double>());
    case kBool: return store(static_cast<uint8_t>(v.to<double>() != 0));
    case kHalf: return store(static_cast<_Float16>(v.to<float>()));
    case kBFloat16: {  // round to nearest even
      float f = v.to<float>();
      uint32_t u;
      std::memcpy(&u, &f, 4);
      return store(static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16));
    }
    default: fail("", "no such dtype");
  }
}

Tensor Tensor::fill_(Scalar value) const {
  if (!is_contiguous()) cf_reject("at::Tensor::fill_ (strided)");
  char one[8];
  auto size = static_cast<size_t>(element_size());
  encode(scalar_type(), value, one);
  bool same = true;
  for (size_t i = 1; i < size; i++) same = same && one[i] == one[0];
  if (same && is_cuda()) {
    check_cuda(host::fill(data_ptr(), static_cast<unsigned char>(one[0]), nbytes(), current_stream()));
    return *this;
  }
  std::string all;
  all.reserve(nbytes());
  for (int64_t i = numel(); i > 0; i--) all.append(one, size);
  if (is_cpu()) std::memcpy(data_ptr(), all.data(), all.size());
  else check_cuda(host::upload(reinterpret_cast<uint64_t>(data_ptr()), all.data(), all.size(),
                               current_stream()));
  return *this;
}

Tensor zeros(IntArrayRef s, const TensorOptions& o) { return empty(s, o).zero_(); }
Tensor ones(IntArrayRef s, const TensorOptions& o) { return empty(s, o).fill_(1); }
Tensor full(IntArrayRef s, Scalar v, const TensorOptions& o) { return empty(s, o).fill_(v); }
Tensor scalar_tensor(Scalar v, const TensorOptions& o) { return full({}, v, o); }
Tensor tensor_of(const Scalar* values, size_t count, const TensorOptions& o) {
  std::string bytes;
  char one[8];
  for (size_t i = 0; i < count; i++) {
    encode(o.dtype().type, values[i], one);
    bytes.append(one, static_cast<size_t>(elementSize(o.dtype().type)));
  }
  auto result = empty({static_cast<int64_t>(count)}, o);
  auto kind = result.is_cpu() ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
  check_cuda(host::transfer(result.data_ptr(), bytes.data(), bytes.size(), kind, current_stream()));
  return result;
}
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& o) {
  checked_bytes(sizes, o.dtype().type);
  return make(sizes, o.device(host::is_device(data) ? kCUDA : kCPU, 0),
              static_cast<char*>(data), false);
}
Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& o) {
  int64_t extent = 1;
  for (size_t i = 0; i < sizes.size(); i++) extent += (sizes[i] - 1) * strides[i];
  return empty({extent}, o).as_strided(sizes, strides);
}
Tensor empty_like(const Tensor& t) { return empty_like(t, t.options()); }
Tensor empty_like(const Tensor& t, const TensorOptions& o) {
  if (t.is_contiguous()) return empty(t.sizes(), o);
  return empty_strided(t.sizes(), t.strides(), o);  // torch keeps a dense layout
}
Tensor zeros_like(const Tensor& t) { return zeros(t.sizes(), t.options()); }
Tensor zeros_like(const Tensor& t, const TensorOptions& o) { return zeros(t.sizes(), o); }
Tensor ones_like(const Tensor& t) { return ones(t.sizes(), t.options()); }
Tensor ones_like(const Tensor& t, const TensorOptions& o) { return ones(t.sizes(), o); }
Tensor full_like(const Tensor& t, Scalar v) { return full(t.sizes(), v, t.options()); }
Tensor full_like(const Tensor& t, Scalar v, const TensorOptions& o) { return full(t.sizes(), v, o); }
Tensor Tensor::new_empty(IntArrayRef s) const { return empty(s, options()); }
Tensor Tensor::new_zeros(IntArrayRef s) const { return zeros(s, options()); }

// --- asking -------------------------------------------------------------------------------------

cf_tensor* Tensor::impl() const {
  if (impl_ == nullptr) fail("", "an undefined Tensor was used");
  return impl_;
}
int64_t Tensor::size(int64_t i) const {
  if (dim() == 0) fail("", "Dimension specified as ", i, " but tensor has no dimensions");
  return impl_->sizes[wrap(i, dim())];
}
int64_t Tensor::stride(int64_t i) const {
  if (dim() == 0) fail("", "Dimension specified as ", i, " but tensor has no dimensions");
  return impl_->strides[wrap(i, dim())];
}
int64_t Tensor::numel() const {
  int64_t n = 1;
  for (int64_t s : sizes()) n *= s;
  return n;
}
int64_t Tensor::storage_offset() const {
  return (impl()->data - impl_->storage->data) / element_size();
}
bool Tensor::is_contiguous() const {
  int64_t step = 1;
  if (numel() == 0) return true;
  for (int i = impl_->dims - 1; i >= 0; i--) {
    if (impl_->sizes[i] != 1 && impl_->strides[i] != step) return false;
    step *= impl_->sizes[i];
  }
  return true;
}
void* Tensor::typed(ScalarType expected) const {
  if (scalar_type() != expected)
    fail("", "expected scalar type ", expected, " but found ", scalar_type());
  return impl_->data;
}
Scalar Tensor::item() const {
  if (numel() != 1) fail("", "a Tensor with ", numel(), " elements cannot be converted to Scalar");
  char b[8] = {};
  auto kind = is_cpu() ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost;
  check_cuda(host::transfer(b, data_ptr(), static_cast<size_t>(element_size()), kind, current_stream()));
  auto as = [&b](auto x) { std::memcpy(&x, b, sizeof x); return x; };
  switch (scalar_type()) {
    case kByte: return as(uint8_t{});
    case kChar: return as(int8_t{});
    case kShort: return as(int16_t{});
    case kInt: return as(int32_t{});
    case kLong: return as(int64_t{});
    case kFloat: return as(float{});
    case kDouble: return as(double{});
    case kHalf: return static_cast<float>(as(_Float16{}));
    case kBFloat16: {
      uint32_t u = uint32_t{as(uint16_t{})} << 16;
      float f;
      std::memcpy(&f, &u, 4);
      return f;
    }
    default: return b[0] != 0;
  }
}

// --- views --------------------------------------------------------------------------------------

Tensor Tensor::view(IntArrayRef sizes) const {
  int64_t known = 1, open = -1, dims = static_cast<int64_t>(sizes.size());
  if (dims > CF_MAX_DIMS) fail("", "a view of ", dims, " dimensions");
  int64_t wanted[CF_MAX_DIMS];
  for (int64_t i = 0; i < dims; i++) {
    wanted[i] = sizes[static_cast<size_t>(i)];
    if (wanted[i] == -1) open = i;
    else known *= wanted[i];
  }
  if (open >= 0 && known != 0) wanted[open] = numel() / known;
  int64_t total = 1;
  for (int64_t i = 0; i < dims; i++) total *= wanted[i];
  if (total != numel()) fail("", "shape '", sizes, "' is invalid for input of size ", numel());
  if (!is_contiguous())
    fail("", "view size is not compatible with input tensor's size and stride (at least one "
             "dimension spans across two contiguous subspaces). Use .reshape(...) instead.");
  auto r = share(*this);
  set_contiguous(r.impl_, IntArrayRef(wanted, static_cast<size_t>(dims)));
  return r;
}
Tensor Tensor::reshape(IntArrayRef sizes) const { return contiguous().view(sizes); }
Tensor Tensor::flatten(int64_t from, int64_t to) const {
  if (dim() == 0) return view({1});
  from = wrap(from, dim());
  to = wrap(to, dim());
  int64_t wanted[CF_MAX_DIMS], n = 0, run = 1;
  for (int64_t i = 0; i < dim(); i++) {
    run = i > from && i <= to ? run * size(i) : size(i);
    if (i <= from || i > to) wanted[n++] = run;
    else wanted[n - 1] = run;
  }
  return reshape(IntArrayRef(wanted, static_cast<size_t>(n)));
}
Tensor Tensor::as_strided(IntArrayRef sizes, IntArrayRef strides) const {
  if (sizes.size() != strides.size() || sizes.size() > CF_MAX_DIMS) fail("", "as_strided: lengths differ");
  auto r = share(*this);
  r.impl_->dims = static_cast<int32_t>(sizes.size());
  for (size_t i = 0; i < sizes.size(); i++) {
    r.impl_->sizes[i] = sizes[i];
    r.impl_->strides[i] = strides[i];
  }
  return r;
}
Tensor Tensor::permute(IntArrayRef order) const {
  if (static_cast<int64_t>(order.size()) != dim()) fail("", "permute: wrong number of dimensions");
  auto r = share(*this);
  unsigned seen = 0;
  for (size_t i = 0; i < order.size(); i++) {
    int64_t from = wrap(order[i], dim());
    seen |= 1u << from;
    r.impl_->sizes[i] = impl_->sizes[from];
    r.impl_->strides[i] = impl_->strides[from];
  }
  if (seen != (1u << dim()) - 1) fail("", "permute: repeated dimension");
  return r;
}
Tensor Tensor::transpose(int64_t a, int64_t b) const {
  a = wrap(a, dim());
  b = wrap(b, dim());
  int64_t order[CF_MAX_DIMS];
  for (int64_t i = 0; i < dim(); i++) order[i] = i == a ? b : i == b ? a : i;
  return permute(IntArrayRef(order, static_cast<size_t>(dim())));
}
Tensor Tensor::t() const {
  if (dim() > 2) fail("", "t() expects a tensor with <= 2 dimensions, but self is ", dim(), "D");
  return dim() < 2 ? *this : transpose(0, 1);
}
static Tensor without(const Tensor& t, bool (*drop)(int64_t size, int64_t i, int64_t which),
                      int64_t which) {
  int64_t sizes[CF_MAX_DIMS], strides[CF_MAX_DIMS];
  size_t n = 0;
  for (int64_t i = 0; i < t.dim(); i++)
    if (!drop(t.size(i), i, which)) {
      sizes[n] = t.size(i);
      strides[n++] = t.stride(i);
    }
  return t.as_strided(IntArrayRef(sizes, n), IntArrayRef(strides, n));
}
Tensor Tensor::squeeze() const {
  return without(*this, [](int64_t size, int64_t, int64_t) { return size == 1; }, 0);
}
Tensor Tensor::squeeze(int64_t i) const {
  return without(*this, [](int64_t size, int64_t at, int64_t which) { return at == which && size == 1; },
                 wrap(i, dim()));
}
Tensor Tensor::unsqueeze(int64_t i) const {
  i = wrap(i, dim() + 1);
  if (dim() == CF_MAX_DIMS) fail("", "too many dimensions");
  int64_t sizes[CF_MAX_DIMS], strides[CF_MAX_DIMS];
  for (int64_t from = 0, to = 0; to <= dim(); to++) {
    sizes[to] = to == i ? 1 : size(from);
    strides[to] = to == i ? (i < dim() ? size(i) * stride(i) : 1) : stride(from);
    if (to != i) from++;
  }
  auto n = static_cast<size_t>(dim() + 1);
  return as_strided(IntArrayRef(sizes, n), IntArrayRef(strides, n));
}
Tensor Tensor::expand(IntArrayRef wanted) const {
  auto n = static_cast<int64_t>(wanted.size());
  if (n < dim() || n > CF_MAX_DIMS) fail("", "expand: too few dimensions");
  int64_t sizes[CF_MAX_DIMS], strides[CF_MAX_DIMS];
  for (int64_t i = 0; i < n; i++) {
    int64_t from = i - (n - dim()), want = wanted[static_cast<size_t>(i)];
    int64_t have = from < 0 ? 1 : impl_->sizes[from];
    if (want == -1) want = have;
    if (have != 1 && have != want) fail("", "expand: size ", have, " cannot become ", want);
    sizes[i] = want;
    strides[i] = from < 0 || (have == 1 && want != 1) ? 0 : impl_->strides[from];
  }
  return as_strided(IntArrayRef(sizes, wanted.size()), IntArrayRef(strides, wanted.size()));
}
Tensor Tensor::narrow(int64_t i, int64_t from, int64_t count) const {
  i = wrap(i, dim());
  if (from < 0 || count < 0 || from + count > size(i)) fail("", "narrow: out of range");
  auto r = share(*this);
  r.impl_->sizes[i] = count;
  r.impl_->data += from * stride(i) * element_size();
  return r;
}
Tensor Tensor::slice(int64_t i, int64_t from, int64_t to, int64_t step) const {
  i = wrap(i, dim());
  int64_t n = size(i);
  if (step < 1) fail("", "slice step must be positive");
  from = from < 0 ? from + n : from;
  to = to < 0 ? to + n : to;
  from = from < 0 ? 0 : from > n ? n : from;
  to = to < from ? from : to > n ? n : to;
  auto r = narrow(i, from, to - from);
  r.impl_->sizes[i] = (to - from + step - 1) / step;
  r.impl_->strides[i] *= step;
  return r;
}
Tensor Tensor::select(int64_t i, int64_t index) const {
  i = wrap(i, dim());
  if (index < 0) index += size(i);
  auto r = narrow(i, index, 1);
  return without(r, [](int64_t, int64_t at, int64_t which) { return at == which; }, i);
}

// --- copies -------------------------------------------------------------------------------------

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  if (!impl_->given) cf_reject("at::Tensor::contiguous (of a view that forward made)");
  auto r = empty(sizes(), options());
  auto size = static_cast<uint32_t>(element_size());
  check_cuda(host::gather(r.data_ptr(), data_ptr(), size, impl_->dims, impl_->sizes, impl_->strides,
                          current_stream()));
  return r;
}
Tensor Tensor::clone() const {
  if (!is_contiguous()) cf_reject("at::Tensor::clone (of a strided tensor)");
  return empty(sizes(), options()).copy_(*this);
}
Tensor Tensor::to(ScalarType t) const {
  if (t == scalar_type()) return *this;
  cf_reject("at::Tensor::to (another dtype)");
}
Tensor Tensor::to(Device d) const {
  if (d.is_cpu() == is_cpu()) return *this;
  if (!is_contiguous()) cf_reject("at::Tensor::to (of a strided tensor)");
  return empty(sizes(), options().device(d)).copy_(*this);
}
Tensor Tensor::copy_(const Tensor& from, bool) const {
  if (from.scalar_type() != scalar_type()) cf_reject("at::Tensor::copy_ (another dtype)");
  if (from.sizes() != sizes()) cf_reject("at::Tensor::copy_ (broadcast)");
  if (!is_contiguous() || !from.is_contiguous()) cf_reject("at::Tensor::copy_ (strided)");
  auto kind = from.is_cpu() ? (is_cpu() ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice)
                            : (is_cpu() ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice);
  bool waits = is_cpu() || from.is_cpu();
  check_cuda(host::transfer(data_ptr(), from.data_ptr(), nbytes(), kind, current_stream(), waits));
  return *this;
}

namespace cuda {
cudaDeviceProp* getDeviceProperties(int64_t) {
  static cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  return &properties;
}
cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
int warp_size() { return 32; }
}  // namespace cuda

// What the runner itself needs: tensors of the judge's inputs.
static size_t spanned_bytes(const Tensor& t) {
  int64_t elements = t.numel() > 0;
  for (int64_t i = 0; elements > 0 && i < t.dim(); i++) elements += (t.size(i) - 1) * t.stride(i);
  return static_cast<size_t>(elements * t.element_size());
}
Tensor adopt(char* data, ScalarType type, IntArrayRef sizes, IntArrayRef strides, bool exists) {
  auto t = make(sizes, TensorOptions(type).device(Device(kCUDA, 0)), data, false);
  for (size_t i = 0; i < strides.size(); i++) t.impl()->strides[i] = strides[i];
  t.impl()->given = exists;
  if (exists) host::note_device_memory(data, spanned_bytes(t));
  return t;
}

}  // namespace at
