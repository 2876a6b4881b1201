// CUB's collectives, as applications use them.
#include <cub/block/block_scan.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
extern "C" __global__ void scan_and_reduce(const int* in, int* out) {
    using Scan = cub::BlockScan<int, 128>;
    using Reduce = cub::BlockReduce<int, 128>;
    __shared__ union { typename Scan::TempStorage scan; typename Reduce::TempStorage reduce; } s;
    int v[2] = { in[threadIdx.x * 2], in[threadIdx.x * 2 + 1] }, before[2], total;
    Scan(s.scan).ExclusiveSum(v, before, total);
    __syncthreads();
    int most = Reduce(s.reduce).Reduce(max(v[0], v[1]), [](int a, int b) { return a > b ? a : b; });
    out[threadIdx.x * 2] = before[0]; out[threadIdx.x * 2 + 1] = before[1];
    if (threadIdx.x == 0) { out[256] = total; out[257] = most; }
}
extern "C" __global__ void sort(unsigned* keys, int* values) {
    using Sort = cub::BlockRadixSort<unsigned, 128, 4, int>;
    __shared__ typename Sort::TempStorage s;
    unsigned k[4]; int v[4];
    for (int i = 0; i < 4; ++i) { k[i] = keys[threadIdx.x * 4 + i]; v[i] = values[threadIdx.x * 4 + i]; }
    Sort(s).Sort(k, v);
    for (int i = 0; i < 4; ++i) { keys[threadIdx.x * 4 + i] = k[i]; values[threadIdx.x * 4 + i] = v[i]; }
}
extern "C" __global__ void warp_sums(const float* in, float* out) {
    using Reduce = cub::WarpReduce<float>;
    using Scan = cub::WarpScan<float>;
    __shared__ typename Reduce::TempStorage r[4];
    __shared__ typename Scan::TempStorage s[4];
    float v = in[threadIdx.x], sum = Reduce(r[threadIdx.x / 32]).Sum(v), scan;
    Scan(s[threadIdx.x / 32]).InclusiveSum(v, scan);
    out[threadIdx.x] = scan;
    if (threadIdx.x % 32 == 0) out[128 + threadIdx.x / 32] = sum;
}
