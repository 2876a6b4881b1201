// Matrix products by inline PTX, as hand-tuned libraries make them: asynchronous copies into swizzled shared memory,
// ldmatrix, mma.sync. One warp makes 16 by 8 of the result. No headers needed.

__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void copy16(unsigned to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

__device__ void copies_done() {
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncwarp();
}

// Where a piece of 8 halves of a row of 16 lies: the two pieces of a row change places in every other four rows.
__device__ int piece(int row, int half) { return row * 16 + (half ^ (row >> 2 & 1)) * 8; }

// A is 16 rows of k halves for each block in y, B k rows of n; a result of f32.
extern "C" __global__ void mma_gemm_f16(const unsigned short* a, const unsigned short* b, float* c, int n, int k) {
    __shared__ __align__(16) unsigned short left[16 * 16], right[16 * 8];
    const int lane = threadIdx.x, group = lane >> 2, thread = lane & 3;
    const int row = blockIdx.y * 16, column = blockIdx.x * 8;
    float sum[4] = {0, 0, 0, 0};
    for (int at = 0; at < k; at += 16) {
        copy16(shared_address(left + piece(lane / 2, lane % 2)), a + (row + lane / 2) * k + at + lane % 2 * 8);
        if (lane < 16) copy16(shared_address(right + lane * 8), b + (at + lane) * n + column);
        copies_done();
        unsigned x[4], y[2];
        const unsigned x_row = shared_address(left + piece(lane % 16, lane / 16));
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(x_row));
        const unsigned y_row = shared_address(right + lane % 16 * 8);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[0]), "=r"(y[1])
                     : "r"(y_row));
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
        __syncwarp();
    }
    float* out = c + (row + group) * n + column + thread * 2;
    out[0] = sum[0], out[1] = sum[1], out[8 * n] = sum[2], out[8 * n + 1] = sum[3];
}

// A of u8 row by row and B of s8 column by column, straight out of global memory; the sums saturate.
extern "C" __global__ void mma_gemm_u8_s8(const unsigned* a, const unsigned* b, int* c, int n, int k) {
    const int lane = threadIdx.x, group = lane >> 2, thread = lane & 3;
    const int row = blockIdx.y * 16, column = blockIdx.x * 8, words = k / 4;
    int sum[4] = {0, 0, 0, 0};
    for (int at = 0; at < words; at += 8) {
        const unsigned* x = a + (row + group) * words + at + thread;
        const unsigned* y = b + (column + group) * words + at + thread;
        asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                     : "r"(x[0]), "r"(x[8 * words]), "r"(x[4]), "r"(x[8 * words + 4]), "r"(y[0]), "r"(y[4]));
    }
    int* out = c + (row + group) * n + column + thread * 2;
    out[0] = sum[0], out[1] = sum[1], out[8 * n] = sum[2], out[8 * n + 1] = sum[3];
}
