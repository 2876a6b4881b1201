// Barriers as objects: arrival and wait apart, a pipeline of two stages, and copies that a barrier waits for.
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
extern "C" __global__ void split_barrier(const int* in, int* out, int rounds) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int s[128];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];
    for (int r = 0; r < rounds; ++r) {
        s[threadIdx.x] = v;
        auto token = bar.arrive();
        int own = v * 3;
        bar.wait(std::move(token));
        v = own + s[(threadIdx.x + 1) % blockDim.x];
        bar.arrive_and_wait();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
extern "C" __global__ void staged_sum(const float* in, float* out, int batches) {
    __shared__ float stage[2][64];
    auto block = cg::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    for (int next = 0, now = 0; now < batches; ++now) {
        for (; next < batches && next < now + 2; ++next) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stage[next % 2], in + next * 64, sizeof(float) * 64, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += stage[now % 2][63 - threadIdx.x];
        pipe.consumer_release();
    }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void group_copy(const int* in, int* out) {
    __shared__ int s[256];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, in, sizeof(int) * 256);
    cg::wait(block);
    for (int i = block.thread_rank(); i < 256; i += block.size()) out[i] = s[255 - i];
}
extern "C" __global__ void barrier_copy(const int4* in, int4* out) {
    __shared__ int4 s[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(&s[threadIdx.x], &in[threadIdx.x], cuda::aligned_size_t<16>(16), bar);
    bar.arrive_and_wait();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
