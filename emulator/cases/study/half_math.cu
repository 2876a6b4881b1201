// What cuda_fp16.h and cuda_bf16.h offer: arithmetic, comparisons, conversions, functions, pairs.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void half_arithmetic(const __half* a, const __half* b, const __half* c, __half* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half x = a[i], y = b[i], z = c[i];
    __half r[16] = { __hadd_rn(x, y), __hsub_rn(x, y), __hmul_rn(x, y), __hdiv(x, y), __hfma(x, y, z), __hadd_sat(x, y), __hsub_sat(x, y), __hmul_sat(x, y),
                     __hfma_sat(x, y, z), __hfma_relu(x, y, z), __hneg(x), __habs(x), __hmin(x, y), __hmax(x, y), __hmin_nan(x, y), __hmax_nan(x, y) };
    for (int k = 0; k < 16; ++k) o[i * 16 + k] = r[k];
}
extern "C" __global__ void bfloat_arithmetic(const __nv_bfloat16* a, const __nv_bfloat16* b, const __nv_bfloat16* c, __nv_bfloat16* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat16 x = a[i], y = b[i], z = c[i];
    __nv_bfloat16 r[16] = { __hadd_rn(x, y), __hsub_rn(x, y), __hmul_rn(x, y), __hdiv(x, y), __hfma(x, y, z), __hadd_sat(x, y), __hsub_sat(x, y), __hmul_sat(x, y),
                     __hfma_sat(x, y, z), __hfma_relu(x, y, z), __hneg(x), __habs(x), __hmin(x, y), __hmax(x, y), __hmin_nan(x, y), __hmax_nan(x, y) };
    for (int k = 0; k < 16; ++k) o[i * 16 + k] = r[k];
}
template <typename T> __device__ unsigned comparisons(T x, T y) {
    return __heq(x, y) | __hne(x, y) << 1 | __hlt(x, y) << 2 | __hle(x, y) << 3 | __hgt(x, y) << 4 | __hge(x, y) << 5
         | __hequ(x, y) << 6 | __hneu(x, y) << 7 | __hltu(x, y) << 8 | __hleu(x, y) << 9 | __hgtu(x, y) << 10 | __hgeu(x, y) << 11
         | __hisnan(x) << 12 | (__hisinf(x) != 0) << 13;
}
extern "C" __global__ void compared(const __half* a, const __half* b, const __nv_bfloat16* c, const __nv_bfloat16* d, unsigned* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { o[2 * i] = comparisons(a[i], b[i]); o[2 * i + 1] = comparisons(c[i], d[i]); }
}
extern "C" __global__ void pairs(const __half2* a, const __half2* b, __half2* o, unsigned* m, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 x = a[i], y = b[i];
    __half2 r[8] = { __hadd2_rn(x, y), __hmul2_rn(x, y), __h2div(x, y), __hmin2(x, y), __hmax2(x, y), __lowhigh2highlow(x), __lows2half2(x, y), __highs2half2(x, y) };
    for (int k = 0; k < 8; ++k) o[i * 8 + k] = r[k];
    m[i * 4] = __heq2_mask(x, y); m[i * 4 + 1] = __hlt2_mask(x, y); m[i * 4 + 2] = __hbge2(x, y); m[i * 4 + 3] = __hbneu2(x, y);
}
extern "C" __global__ void bfloat_pairs(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat162 x = a[i], y = b[i];
    __nv_bfloat162 r[6] = { __hadd2_rn(x, y), __hmul2_rn(x, y), __hfma2(x, y, x), __hmin2(x, y), __hmax2(x, y), __habs2(x) };
    for (int k = 0; k < 6; ++k) o[i * 6 + k] = r[k];
}
extern "C" __global__ void half_functions(const __half* a, __half* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half x = a[i];
    __half r[16] = { hexp(x), hexp2(x), hexp10(x), hlog(x), hlog2(x), hlog10(x), hsin(x), hcos(x), hsqrt(x), hrsqrt(x), hrcp(x), hfloor(x), hceil(x), htrunc(x), hrint(x), htanh(x) };
    for (int k = 0; k < 16; ++k) o[i * 16 + k] = r[k];
}
extern "C" __global__ void bfloat_functions(const __nv_bfloat16* a, __nv_bfloat16* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat16 x = a[i];
    __nv_bfloat16 r[16] = { hexp(x), hexp2(x), hexp10(x), hlog(x), hlog2(x), hlog10(x), hsin(x), hcos(x), hsqrt(x), hrsqrt(x), hrcp(x), hfloor(x), hceil(x), htrunc(x), hrint(x), htanh(x) };
    for (int k = 0; k < 16; ++k) o[i * 16 + k] = r[k];
}
extern "C" __global__ void pair_functions(const __half2* a, const __nv_bfloat162* b, __half2* o, __nv_bfloat162* p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    o[2 * i] = h2exp(a[i]); o[2 * i + 1] = h2tanh(a[i]);
    p[2 * i] = h2exp(b[i]); p[2 * i + 1] = h2tanh(b[i]);
}
extern "C" __global__ void half_conversions(const float* f, const int* w, const long long* l, const double* d, __half* h, __nv_bfloat16* b, unsigned* o, long long* q, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half r[10] = { __float2half_rn(f[i]), __float2half_rz(f[i]), __float2half_rd(f[i]), __float2half_ru(f[i]), __int2half_rn(w[i]), __uint2half_rz(w[i]),
                     __ll2half_rn(l[i]), __double2half(d[i]), __short2half_rd((short)w[i]), __ull2half_ru(l[i]) };
    for (int k = 0; k < 10; ++k) h[i * 10 + k] = r[k];
    __nv_bfloat16 s[8] = { __float2bfloat16_rn(f[i]), __float2bfloat16_rz(f[i]), __float2bfloat16_rd(f[i]), __float2bfloat16_ru(f[i]), __int2bfloat16_rn(w[i]),
                     __ll2bfloat16_rn(l[i]), __double2bfloat16(d[i]), __ushort2bfloat16_rn((unsigned short)w[i]) };
    for (int k = 0; k < 8; ++k) b[i * 8 + k] = s[k];
    __half x = __float2half_rn(f[i]);
    __nv_bfloat16 y = __float2bfloat16_rn(f[i]);
    unsigned t[8] = { (unsigned)__half2int_rn(x), (unsigned)__half2int_rz(x), __half2uint_rd(x), (unsigned)__half2short_ru(x), __half2ushort_rz(x),
                     (unsigned)__bfloat162int_rn(y), __bfloat162uint_rz(y), (unsigned)__bfloat162short_rd(y) };
    for (int k = 0; k < 8; ++k) o[i * 8 + k] = t[k];
    q[2 * i] = __half2ll_rn(x); q[2 * i + 1] = __bfloat162ll_rz(y);
}
