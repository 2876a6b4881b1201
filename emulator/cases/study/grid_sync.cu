// Rounds over the whole grid, kept apart by the grid's barrier: each element becomes the sum of its neighbours.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void rounds(unsigned* a, unsigned* b, int n, int count) {
    cg::grid_group grid = cg::this_grid();
    for (int r = 0; r < count; ++r) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) b[i] = a[(i + n - 1) % n] + a[i] + a[(i + 1) % n];
        grid.sync();
        unsigned* t = a; a = b; b = t;
    }
    if (grid.thread_rank() == 0 && !grid.is_valid()) a[0] = 0xdeadu;
}
