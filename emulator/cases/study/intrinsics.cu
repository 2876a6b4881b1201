// Integer and floating-point intrinsics, inline assembly, and the clocks.
extern "C" __global__ void integers(const unsigned* a, const unsigned* b, const unsigned* c, unsigned* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i], z = c[i];
    unsigned long long w = (unsigned long long)x << 32 | y;
    unsigned r[40] = {
        (unsigned)__mulhi((int)x, (int)y), __umulhi(x, y), (unsigned)__mul24((int)x, (int)y), __umul24(x, y), (unsigned)__sad((int)x, (int)y, z), __usad(x, y, z),
        (unsigned)__hadd((int)x, (int)y), (unsigned)__rhadd((int)x, (int)y), __uhadd(x, y), __urhadd(x, y), __brev(x), (unsigned)__clzll(w), (unsigned)__ffsll(w), (unsigned)__popcll(w),
        __byte_perm(x, y, z), __funnelshift_l(x, y, z), __funnelshift_r(x, y, z), __funnelshift_lc(x, y, z & 63), __funnelshift_rc(x, y, z & 63),
        (unsigned)__dp4a((int)x, (int)y, (int)z), __dp4a(x, y, z), (unsigned)__dp2a_lo((int)x, (int)y, (int)z), __dp2a_hi(x, y, z),
        (unsigned)__umul64hi(w, w ^ z), (unsigned)(__mul64hi((long long)w, (long long)(w ^ z)) >> 7), (unsigned)(__brevll(w) >> 16),
        __vadd4(x, y), __vsub2(x, y), __vabsdiffu4(x, y), __vmaxs2(x, y), __vminu4(x, y), __vcmpgtu4(x, y), __vseteq2(x, y), __vaddus4(x, y), __vsadu4(x, y), __vavgu4(x, y),
        __vsubss2(x, y), __vneg4(x), __vabsss4(x), (unsigned)__vimax_s32_relu((int)x, (int)y) };
    for (int k = 0; k < 40; ++k) o[i * 40 + k] = r[k];
}
extern "C" __global__ void rounded(const float* a, const float* b, float* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i];
    float r[20] = { __fadd_rn(x, y), __fadd_rz(x, y), __fadd_ru(x, y), __fadd_rd(x, y), __fmul_rn(x, y), __fmul_rz(x, y), __fmul_ru(x, y), __fmul_rd(x, y),
                    __fdiv_rn(x, y), __fdiv_rz(x, y), __fdiv_ru(x, y), __fdiv_rd(x, y), __fmaf_rn(x, y, x), __fmaf_rz(x, y, x), __fmaf_ru(x, y, x), __fmaf_rd(x, y, x),
                    __fsqrt_rn(fabsf(x)), __fsqrt_rz(fabsf(x)), __fsqrt_ru(fabsf(x)), __fsqrt_rd(fabsf(x)) };
    for (int k = 0; k < 20; ++k) o[i * 20 + k] = r[k];
}
extern "C" __global__ void rounded_f64(const double* a, const double* b, double* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i], y = b[i];
    double r[12] = { __dadd_rn(x, y), __dadd_rz(x, y), __dadd_ru(x, y), __dadd_rd(x, y), __dmul_rn(x, y), __ddiv_rn(x, y), __dsqrt_rn(fabs(x)), __fma_rn(x, y, x),
                     __drcp_rn(y), fmin(x, y), fmax(x, y), copysign(x, y) };
    for (int k = 0; k < 12; ++k) o[i * 12 + k] = r[k];
}
extern "C" __global__ void converted(const float* f, const double* d, const long long* l, long long* o, float* p, double* q, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = f[i]; double y = d[i]; long long w = l[i];
    long long r[14] = { __float2int_rn(x), __float2int_rz(x), __float2int_ru(x), __float2int_rd(x), __float2uint_rn(x), __float2ll_rd(x), (long long)__float2ull_ru(x),
                        __double2int_rn(y), __double2uint_rz(y), __double2ll_ru(y), (long long)__double2ull_rd(y), lrintf(x), llround(y), lroundf(x) };
    for (int k = 0; k < 14; ++k) o[i * 14 + k] = r[k];
    float s[6] = { __ll2float_rn(w), __ll2float_rz(w), __ull2float_ru(w), __int2float_rd((int)w), __double2float_rz(y), __uint2float_ru((unsigned)w) };
    for (int k = 0; k < 6; ++k) p[i * 6 + k] = s[k];
    double t[6] = { __ll2double_rn(w), __ll2double_rz(w), __ull2double_ru(w), __int2double_rn((int)w), __hiloint2double(__double2hiint(y), __double2loint(y)), (double)x };
    for (int k = 0; k < 6; ++k) q[i * 6 + k] = t[k];
}
extern "C" __global__ void assembly(const unsigned* a, unsigned* o) {
    unsigned x = a[threadIdx.x], r, lane, hi;
    asm("{ .reg .u32 t; .reg .pred p; add.u32 t, %1, 5; setp.gt.u32 p, t, 1000; @p sub.u32 t, t, 1000; mov.u32 %0, t; }" : "=r"(r) : "r"(x));
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("{ .reg .u64 w; mul.wide.u32 w, %1, %1; shr.u64 w, w, 32; cvt.u32.u64 %0, w; }" : "=r"(hi) : "r"(x));
    unsigned l, p;
    asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(l) : "r"(x), "r"(r), "r"(hi));
    asm("{ .reg .b32 t0, t1; mov.b64 {t0, t1}, %1; prmt.b32 %0, t0, t1, 0x2637; }" : "=r"(p) : "l"((unsigned long long)x << 24 | r));
    o[threadIdx.x * 5] = r; o[threadIdx.x * 5 + 1] = lane; o[threadIdx.x * 5 + 2] = hi; o[threadIdx.x * 5 + 3] = l; o[threadIdx.x * 5 + 4] = p;
}
extern "C" __global__ void clocks(unsigned* o) {
    long long a = clock64(); unsigned long long g, h;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g));
    __nanosleep(1000);
    long long b = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(h));
    o[threadIdx.x] = (b > a) | (h > g) << 1 | (clock() != 0) << 2;
}
