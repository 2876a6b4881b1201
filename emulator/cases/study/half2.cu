// Half-precision axpy and conversions.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void haxpy2(__half2 a, const __half2* x, __half2* y, int n2) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n2) y[i] = __hfma2(a, x[i], y[i]);
}
extern "C" __global__ void half_mix(const __half* x, float* f, __half* o, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    f[i] = __half2float(x[i]) * 2.0f;
    o[i] = __hadd(__float2half(f[i] + 1.0f), __hmul(x[i], x[i]));
    if (__hgt(x[i], o[i])) o[i] = hsqrt(x[i]);
}
extern "C" __global__ void bf16_mix(const __nv_bfloat16* x, __nv_bfloat16* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2bfloat16(__bfloat162float(x[i]) + 1.0f);
}
