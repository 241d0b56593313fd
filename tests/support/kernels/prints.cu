// Kernels that print. Compared with the host's printf on the same arguments.
#include <cstdio>

extern "C" __global__ void hello(int* counts) {
  counts[threadIdx.x] = printf("thread %d of %u\n", (int)threadIdx.x, blockDim.x);
}

extern "C" __global__ void every_conversion(const char* text) {
  printf("%d|%5d|%-5d|%05d|%+d|%x|%X|%#x|%o|%u|%c|%%|", -7, 42, 42, 42, 42, 255u, 255u, 255u, 8u,
         4000000000u, 'q');
  printf("%lld|%llu|%ld|%hd|%hhd|%zu|", -5000000000ll, 18446744073709551615ull, -1l, (short)-2,
         (signed char)-3, (size_t)9);
  printf("%f|%.3f|%10.2f|%-10.2f|%e|%g|%a|%*d|%.*f|", 1.5f, 3.14159, 2.5, 2.5, 12345.678, 0.0001,
         1.0, 6, 77, 2, 9.876);
  printf("%s|%10s|%-10s|%.2s|%y|\n", "words", "right", "left", "cut", text);
}

extern "C" __global__ void floods(int times) {
  for (int i = 0; i < times; i++) printf("line %d of thread %d\n", i, (int)threadIdx.x);
}

extern "C" __global__ void bad_string(const char* text) { printf("[%s]\n", text); }

extern "C" __global__ void prints_and_traps() {
  printf("before the end\n");
  __trap();
}

extern "C" __global__ void diverges(const int* x) {
  if (x[threadIdx.x] > 2) printf("big %d\n", x[threadIdx.x]);
  else if (x[threadIdx.x] == 1) printf("one\n");
}

extern "C" __global__ void null_format(int* counts, const char* format) {
  counts[threadIdx.x] = printf(format, 1);
}
