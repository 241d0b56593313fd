// Four neighbours in memory, in one access where they lie whole and aligned.
template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T of[4];
};

template <typename T>
__device__ Four<T> load_four(const T* x, int first, int count) {
  if (first + 3 < count && (size_t)x % sizeof(Four<T>) == 0) return *(const Four<T>*)(x + first);
  Four<T> four = {};
  for (int k = 0; k < 4; k++)
    if (first + k < count) four.of[k] = x[first + k];
  return four;
}

template <typename T>
__device__ void store_four(T* out, int first, int count, const Four<T>& four) {
  if (first + 3 < count && (size_t)out % sizeof(Four<T>) == 0) {
    *(Four<T>*)(out + first) = four;
  } else {
    for (int k = 0; k < 4; k++)
      if (first + k < count) out[first + k] = four.of[k];
  }
}
