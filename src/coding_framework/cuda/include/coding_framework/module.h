// PYBIND11_MODULE, m.def, py::arg: the functions of a kernel, registered with the host runner. Python
// is not involved: arguments come as plain values over the wire.
#pragma once
#include "tensor.h"

extern "C" {
enum cf_kind { CF_NONE, CF_TENSOR, CF_INT, CF_FLOAT, CF_BOOL, CF_LIST, CF_STRING };
struct cf_value {
  cf_kind kind;
  int64_t count;  // items of a list
  int64_t integer;
  double floating;
  cf_tensor* tensor;  // borrowed
  const cf_value* items;
  const char* text;
};
typedef void (*cf_call)(void* function, const cf_value* arguments);
// defaults: of the last `n_defaults` parameters; the array must outlive the module.
void cf_define(const char* name, cf_call call, void* function, int n_parameters,
               const cf_value* defaults, int n_defaults);
void cf_return(cf_tensor* tensor);  // borrowed; called once for each tensor of the result
// A number, a string, or (CF_LIST) that the next `count` results are a list; 1 in `integer`: a tuple.
void cf_return_value(const cf_value* value);
[[noreturn]] void cf_return_no_tensor();
[[noreturn]] void cf_bad_argument(const char* expected);
}

namespace pybind11 {

struct none {};
struct gil_scoped_release {};
struct gil_scoped_acquire {};
template <class... G> struct call_guard {};
struct arg {
  constexpr explicit arg(const char* name) : name(name) {}
  arg& noconvert(bool = true) { return *this; }
  template <class T>
  struct with_default { T value; };
  template <class T>
  with_default<T> operator=(const T& value) const { return {value}; }
  with_default<const char*> operator=(const char* value) const { return {value}; }
  const char* name;
};

inline namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}

// Parameter types: from a value of the wire.
template <class T>
struct from_value {
  static_assert(std::is_arithmetic<T>::value, "a parameter type that is not supported");
  static T get(const cf_value& v) {
    if constexpr (std::is_same<T, bool>::value) {
      if (v.kind != CF_BOOL && v.kind != CF_INT) cf_bad_argument("a bool");
      return v.integer != 0;
    } else if constexpr (std::is_floating_point<T>::value) {
      if (v.kind == CF_FLOAT) return static_cast<T>(v.floating);
      if (v.kind != CF_INT && v.kind != CF_BOOL) cf_bad_argument("a number");
      return static_cast<T>(v.integer);
    } else {
      if (v.kind != CF_INT && v.kind != CF_BOOL) cf_bad_argument("an integer");
      return static_cast<T>(v.integer);
    }
  }
};
template <>
struct from_value<at::Tensor> {
  static at::Tensor get(const cf_value& v) {
    if (v.kind == CF_NONE) return at::Tensor();
    if (v.kind != CF_TENSOR) cf_bad_argument("a Tensor");
    v.tensor->references++;
    return at::Tensor(v.tensor);
  }
};
template <>
struct from_value<at::Scalar> {
  static at::Scalar get(const cf_value& v) {
    if (v.kind == CF_FLOAT) return at::Scalar(v.floating);
    if (v.kind != CF_INT && v.kind != CF_BOOL) cf_bad_argument("a number");
    return at::Scalar(v.integer);
  }
};
template <>
struct from_value<const char*> {
  static const char* get(const cf_value& v) {
    if (v.kind != CF_STRING) cf_bad_argument("a string");
    return v.text;
  }
};
template <class T>
struct from_value<c10::ArrayRef<T>> {  // the items live until the end of the process
  static c10::ArrayRef<T> get(const cf_value& v) {
    if (v.kind != CF_LIST) cf_bad_argument("a list");
    T* items = new T[static_cast<size_t>(v.count)];
    for (int64_t i = 0; i < v.count; i++) items[i] = from_value<T>::get(v.items[i]);
    return c10::ArrayRef<T>(items, static_cast<size_t>(v.count));
  }
};
#ifdef CF_WANT_STRING
template <>
struct from_value<std::string> {
  static std::string get(const cf_value& v) { return from_value<const char*>::get(v); }
};
#endif
#ifdef CF_WANT_VECTOR
template <class T>
struct from_value<std::vector<T>> {
  static std::vector<T> get(const cf_value& v) {
    if (v.kind != CF_LIST) cf_bad_argument("a list");
    std::vector<T> r;
    for (int64_t i = 0; i < v.count; i++) r.push_back(from_value<T>::get(v.items[i]));
    return r;
  }
};
#endif
#ifdef CF_WANT_OPTIONAL
template <class T>
struct from_value<std::optional<T>> {
  static std::optional<T> get(const cf_value& v) {
    if (v.kind == CF_NONE) return std::nullopt;
    return from_value<T>::get(v);
  }
};
#endif
#ifdef CF_WANT_ARRAY
template <class T, size_t N>
struct from_value<std::array<T, N>> {
  static std::array<T, N> get(const cf_value& v) {
    if (v.kind != CF_LIST || v.count != static_cast<int64_t>(N)) cf_bad_argument("a list");
    std::array<T, N> r;
    for (size_t i = 0; i < N; i++) r[i] = from_value<T>::get(v.items[i]);
    return r;
  }
};
#endif

// Default values, to the wire's form.
inline cf_value to_value(none) { return {CF_NONE, 0, 0, 0, nullptr, nullptr, nullptr}; }
inline cf_value to_value(const at::Tensor&) { return to_value(none()); }
inline cf_value to_value(bool v) { return {CF_BOOL, 0, v, 0, nullptr, nullptr, nullptr}; }
inline cf_value to_value(double v) { return {CF_FLOAT, 0, 0, v, nullptr, nullptr, nullptr}; }
inline cf_value to_value(float v) { return to_value(static_cast<double>(v)); }
inline cf_value to_value(long v) { return {CF_INT, 0, v, 0, nullptr, nullptr, nullptr}; }
inline cf_value to_value(long long v) { return to_value(static_cast<long>(v)); }
inline cf_value to_value(int v) { return to_value(static_cast<long>(v)); }
inline cf_value to_value(unsigned v) { return to_value(static_cast<long>(v)); }
inline cf_value to_value(size_t v) { return to_value(static_cast<long>(v)); }
inline cf_value to_value(const char* v) { return {CF_STRING, 0, 0, 0, nullptr, nullptr, v}; }
#ifdef CF_WANT_STRING
inline cf_value to_value(const std::string& v) {  // kept until the end of the process
  return to_value((new std::string(v))->c_str());
}
#endif
#ifdef CF_WANT_OPTIONAL
inline cf_value to_value(std::nullopt_t) { return to_value(none()); }
template <class T>
cf_value to_value(const std::optional<T>& v) { return v ? to_value(*v) : to_value(none()); }
#endif
#ifdef CF_WANT_VECTOR
template <class T>
cf_value to_value(const std::vector<T>& list) {  // kept until the end of the process
  cf_value* items = new cf_value[list.size() + 1];
  for (size_t i = 0; i < list.size(); i++) items[i] = to_value(list[i]);
  return {CF_LIST, static_cast<int64_t>(list.size()), 0, 0, nullptr, items, nullptr};
}
#endif

// Results: tensors in order, numbers, and lists of them; anything else is not for the judge.
template <class T>
void give(const T& v) {
  if constexpr (std::is_arithmetic<T>::value) {
    cf_value value = to_value(v);
    cf_return_value(&value);
  } else {
    cf_return_no_tensor();
  }
}
inline void give(const at::Tensor& t) { cf_return(t.impl()); }
inline void give(const at::Scalar& s) {
  if (s.isFloatingPoint()) give(s.toDouble());
  else give(s.toLong());
}
inline void give_group(size_t count, bool tuple) {
  cf_value value{CF_LIST, static_cast<int64_t>(count), tuple, 0, nullptr, nullptr, nullptr};
  cf_return_value(&value);
}
#ifdef CF_WANT_STRING
inline void give(const std::string& s) {
  cf_value value = to_value(s);
  cf_return_value(&value);
}
#endif
#ifdef CF_WANT_OPTIONAL
template <class T>
void give(const std::optional<T>& t) {
  if (t) return give(*t);
  cf_value value = to_value(none());
  cf_return_value(&value);
}
#endif
#ifdef CF_WANT_VECTOR
template <class T>
void give(const std::vector<T>& list) {
  give_group(list.size(), false);
  for (const T& t : list) give(t);
}
#endif
#ifdef CF_WANT_ARRAY
template <class T, size_t N>
void give(const std::array<T, N>& list) {
  give_group(N, false);
  for (const T& t : list) give(t);
}
#endif
#ifdef CF_WANT_TUPLE
template <class... T>
void give(const std::tuple<T...>& t) {
  give_group(sizeof...(T), true);
  std::apply([](const T&... x) { (give(x), ...); }, t);
}
#endif
#ifdef CF_WANT_UTILITY
template <class A, class B>
void give(const std::pair<A, B>& p) {
  give_group(2, true);
  give(p.first);
  give(p.second);
}
#endif

struct defaults {
  cf_value* values;
  int count;
  template <class X> void take(const X&) {}
  template <class T> void take(const arg::with_default<T>& a) { values[count++] = to_value(a.value); }
};

class module_ {
 public:
  const char*& doc() {
    static const char* text = "";
    return text;
  }
  template <class R, class... A, class... X>
  module_& def(const char* name, R (*function)(A...), const X&... extras) {
    defaults d{new cf_value[sizeof...(X) + 1], 0};
    (d.take(extras), ...);
    cf_define(name, &invoke<R, A...>, reinterpret_cast<void*>(function),
              static_cast<int>(sizeof...(A)), d.values, d.count);
    return *this;
  }
  template <class F, class... X>
  auto def(const char* name, F function, const X&... extras) -> decltype(+function, *this) {
    return def(name, +function, extras...);
  }
  template <class... A> module_& attr(const A&...) { return *this; }

 private:
  template <class R, class... A>
  static void invoke(void* function, const cf_value* v) {
    invoke_indexed<R, A...>(function, v, std::make_integer_sequence<int, sizeof...(A)>());
  }
  template <class R, class... A, int... I>
  static void invoke_indexed(void* function, [[maybe_unused]] const cf_value* v,
                             std::integer_sequence<int, I...>) {
    apply(reinterpret_cast<R (*)(A...)>(function), from_value<std::decay_t<A>>::get(v[I])...);
  }
  template <class R, class... A, class... V>
  static void apply(R (*f)(A...), V&&... values) {  // named values bind to any kind of reference
    if constexpr (std::is_void<R>::value) f(static_cast<A&&>(values)...);
    else give(f(static_cast<A&&>(values)...));
  }
};
using module = module_;

}  // namespace pybind11
namespace py = pybind11;

#ifndef TORCH_EXTENSION_NAME
#define TORCH_EXTENSION_NAME kernel
#endif
#ifndef CF_MODULE_INIT  // the entry point; a source made of several modules names it for each
#define CF_MODULE_INIT cf_module_init
#endif
#define PYBIND11_MODULE(NAME, MODULE)                                                     \
  static void cf_module_body(::pybind11::module_&);                                       \
  extern "C" __attribute__((visibility("default"))) void CF_MODULE_INIT() {               \
    ::pybind11::module_ m;                                                                \
    cf_module_body(m);                                                                    \
  }                                                                                       \
  static void cf_module_body([[maybe_unused]] ::pybind11::module_& MODULE)
