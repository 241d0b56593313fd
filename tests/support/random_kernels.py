"""Random kernels as CUDA source and, from the same tree, as plain C++ for the host.

A kernel is a row of phases with a barrier between them. In a phase each thread computes on its own
variables, on an array in local memory and through functions that are not inlined, with nested
branches, loops, `break`, `continue`, `switch` and, in the last phase, `return`; between phases
threads exchange values through shared memory of every width, shuffles, votes, groups of a diverged
warp and atomics. The host version runs each phase for one thread after the other, so that gcc, and
nothing of ours, says what is right.

Signed overflow, wild shifts and out-of-range conversions are avoided: there the two compilers may
differ. Floats are compared bit for bit (-fmad=false, -ffp-contract=off), NaNs as equal.
"""

# ruff: noqa: E501 - templates of C read better unbroken
from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

THREADS = 96
BLOCKS = 3
SHARED = 128
VARIABLES = {"u": 4, "i": 3, "f": 3, "w": 2, "d": 1}
_C_TYPE = {"u": "unsigned", "i": "int", "f": "float", "w": "unsigned long long", "d": "double"}
_ATOMICS = {
    "atomicAdd": "+=",
    "atomicXor": "^=",
    "atomicOr": "|=",
    "atomicMax": "max",
    "atomicMin": "min",
}


@dataclass
class RandomKernel:
    """Device source, host source, and the number in their names."""

    device: str
    host: str
    number: int


@dataclass
class _Writer:
    rng: random.Random
    loops: int = 0
    fresh: int = 0
    budget: int = 60
    lines: list[str] = field(default_factory=list)
    helpers: int = 0
    """Functions h0 ... that expressions may call."""
    may_return: bool = False

    # --- expressions ----------------------------------------------------------------------------

    def variable(self, kind: str) -> str:
        return f"{kind}{self.rng.randrange(VARIABLES[kind])}"

    def literal(self, kind: str) -> str:
        r = self.rng
        if kind == "u":
            return f"{r.choice([0, 1, 2, 7, 31, 255, 65535, 2654435761, 4294967295, r.getrandbits(32)])}u"
        if kind == "i":
            return f"({r.choice([0, 1, -1, 5, -17, 1000, 2147483647, r.randint(-(2**31) + 1, 2**31 - 1)])})"
        if kind == "w":
            return f"{r.choice([0, 1, 3, 2**63, 2**64 - 1, r.getrandbits(64)])}ull"
        value = r.choice([0.0, 1.0, -2.5, 0.1, 1e10, 1e-30, r.uniform(-100, 100)])
        return f"({value!r}f)" if kind == "f" else f"({value!r})"

    def expression(self, kind: str, depth: int = 3) -> str:
        r = self.rng
        if depth == 0 or r.random() < 0.2:
            return self.variable(kind) if r.random() < 0.75 else self.literal(kind)
        inner = lambda k=kind: self.expression(k, depth - 1)  # noqa: E731
        if r.random() < 0.12:
            return f"({self.condition(depth - 1)}?{inner()}:{inner()})"
        return {
            "u": self._unsigned,
            "i": self._signed,
            "w": self._wide,
            "f": self._real,
            "d": self._real,
        }[kind](kind, inner)

    def _unsigned(self, kind: str, inner) -> str:  # type: ignore[no-untyped-def]
        a, b = inner(), inner()
        return self.rng.choice([
            f"({a}+{b})", f"({a}-{b})", f"({a}*{b})", f"({a}&{b})", f"({a}|{b})", f"({a}^{b})", f"(~{a})",
            f"({a}<<({b}&31u))", f"({a}>>({b}&31u))", f"({a}/({b}|1u))", f"({a}%({b}|1u))",
            f"(({a}<{b})?{a}:{b})", f"((unsigned)({inner('w')}>>({b}&63u)))", f"((unsigned){inner('i')})",
            f"((unsigned)(unsigned short){a})", f"((unsigned)(unsigned char){a}*3u)",
            f"POPC({a})", f"CLZ({a})", f"MULHI({a},{b})", f"F2U({inner('f')})", f"BITS({inner('f')})",
            f"(({a}<<({b}&31u))|({a}>>((32u-({b}&31u))&31u)))", f"l[{a}&7u]", f"TABLE[{a}&15u]",
            *([f"h{self.rng.randrange(self.helpers)}({a},{inner('i')},{inner('f')})"] if self.helpers else []),
        ])  # fmt: skip

    def _signed(self, kind: str, inner) -> str:  # type: ignore[no-untyped-def]
        a, b = inner(), inner()
        return self.rng.choice([
            f"((int)((unsigned){a}+(unsigned){b}))", f"((int)((unsigned){a}-(unsigned){b}))",
            f"((int)((unsigned){a}*(unsigned){b}))", f"({a}/(({b}&15)+1))", f"({a}%(({b}&15)+1))",
            f"({a}>>({b}&31))", f"(({a}>{b})?{a}:{b})", f"((int)(short){a})", f"((int)(signed char){a})",
            f"((int){inner('u')})", f"F2I({inner('f')})", f"({a}&{b})", f"({a}^{b})",
            f"((int)(((long long){a}*(long long){b})>>16))",
        ])  # fmt: skip

    def _wide(self, kind: str, inner) -> str:  # type: ignore[no-untyped-def]
        a, b = inner(), inner()
        return self.rng.choice([
            f"({a}+{b})", f"({a}-{b})", f"({a}*{b})", f"({a}^{b})", f"({a}&{b})", f"({a}>>({b}&63ull))",
            f"({a}<<({b}&63ull))", f"({a}/({b}|1ull))", f"({a}%({b}|1ull))",
            f"((unsigned long long){inner('u')}*{inner('u')})", f"((unsigned long long)(long long){inner('i')})",
            f"((unsigned long long)((long long){a}/(long long)(({b}&7ull)+1ull)))",
        ])  # fmt: skip

    def _real(self, kind: str, inner) -> str:  # type: ignore[no-untyped-def]
        a, b = inner(), inner()
        suffix = "f" if kind == "f" else ""
        dot = ".0" + suffix  # x + 0.0 is never -0, whose order against +0 fmax leaves open
        cast = "float" if kind == "f" else "double"
        other = "d" if kind == "f" else "f"
        return self.rng.choice([
            f"({a}+{b})", f"({a}-{b})", f"({a}*{b})", f"({a}/{b})", f"sqrt{suffix}(fabs{suffix}({a}))",
            f"fmax{suffix}({a}+0{dot},{b}+0{dot})", f"fmin{suffix}({a}+0{dot},{b}+0{dot})", f"fma{suffix}({a},{b},{inner()})",
            f"(({cast}){inner('i')})", f"(({cast}){inner('u')})", f"(({cast}){inner('w')})",
            f"floor{suffix}({a})", f"rint{suffix}({a})", f"trunc{suffix}({a})", f"(-{a})", f"fabs{suffix}({a})",
            f"(({cast})({inner(other)}))", f"copysign{suffix}({a},{b})",
        ])  # fmt: skip

    def condition(self, depth: int = 2) -> str:
        r = self.rng
        kind = r.choice("uuiifwd")
        text = f"({self.expression(kind, depth)}{r.choice(['<', '>', '<=', '>=', '==', '!='])}{self.expression(kind, depth)})"
        if kind == "u" and r.random() < 0.5:
            text = f"(({self.expression('u', depth)}&{r.choice([1, 3, 7])}u)=={r.choice([0, 1])}u)"
        if r.random() < 0.25:
            text = f"({text}{r.choice(['&&', '||'])}{self.condition(max(depth - 1, 0))})"
        return text

    # --- statements -----------------------------------------------------------------------------

    def block(self, depth: int, in_loop: bool) -> list[str]:
        out: list[str] = []
        for _ in range(self.rng.randint(1, 4)):
            if self.budget <= 0:
                break
            out += self.statement(depth, in_loop)
        return out or [";"]

    def statement(self, depth: int, in_loop: bool) -> list[str]:
        r = self.rng
        self.budget -= 1
        choice = r.random()
        if self.may_return and choice < 0.06:
            return [f"if({self.condition(1)}) RETURN;"]
        if choice < 0.12:
            return [f"l[{self.expression('u', 1)}&7u]={self.expression('u', 2)};"]
        if depth == 0 or choice < 0.5:
            kind = r.choice("uuuiiffwd")
            return [f"{self.variable(kind)}={self.expression(kind)};"]
        if choice < 0.72:
            lines = [f"if({self.condition()}){{", *self.block(depth - 1, in_loop), "}"]
            if r.random() < 0.5:
                lines += ["else{", *self.block(depth - 1, in_loop), "}"]
            return lines
        if choice < 0.86 and self.loops < 3:
            self.loops += 1
            self.fresh += 1
            n = f"n{self.fresh}"
            trip = f"({self.variable('u')}&{r.choice([1, 3, 7])}u)+{r.randint(0, 2)}u"
            body = self.block(depth - 1, True)
            self.loops -= 1
            return [f"for(unsigned {n}=0,{n}e={trip};{n}<{n}e;{n}++){{", *body, "}"]
        if choice < 0.93:
            lines = [f"switch({self.variable('u')}%{r.randint(3, 7)}u){{"]
            for case in range(r.randint(2, 5)):
                lines += [f"case {case}:{{", *self.block(depth - 1, False), "}"]
                if r.random() < 0.8:
                    lines.append("break;")
            return [*lines, "default:;", "}"]
        if in_loop:
            return [f"if({self.condition(1)}){r.choice(['break', 'continue'])};"]
        return [f"do{{ if({self.condition(1)})break;", *self.block(depth - 1, False), "}while(0);"]


def _exchange(rng: random.Random, writer: _Writer, site: int) -> tuple[list[str], list[str]]:
    """How threads exchange values between two phases: device lines, host lines."""
    u, v = writer.variable("u"), writer.variable("u")
    k, c = rng.choice([1, 3, 5, 7]), rng.randrange(SHARED)
    each = "for(int t=0;t<THREADS;t++)"
    if rng.random() < 0.5:
        return _exchange_more(rng, writer, site)
    match rng.randrange(6):
        case 0:
            return (
                [
                    f"s[t]={u};",
                    "__syncthreads();",
                    f"{v}=s[(t*{k}+{c})%THREADS];",
                    "__syncthreads();",
                ],
                [f"{each} s[t]=S[t].{u};", f"{each} S[t].{v}=s[(t*{k}+{c})%THREADS];"],
            )
        case 1:
            f, g = writer.variable("f"), writer.variable("f")
            return (
                [
                    f"s[t]=BITS({f});",
                    "__syncthreads();",
                    f"{g}=FLOAT(s[THREADS-1-t]);",
                    "__syncthreads();",
                ],
                [f"{each} s[t]=BITS(S[t].{f});", f"{each} S[t].{g}=FLOAT(s[THREADS-1-t]);"],
            )
        case 2:
            lane = rng.choice([1, 2, 5, 16, 31])
            return (
                [f"{u}=__shfl_xor_sync(0xffffffffu,{v},{lane});"],
                [f"{each} s[t]=S[t].{v};", f"{each} S[t].{u}=s[t^{lane}];"],
            )
        case 3:
            return (
                [f"{u}^=__ballot_sync(0xffffffffu,{v}&1u);"],
                [f"{each} s[t]=S[t].{v}&1u;",
                 f"{each}{{unsigned b=0;for(int j=0;j<32;j++)b|=s[t/32*32+j]<<j;S[t].{u}^=b;}}"],
            )  # fmt: skip
        case 4:
            name, sign = rng.choice(list(_ATOMICS.items()))
            at = f"{8 * site}+(({u})&7u)"
            host = (
                f"g[a]=(g[a]{'>' if sign == 'max' else '<'}S[t].{v})?g[a]:S[t].{v};"
                if sign in ("max", "min") else f"g[a]{sign}S[t].{v};"
            )  # fmt: skip
            return (
                [f"if({u}&1u) {name}(&g[{at}],{v});"],
                [f"{each} if(S[t].{u}&1u){{unsigned a={8 * site}+((S[t].{u})&7u);{host}}}"],
            )
        case _:
            return (
                ["s[t]=0;", "__syncthreads();", f"atomicAdd(&s[({u})%THREADS],{v});", "__syncthreads();",
                 f"{u}+=s[t];", "__syncthreads();"],
                [f"{each} s[t]=0;", f"{each} s[S[t].{u}%THREADS]+=S[t].{v};", f"{each} S[t].{u}+=s[t];"],
            )  # fmt: skip


def _exchange_more(rng: random.Random, writer: _Writer, site: int) -> tuple[list[str], list[str]]:
    """Ways that are rarer in kernels: other shuffles, votes, groups, narrow and wide memory."""
    u, v, w = writer.variable("u"), writer.variable("u"), writer.variable("w")
    each = "for(int t=0;t<THREADS;t++)"
    lane, bit = rng.choice([1, 2, 5, 16, 31]), rng.choice([1, 2, 4])
    keep = f"{each} s[t]=S[t].{v};"
    match rng.randrange(9):
        case 0:
            return (
                [f"{u}=__shfl_up_sync(0xffffffffu,{v},{lane});"],
                [keep, f"{each} S[t].{u}=s[t%32<{lane}?t:t-{lane}];"],
            )
        case 1:
            return (
                [f"{u}=__shfl_down_sync(0xffffffffu,{v},{lane},16);"],
                [keep, f"{each} S[t].{u}=s[t%16+{lane}%32>15?t:t+{lane}];"],
            )
        case 2:
            return (
                [f"{u}=__shfl_sync(0xffffffffu,{v},(int)({u}&63u));"],
                [keep, f"{each} S[t].{u}=s[t/32*32+(S[t].{u}&31u)];"],
            )
        case 3 if u != v:  # a part of the warp by itself: its lowest lane's value
            return (
                [f"{{unsigned m=__ballot_sync(0xffffffffu,{u}&{bit}u);",
                 f"if({u}&{bit}u) {v}=__shfl_sync(m,{v},__ffs(m)-1)+__popc(m);}}"],
                [keep, f"{each}{{unsigned n=0;int first=-1;for(int j=t/32*32;j<t/32*32+32;j++)",
                 f"if(S[j].{u}&{bit}u){{n++;if(first<0)first=j;}}",
                 f"if(S[t].{u}&{bit}u) S[t].{v}=s[first]+n;}}"],
            )  # fmt: skip
        case 4:
            return (
                [f"{u}+=__any_sync(0xffffffffu,{v}&{bit}u)*2u+__all_sync(0xffffffffu,{v}&{bit}u);"],
                [f"{each} s[t]=S[t].{v};",
                 f"{each}{{unsigned o=0,a=1;for(int j=t/32*32;j<t/32*32+32;j++){{o|=(s[j]&{bit}u)!=0;a&=(s[j]&{bit}u)!=0;}}",
                 f"S[t].{u}+=o*2u+a;}}"],
            )  # fmt: skip
        case 5:
            return (
                [f"{u}^=(unsigned)__syncthreads_count((int)({v}&{bit}u));"],
                [f"{{unsigned n=0;{each} n+=(S[t].{v}&{bit}u)!=0;{each} S[t].{u}^=n;}}"],
            )
        case 6:
            return (
                [f"((unsigned char*)s)[t]=(unsigned char){v};", "__syncthreads();",
                 f"{u}+=((unsigned short*)s)[t/2];", "__syncthreads();"],
                [f"{each} ((unsigned char*)s)[t]=(unsigned char)S[t].{v};",
                 f"{each} S[t].{u}+=((unsigned short*)s)[t/2];"],
            )  # fmt: skip
        case 7:
            at = f"32+{2 * site}"
            return (
                [f"if({u}&1u) atomicAdd((unsigned long long*)&g[{at}],{w});"],
                [
                    f"{each} if(S[t].{u}&1u){{unsigned long long x;memcpy(&x,&g[{at}],8);x+=S[t].{w};memcpy(&g[{at}],&x,8);}}"
                ],
            )
        case _:
            at = f"48+{site}"
            return (
                [f"{{uint4 q=((const uint4*)in)[b*(THREADS/4)+(t+{lane})%(THREADS/4)];{u}+=q.x^q.z;",
                 f"atomicAdd((float*)&g[{at}],(float)({u}&1023u));}}"],
                [f"{each}{{const unsigned*q=in+4*(b*(THREADS/4)+(t+{lane})%(THREADS/4));S[t].{u}+=q[0]^q[2];",
                 f"g[{at}]=BITS(FLOAT(g[{at}])+(float)(S[t].{u}&1023u));}}"],
            )  # fmt: skip


def _helper(rng: random.Random, number: int) -> str:
    """A function with branches and a loop of its own; those made before it may be called."""
    writer = _Writer(rng, helpers=number)
    a, b = writer.expression("u", 2), writer.expression("u", 2)
    again = f"u2+=h{number - 1}(u0>>1,i1,f1);" if number and rng.random() < 0.5 else ""
    return (
        f"DEVICE unsigned h{number}(unsigned p,int q,float r){{\n"
        f"{_declare()}unsigned l[8];for(int n=0;n<8;n++)l[n]=p+(unsigned)n*(unsigned)q;\n"
        "u0=p;u1=(unsigned)q;u2=p^u1;u3=7u;i0=q;i1=(int)p;i2=3;f0=r;f1=r*2.0f;f2=1.0f;"
        "w0=p;w1=(unsigned long long)u1*p;d0=(double)r;\n"
        f"for(unsigned n=0;n<(p&3u);n++){{if({writer.condition(1)})break;u2=u2*5u+{a};}}\n"
        f"if({writer.condition(1)}){{{again}return {b};}}\nreturn u2;}}\n"
    )


_NAMES = [f"{k}{n}" for k, count in VARIABLES.items() for n in range(count)]


def make_kernel(rng: random.Random, number: int) -> RandomKernel:
    """One kernel; equal generators make equal kernels."""
    writer = _Writer(rng)
    device: list[str] = []
    host: list[str] = []
    phases = rng.randint(1, 3)
    writer.helpers = rng.randint(0, 2)
    helpers = "".join(_helper(rng, n) for n in range(writer.helpers))
    for site in range(phases):
        writer.budget = rng.randint(10, 45)
        writer.may_return = site == phases - 1 and rng.random() < 0.5
        body = "\n".join(writer.block(3, False))
        device.append(body)
        locals_ = "".join(f"auto&{n}=S[t].{n};" for n in (*_NAMES, "l"))
        host.append(f"for(int t=0;t<THREADS;t++){{{locals_}\n{body}\nEND:;}}".replace(
            "RETURN", f"{{S[t].ended=1;goto end{site};}}").replace("END", f"end{site}"))  # fmt: skip
        if writer.may_return:
            break
        there, here = _exchange(rng, writer, site)
        device += there
        host += here
    helpers = re.sub(r"\bh(\d)\(", rf"k{number}h\1(", helpers)
    device, host = ([re.sub(r"\bh(\d)\(", rf"k{number}h\1(", x) for x in y] for y in (device, host))
    return RandomKernel(helpers + _device(number, device), helpers + _host(number, host), number)


def _start() -> str:
    return (
        "unsigned x=in[b*THREADS+t];u0=x;u1=x*2654435761u;u2=t;u3=b;i0=(int)x;i1=(int)(x>>7)-1000;i2=t-48;"
        "f0=(float)i1*0.5f;f1=FLOAT((x&0x7fffffu)|0x3f800000u);f2=(float)t;w0=(unsigned long long)x*x;w1=~w0;"
        "d0=(double)i0/3.0;for(int n=0;n<8;n++)l[n]=x*(unsigned)(n+1);"
    )


def _finish(prefix: str) -> str:
    mixed = "h=0;" + "".join(
        f"h=h*31u+HASH{'' if n[0] in 'ui' else n[0].upper()}({prefix}{n});" for n in _NAMES
    )
    return mixed + "out[b*THREADS+t]=h;"


def _declare() -> str:
    return "".join(f"{_C_TYPE[n[0]]} {n};" for n in _NAMES)


def _device(number: int, lines: list[str]) -> str:
    body = "\n".join(lines)
    return (
        f'extern "C" __global__ void k{number}(const unsigned*in,unsigned*out,unsigned*g){{\n'
        f"__shared__ unsigned s[SHARED]; int t=threadIdx.x,b=blockIdx.x; {_declare()}unsigned l[8];\n{_start()}\n{body}\n"
        f"unsigned {_finish('')}\n}}\n"
    )


def _host(number: int, lines: list[str]) -> str:
    body = "\n".join(lines)
    start = "".join(f"auto&{n}=S[t].{n};" for n in (*_NAMES, "l")) + _start() + "S[t].ended=0;"
    return (
        f'extern "C" void k{number}(const unsigned*in,unsigned*out,unsigned*g){{\n'
        f"struct State{{{_declare()}unsigned l[8];int ended;}};static State S[THREADS];static unsigned s[SHARED];\n"
        f"for(int b=0;b<BLOCKS;b++){{\nfor(int t=0;t<THREADS;t++){{{start}}}\n{body}\n"
        f"for(int t=0;t<THREADS;t++)if(!S[t].ended){{unsigned {_finish('S[t].')}}}\n}}\n}}\n"
    )


_COMMON = f"""
#define THREADS {THREADS}
#define BLOCKS {BLOCKS}
#define SHARED {SHARED}
#define TABLE_OF {",".join(f"{n * 2654435761 % 2**32}u" for n in range(16))}
#define HASH(x) ((unsigned)(x))
#define HASHW(x) ((unsigned)((x)^((x)>>32)))
#define HASHF(x) ((x)!=(x)?0x7fc00000u:BITS(x))
#define HASHD(x) ((x)!=(x)?0x7ff80000u:HASHW(BITS64(x)))
#define F2I(x) ((int)fminf(fmaxf((x),-1e6f),1e6f))
#define F2U(x) ((unsigned)fminf(fmaxf((x),0.0f),1e6f))
"""
_DEVICE_HEAD = (
    _COMMON
    + """
#define POPC(x) ((unsigned)__popc(x))
#define CLZ(x) ((unsigned)__clz(x))
#define MULHI(a,b) __umulhi(a,b)
#define DEVICE __device__ __noinline__
#define RETURN return
__constant__ unsigned TABLE[16]={TABLE_OF};
__device__ __forceinline__ unsigned BITS(float x){return x!=x?0x7fc00000u:__float_as_uint(x);}
__device__ __forceinline__ float FLOAT(unsigned x){return __uint_as_float(x);}
__device__ __forceinline__ unsigned long long BITS64(double x){return (unsigned long long)__double_as_longlong(x);}
"""
)
_HOST_HEAD = (
    "#include <math.h>\n#include <string.h>\n"
    + _COMMON
    + """
#define POPC(x) ((unsigned)__builtin_popcount(x))
#define DEVICE static
static const unsigned TABLE[16]={TABLE_OF};
static inline unsigned CLZ(unsigned x){return x?(unsigned)__builtin_clz(x):32u;}
static inline unsigned MULHI(unsigned a,unsigned b){return (unsigned)(((unsigned long long)a*b)>>32);}
static inline unsigned BITS(float x){unsigned u;memcpy(&u,&x,4);return x!=x?0x7fc00000u:u;}
static inline float FLOAT(unsigned x){float f;memcpy(&f,&x,4);return f;}
static inline unsigned long long BITS64(double x){unsigned long long u;memcpy(&u,&x,8);return u;}
"""
)


def device_source(kernels: list[RandomKernel]) -> str:
    """One .cu file with all of them; compile with -fmad=false."""
    return _DEVICE_HEAD + "".join(k.device for k in kernels)


def host_source(kernels: list[RandomKernel]) -> str:
    """One C++ file with all of them; compile with -fwrapv -ffp-contract=off."""
    return _HOST_HEAD + "".join(k.host for k in kernels)
