// Tiled matrix products by mma.h: 32 by 32 results for a block of 4 warps, tiles in padded shared memory. The sizes are
// multiples of 32. Needs <mma.h> and the crt/mma.h that it includes.
#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda;

// A is m by k, B is k by n, C is m by n, all row by row; STEP is how far the sum goes at once.
template <typename Element, typename Stored, typename Sum, int STEP, int PAD>
__device__ void gemm(const Stored* a, const Stored* b, Sum* c, int n, int k, Sum alpha) {
    __shared__ __align__(32) Stored left[32][STEP + PAD];
    __shared__ __align__(32) Stored right[STEP][32 + PAD];
    const int warp = threadIdx.x / 32, row = blockIdx.y * 32, column = blockIdx.x * 32;
    wmma::fragment<wmma::matrix_a, 16, 16, STEP, Element, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, STEP, Element, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, STEP, Sum> sum;
    wmma::fill_fragment(sum, Sum(0));
    for (int at = 0; at < k; at += STEP) {
        for (int i = threadIdx.x; i < 32 * STEP; i += blockDim.x) {
            left[i / STEP][i % STEP] = a[(row + i / STEP) * k + at + i % STEP];
            right[i / 32][i % 32] = b[(at + i / 32) * n + column + i % 32];
        }
        __syncthreads();
        wmma::load_matrix_sync(fa, &left[warp / 2 * 16][0], STEP + PAD);
        wmma::load_matrix_sync(fb, &right[0][warp % 2 * 16], 32 + PAD);
        wmma::mma_sync(sum, fa, fb, sum);
        __syncthreads();
    }
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] = sum.x[i] * alpha;
    wmma::store_matrix_sync(&c[(row + warp / 2 * 16) * n + column + warp % 2 * 16], sum, n, wmma::mem_row_major);
}

extern "C" __global__ void wmma_gemm_f16(const half* a, const half* b, float* c, int n, int k, float alpha) {
    gemm<half, half, float, 16, 16>(a, b, c, n, k, alpha);
}

extern "C" __global__ void wmma_gemm_f16_halves(const half* a, const half* b, half* c, int n, int k, float alpha) {
    gemm<half, half, half, 16, 16>(a, b, c, n, k, __float2half(alpha));
}

extern "C" __global__ void wmma_gemm_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k,
                                          float alpha) {
    gemm<__nv_bfloat16, __nv_bfloat16, float, 16, 16>(a, b, c, n, k, alpha);
}

extern "C" __global__ void wmma_gemm_tf32(const float* a, const float* b, float* c, int n, int k, float alpha) {
    gemm<wmma::precision::tf32, float, float, 8, 8>(a, b, c, n, k, alpha);
}

extern "C" __global__ void wmma_gemm_s8(const signed char* a, const signed char* b, int* c, int n, int k, int alpha) {
    gemm<signed char, signed char, int, 16, 32>(a, b, c, n, k, alpha);
}

// Doubles, without shared memory: one warp for each 8 by 8 of the result. B lies column by column.
extern "C" __global__ void wmma_gemm_f64(const double* a, const double* b, double* c, int n, int k, double alpha) {
    wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 8, 8, 4, double> sum;
    wmma::fill_fragment(sum, 0.0);
    for (int at = 0; at < k; at += 4) {
        wmma::load_matrix_sync(fa, a + blockIdx.y * 8 * k + at, k);
        wmma::load_matrix_sync(fb, b + blockIdx.x * 8 * k + at, k);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] *= alpha;
    wmma::store_matrix_sync(c + blockIdx.y * 8 * n + blockIdx.x * 8, sum, n, wmma::mem_row_major);
}
