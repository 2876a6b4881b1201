// Cooperative groups: tiles, coalesced threads, labels, reductions and scans.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
extern "C" __global__ void tiles(const int* in, int* out) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int v = in[block.thread_rank()];
    int sum = v;
    for (int o = tile.size() / 2; o > 0; o /= 2) sum += tile.shfl_xor(sum, o);
    int first = tile.shfl(v, 0), up = tile.shfl_up(v, 1);
    unsigned votes = tile.ballot(v & 1);
    tile.sync();
    out[block.thread_rank() * 4] = sum;
    out[block.thread_rank() * 4 + 1] = first + up + (int)tile.meta_group_rank() * 1000;
    out[block.thread_rank() * 4 + 2] = votes | tile.any(v > 95) << 8 | tile.all(v > 5) << 9 | tile.match_any(v & 3) << 16;
    out[block.thread_rank() * 4 + 3] = cg::reduce(tile, v, cg::greater<int>()) + 1000 * cg::reduce(tile, v, cg::plus<int>());
}
extern "C" __global__ void coalesced(const int* in, int* out, int* count) {
    int i = threadIdx.x, v = in[i];
    out[i] = -1;
    if (v % 3 == 0) {
        auto group = cg::coalesced_threads();
        int base = 0;
        if (group.thread_rank() == 0) base = atomicAdd(count, group.size());
        out[i] = group.shfl(base, 0) + group.thread_rank();
    }
}
extern "C" __global__ void labels(const int* in, int* out) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    int v = in[threadIdx.x];
    auto group = cg::labeled_partition(warp, v % 4);
    auto half = cg::binary_partition(warp, v > 50);
    out[threadIdx.x * 3] = cg::reduce(group, v, cg::plus<int>());
    out[threadIdx.x * 3 + 1] = group.size() * 100 + group.thread_rank();
    out[threadIdx.x * 3 + 2] = half.size() * 100 + half.thread_rank();
}
extern "C" __global__ void scans(const int* in, int* out) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    int v = in[threadIdx.x];
    out[threadIdx.x * 3] = cg::inclusive_scan(tile, v);
    out[threadIdx.x * 3 + 1] = cg::exclusive_scan(tile, v);
    out[threadIdx.x * 3 + 2] = cg::inclusive_scan(tile, v, cg::less<int>());
}
extern "C" __global__ void block_of_blocks(const int* in, int* out) {
    __shared__ cg::block_tile_memory<128> scratch;
    auto block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<64>(block);
    out[block.thread_rank()] = cg::reduce(tile, in[block.thread_rank()], cg::plus<int>()) + (int)tile.meta_group_rank();
}
