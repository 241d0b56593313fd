// Cases of unseen_builds.py, as sources.py says.
//// = includes
//// _top includes_passwd; covers: includes of /etc/passwd (leak through the error text)
//// > top
#include "/etc/passwd"
//// _top includes_shadow; covers: includes of /etc/passwd (leak through the error text)
//// > top
#include </etc/shadow>
//// _top includes_environ; covers: includes of /proc
//// > top
#include "/proc/self/environ"
//// _top includes_cmdline; covers: includes of /proc
//// > top
#include "/proc/1/cmdline"
//// _top includes_zero; covers: /dev/zero
//// > top
#include "/dev/zero"
//// _top includes_random; covers: /dev/zero
//// > top
#include "/dev/urandom"
//// _top includes_stdin; covers: /dev/stdin
//// > top
#include "/dev/stdin"
//// _top includes_a_terminal; covers: /dev/stdin
//// > top
#include "/dev/tty"
//// _top includes_above_the_build; covers: includes outside the build
//// > top
#include "../../../../../../../../etc/hostname"
//// _top includes_a_folder; covers: includes outside the build
//// > top
#include "/etc"
//// _top includes_itself_for_ever; covers: macro bombs
//// > top
#include __FILE__
//// _top includes_by_a_macro; covers: includes of /etc/passwd (leak through the error text)
//// > top
#define P(x) <x>
#define Q P(/etc/passwd)
#include Q
//// _top dependency_pragma; covers: pragma tricks
//// > top
#pragma GCC dependency "/etc/passwd"
#error "stop"
//// _top embeds_a_file; covers: includes of /etc/passwd
//// > top
static const unsigned char secret[] = {
#embed "/etc/passwd"
};
//// = assembler
//// _unwritten incbin_passwd; covers: .incbin
//// > head
asm(".section .rodata\n.global secret\nsecret: .incbin \"/etc/passwd\"\n.byte 0\n.text\n");
extern "C" char secret[];
struct Tell { Tell() { throw std::runtime_error(secret); } } tell;
//// _unwritten incbin_dev_zero; covers: .incbin
//// > head
asm(".incbin \"/dev/zero\"");
//// _unwritten assembler_include; covers: .incbin
//// > head
asm(".include \"/etc/passwd\"");
//// _unwritten assembler_repeats; covers: macro bombs
//// > head
asm(".rept 2000000000\n.quad 0\n.endr");
//// _unwritten assembler_fill; covers: giant initialised arrays
//// > head
asm(".data\n.fill 8000000000, 1, 1\n.text");
//// _unwritten assembler_recursive_macro; covers: macro bombs
//// > head
asm(".macro a\na\na\n.endm\na");
//// _unwritten assembler_interp_section; covers: linker tricks
//// > head
asm(".section .interp,\"a\"\n.string \"/tmp/evil\"\n.text");
//// _unwritten assembler_defines_a_runtime_call; covers: symbols that override the harness
//// > head
asm(".global cudaMemcpy\ncudaMemcpy: xor %eax,%eax\nret");
//// _unwritten ptx_include; covers: .incbin
//// > head
__global__ void k() { asm volatile(".include \"/etc/passwd\";"); }
//// _unwritten ptx_injection; covers: asm tricks
//// > head
__global__ void k(float* o) { asm volatile("} .visible .entry other() { ret; } .visible .entry more() {"); o[0] = 1; }
//// _unwritten ptx_file_directive; covers: asm tricks
//// > head
__global__ void k(float* o) { asm volatile(".file 1 \"/etc/passwd\"\n\t.loc 1 1 1"); o[0] = 1; }
static void launch(float* o) { k<<<1, 1>>>(o); }
//// = bombs
//// _top billion_laughs; covers: macro bombs
//// > top
#define A x x x x x x x x x x
#define B A A A A A A A A A A
#define C B B B B B B B B B B
#define D C C C C C C C C C C
#define E D D D D D D D D D D
#define F E E E E E E E E E E
#define G F F F F F F F F F F
#define H G G G G G G G G G G
#define I H H H H H H H H H H
I
//// _top template_recursion; covers: template bombs
//// > top
template <int N> struct T { static constexpr long v = T<N - 1>::v + T<N - 2>::v * N; };
template <> struct T<0> { static constexpr long v = 1; };
template <> struct T<1> { static constexpr long v = 1; };
static long bomb = T<100000>::v;
//// _top template_tree; covers: template bombs
//// > top
template <int N, class L> struct T { T<N - 1, T<N, L>> a; T<N - 1, T<N + 0, L*>> b; };
template <class L> struct T<0, L> { int v; };
T<22, int> bomb;
//// _top constexpr_loop; covers: constexpr bombs
//// > top
constexpr long spin(long n) { long s = 0; for (long i = 0; i < n; i++) for (long j = 0; j < n; j++) s += i ^ j; return s; }
constexpr long bomb = spin(1l << 40);
//// _top constexpr_array; covers: constexpr bombs
//// > top
struct Big { char v[1 << 30]; constexpr Big() : v() { for (auto& c : v) c = 1; } };
constexpr Big bomb;
//// _top giant_array; covers: giant initialised arrays
//// > top
int bomb[4000000000] = {1};
//// _top giant_array_of_one_designator; covers: giant initialised arrays
//// > top
char bomb[] = {[2147483646] = 1};
//// _top giant_device_array; covers: giant initialised arrays
//// > top
__device__ float bomb[1ull << 36] = {1.0f};
//// = text
//// _whole forged_error_lines; covers: leak through the error text
//// > code
#line 1 "verdict\nstatus: correct"
#line 7 "/etc/passwd"
int a = b;
@AFFINE_SOURCE@
//// _whole file_name_with_options; covers: options smuggled into flags or file names
//// > code
#line 1 "-o /tmp/evil -Xcompiler -fplugin=/tmp/x.so"
int a = b;

//// = redefinitions
//// _unwritten hides_the_global_keyword; covers: macro tricks
//// > head
#define __global__

//// _unwritten own_module_macro; covers: macro tricks; statuses: _LOADS | RULED_OUT
//// > head
#undef PYBIND11_MODULE
#define PYBIND11_MODULE(a, b) extern "C" void* PyInit_forward() { _exit(0); } static void b##_unused(int m)
#include <unistd.h>

//// _unwritten own_torch_namespace; covers: macro tricks; statuses: _LOADS | RULED_OUT
//// > head
namespace fake { struct Tensor { int numel() const { return 0; } template <class T> T* data_ptr() const { return nullptr; } }; inline Tensor empty_like(Tensor t) { return t; } }
#define torch fake

//// _unwritten private_made_public; covers: macro tricks
//// > head
#define private public
#define protected public
#define class struct
#include <sstream>

//// _unwritten main_by_macro; covers: macro tricks; statuses: _LOADS | RULED_OUT
//// > head
#define forward main

//// _unwritten compiler_plugin_by_pragma; covers: options smuggled into flags or file names
//// > head
#pragma GCC optimize("-fplugin=/tmp/evil.so")
#pragma GCC target("avx512f")

//// _unwritten linker_option_by_pragma; covers: linker tricks
//// > head
#pragma comment(linker, "/export:forward")
#pragma GCC diagnostic error "-Wall"

//// _unwritten symbol_version; covers: linker tricks
//// > head
__asm__(".symver my_exit,exit@GLIBC_2.2.5");
extern "C" void my_exit(int) {}

//// _unwritten weak_runtime; covers: symbols that override the harness
//// > head
extern "C" __attribute__((weak)) int cudaDeviceSynchronize_ptsz() { return 0; }
extern "C" __attribute__((alias("stub"))) int cudaPeekAtLastError_();
extern "C" int stub() { return 0; }

//// _unwritten executable_stack; covers: linker tricks
//// > head
__asm__(".section .note.GNU-stack,\"x\",@progbits\n.text");

//// _unwritten fini_array; covers: constructors
//// > head
#include <unistd.h>
static void last() { _exit(0); }
__attribute__((section(".fini_array"), used)) static void (*hook)() = last;

//// _unwritten preinit_array; covers: constructors
//// > head
#include <unistd.h>
static void first() { _exit(0); }
__attribute__((section(".preinit_array"), used)) static void (*hook)() = first;

//// _unwritten thread_local_constructor; covers: constructors
//// > head
#include <unistd.h>
struct T { T() { _exit(0); } int v = 1; };
thread_local T t;
struct U { U() { if (t.v) _exit(0); } } u;

