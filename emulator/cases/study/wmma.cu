// Tensor-core tile product.
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void wmma16(const half* a, const half* b, float* c, int ld) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, ld); wmma::load_matrix_sync(fb, b, ld);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, ld, wmma::mem_row_major);
}
