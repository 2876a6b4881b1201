// The kernels that the emulator is measured with. kernels.ptx is what NVRTC 12.9 makes of this file for compute_80.
//
// They are written as such kernels usually are. Where a result could round in two ways, fmaf says which, so that plain Rust can do
// the same arithmetic and the answers can be compared to the bit.

extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = fmaf(a, x[i], y[i]);
    }
}

extern "C" __global__ void saxpy_float4(float a, const float4* __restrict__ x, float4* __restrict__ y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        const float4 p = x[i];
        float4 q = y[i];
        q.x = fmaf(a, p.x, q.x);
        q.y = fmaf(a, p.y, q.y);
        q.z = fmaf(a, p.z, q.z);
        q.w = fmaf(a, p.w, q.w);
        y[i] = q;
    }
}

extern "C" __global__ void matmul_naive(const float* a, const float* b, float* c, int n) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || column >= n) {
        return;
    }
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) {
        sum = fmaf(a[row * n + k], b[k * n + column], sum);
    }
    c[row * n + column] = sum;
}

#define TILE 16

extern "C" __global__ void matmul_tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        a_tile[threadIdx.y][threadIdx.x] = row < n && start + threadIdx.x < n ? a[row * n + start + threadIdx.x] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = column < n && start + threadIdx.y < n ? b[(start + threadIdx.y) * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) {
            sum = fmaf(a_tile[threadIdx.y][k], b_tile[k][threadIdx.x], sum);
        }
        __syncthreads();
    }
    if (row < n && column < n) {
        c[row * n + column] = sum;
    }
}

#define MMA_TILE 64
#define MMA_STEP 32
// Eight halves more in a row of shared memory, so that rows start in different banks.
#define MMA_PAD 8

static __device__ unsigned shared_address(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

// The product of matrices of halves on tensor cores. n is a multiple of 64. A block of 4 warps computes a tile of 64 x 64, each
// warp a quarter of it as 2 x 4 products of 16 x 8.
extern "C" __global__ void matmul_mma(const uint4* a, const uint4* b, float* c, int n) {
    __shared__ __align__(16) unsigned short a_tile[MMA_TILE][MMA_STEP + MMA_PAD];
    __shared__ __align__(16) unsigned short b_tile[MMA_STEP][MMA_TILE + MMA_PAD];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int top = blockIdx.y * MMA_TILE, left = blockIdx.x * MMA_TILE;
    const int warp_top = warp / 2 * 32, warp_left = warp % 2 * 32;
    float sum[2][4][4] = {};
    for (int start = 0; start < n; start += MMA_STEP) {
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            const int i = part * 128 + threadIdx.x;
            *(uint4*)&a_tile[i / 4][i % 4 * 8] = a[((top + i / 4) * n + start) / 8 + i % 4];
            *(uint4*)&b_tile[i / 8][i % 8 * 8] = b[((start + i / 8) * n + left) / 8 + i % 8];
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < MMA_STEP; k += 16) {
            unsigned as[2][4], bs[2][4];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const unsigned a_row = shared_address(&a_tile[warp_top + half * 16 + lane % 16][k + lane / 16 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(as[half][0]), "=r"(as[half][1]), "=r"(as[half][2]), "=r"(as[half][3])
                             : "r"(a_row) : "memory");
                const unsigned b_row = shared_address(&b_tile[k + lane % 16][warp_left + half * 16 + lane / 16 * 8]);
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(bs[half][0]), "=r"(bs[half][1]), "=r"(bs[half][2]), "=r"(bs[half][3])
                             : "r"(b_row) : "memory");
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    float* d = sum[i][j];
                    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                        "{%0, %1, %2, %3};"
                        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                        : "r"(as[i][0]), "r"(as[i][1]), "r"(as[i][2]), "r"(as[i][3]), "r"(bs[j / 2][j % 2 * 2]),
                          "r"(bs[j / 2][j % 2 * 2 + 1]));
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int row = top + warp_top + i * 16 + lane / 4, column = left + warp_left + j * 8 + lane % 4 * 2;
            *(float2*)&c[row * n + column] = make_float2(sum[i][j][0], sum[i][j][1]);
            *(float2*)&c[(row + 8) * n + column] = make_float2(sum[i][j][2], sum[i][j][3]);
        }
    }
}

// The same product as nvcuda::wmma makes it: a warp computes a tile of 16 x 16 and loads its factors from global memory.
extern "C" __global__ void matmul_wmma(const unsigned short* a, const unsigned short* b, float* c, int n) {
    const int warp = threadIdx.x / 32;
    const int top = blockIdx.y * 32 + warp / 2 * 16, left = blockIdx.x * 32 + warp % 2 * 16;
    float d[8] = {};
    for (int start = 0; start < n; start += 16) {
        unsigned as[8], bs[8];
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(as[0]), "=r"(as[1]), "=r"(as[2]), "=r"(as[3]), "=r"(as[4]), "=r"(as[5]), "=r"(as[6]), "=r"(as[7])
                     : "l"(__cvta_generic_to_global(&a[top * n + start])), "r"(n) : "memory");
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.global.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
                     : "=r"(bs[0]), "=r"(bs[1]), "=r"(bs[2]), "=r"(bs[3]), "=r"(bs[4]), "=r"(bs[5]), "=r"(bs[6]), "=r"(bs[7])
                     : "l"(__cvta_generic_to_global(&b[start * n + left])), "r"(n) : "memory");
        asm("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "
            "{%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, "
            "{%0, %1, %2, %3, %4, %5, %6, %7};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
            : "r"(as[0]), "r"(as[1]), "r"(as[2]), "r"(as[3]), "r"(as[4]), "r"(as[5]), "r"(as[6]), "r"(as[7]), "r"(bs[0]),
              "r"(bs[1]), "r"(bs[2]), "r"(bs[3]), "r"(bs[4]), "r"(bs[5]), "r"(bs[6]), "r"(bs[7]));
    }
    asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, %9;"
                 :: "l"(__cvta_generic_to_global(&c[top * n + left])), "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]), "f"(d[4]),
                    "f"(d[5]), "f"(d[6]), "f"(d[7]), "r"(n) : "memory");
}

// One sum for each block.
extern "C" __global__ void reduce(const float* in, float* sums, unsigned n) {
    __shared__ float tree[256];
    float sum = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        sum += in[i];
    }
    tree[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            tree[threadIdx.x] += tree[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = tree[0];
    }
}

// The sum of the values in the lanes up to this one.
static __device__ unsigned scan_warp(unsigned value) {
    const unsigned lane = threadIdx.x % 32;
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        const unsigned before = __shfl_up_sync(0xffffffffu, value, distance);
        value += lane >= distance ? before : 0;
    }
    return value;
}

// The sum of the values of all threads before this one, in a block of 256.
static __device__ unsigned scan_block(unsigned own, unsigned* total) {
    __shared__ unsigned warps[8];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned in_warp = scan_warp(own);
    if (lane == 31) {
        warps[warp] = in_warp;
    }
    __syncthreads();
    if (warp == 0) {
        const unsigned sum = scan_warp(lane < 8 ? warps[lane] : 0);
        if (lane < 8) {
            warps[lane] = sum;
        }
    }
    __syncthreads();
    *total = warps[7];
    return in_warp - own + (warp > 0 ? warps[warp - 1] : 0);
}

// Four times four values of a thread, in its registers.
#define QUADS 4

// Each block scans a tile of 4096 values in place and tells its sum. A thread has 16 of them.
extern "C" __global__ void scan_tiles(uint4* values, unsigned* sums) {
    uint4* own = values + (blockIdx.x * 256 + threadIdx.x) * QUADS;
    uint4 v[QUADS];
    unsigned sum = 0;
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
        v[quad] = own[quad];
        v[quad].x += sum;
        v[quad].y += v[quad].x;
        v[quad].z += v[quad].y;
        v[quad].w += v[quad].z;
        sum = v[quad].w;
    }
    unsigned total;
    const unsigned before = scan_block(sum, &total);
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
        own[quad] = make_uint4(before + v[quad].x, before + v[quad].y, before + v[quad].z, before + v[quad].w);
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = total;
    }
}

// One block turns the tiles' sums into what precedes each tile.
extern "C" __global__ void scan_sums(unsigned* sums, unsigned tiles) {
    unsigned carry = 0;
    for (unsigned first = 0; first < tiles; first += 256) {
        const unsigned i = first + threadIdx.x;
        unsigned total;
        const unsigned before = scan_block(i < tiles ? sums[i] : 0, &total);
        if (i < tiles) {
            sums[i] = carry + before;
        }
        carry += total;
        __syncthreads();
    }
}

extern "C" __global__ void scan_add(uint4* values, const unsigned* sums) {
    uint4* own = values + (blockIdx.x * 256 + threadIdx.x) * QUADS;
    const unsigned before = sums[blockIdx.x];
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
        const uint4 v = own[quad];
        own[quad] = make_uint4(before + v.x, before + v.y, before + v.z, before + v.w);
    }
}

extern "C" __global__ void histogram(const unsigned char* data, unsigned* bins, unsigned n) {
    __shared__ unsigned part[256];
    part[threadIdx.x] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&part[data[i]], 1u);
    }
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], part[threadIdx.x]);
}

#define SIDE 32
#define ROWS 8

extern "C" __global__ void transpose(const float* in, float* out, int n) {
    __shared__ float tile[SIDE][SIDE + 1];
    int x = blockIdx.x * SIDE + threadIdx.x, y = blockIdx.y * SIDE + threadIdx.y;
    for (int row = 0; row < SIDE; row += ROWS) {
        if (x < n && y + row < n) {
            tile[threadIdx.y + row][threadIdx.x] = in[(y + row) * n + x];
        }
    }
    __syncthreads();
    x = blockIdx.y * SIDE + threadIdx.x;
    y = blockIdx.x * SIDE + threadIdx.y;
    for (int row = 0; row < SIDE; row += ROWS) {
        if (x < n && y + row < n) {
            out[(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
        }
    }
}

// The pull of all bodies on each. A position is x, y, z and the mass.
extern "C" __global__ void nbody(const float4* positions, float4* pulls, float softening, unsigned n) {
    __shared__ float4 tile[128];
    const unsigned body = blockIdx.x * 128 + threadIdx.x;
    const float4 own = positions[body];
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (unsigned first = 0; first < n; first += 128) {
        tile[threadIdx.x] = positions[first + threadIdx.x];
        __syncthreads();
        for (unsigned i = 0; i < 128; ++i) {
            const float4 other = tile[i];
            const float x = other.x - own.x, y = other.y - own.y, z = other.z - own.z;
            const float square = fmaf(x, x, fmaf(y, y, fmaf(z, z, softening)));
            const float inverse = rsqrtf(square);
            const float pull = other.w * inverse * inverse * inverse;
            ax = fmaf(pull, x, ax);
            ay = fmaf(pull, y, ay);
            az = fmaf(pull, z, az);
        }
        __syncthreads();
    }
    pulls[body] = make_float4(ax, ay, az, 0.0f);
}

extern "C" __global__ void mandelbrot(unsigned* out, int width, int height, int limit) {
    const int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) {
        return;
    }
    const float cx = fmaf((float)px, 3.0f / 512.0f, -2.0f), cy = fmaf((float)py, 3.0f / 512.0f, -1.5f);
    float x = 0.0f, y = 0.0f;
    int steps = 0;
    while (steps < limit && fmaf(x, x, y * y) < 4.0f) {
        const float next = fmaf(x, x, fmaf(-y, y, cx));
        y = fmaf(2.0f * x, y, cy);
        x = next;
        ++steps;
    }
    out[py * width + px] = steps;
}

// Philox 4x32-10 (Salmon et al., 2011): random numbers that are a function of a counter and a key.
static __device__ uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        const unsigned high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

static __device__ unsigned is_inside(unsigned x, unsigned y) {
    const float u = (x >> 8) * (1.0f / 16777216.0f), v = (y >> 8) * (1.0f / 16777216.0f);
    return fmaf(u, u, v * v) < 1.0f;
}

extern "C" __global__ void philox_pi(unsigned long long* hits, unsigned seed, unsigned rounds) {
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned count = 0;
    for (unsigned i = 0; i < rounds; ++i) {
        const uint4 random = philox(make_uint4(thread, i, 0, 0), make_uint2(seed, 0xCAFEu));
        count += is_inside(random.x, random.y) + is_inside(random.z, random.w);
    }
    atomicAdd(hits, (unsigned long long)count);
}

// How likely a standard normal variable is below the bound.
static __device__ float normal_below(float bound) {
    return 0.5f * erfcf(-0.70710678f * bound);
}

extern "C" __global__ void black_scholes(const float* spot, const float* strike, const float* years, float* calls, float* puts,
                                         float rate, float volatility, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) {
        return;
    }
    const float deviation = volatility * sqrtf(years[i]);
    const float d1 = (logf(spot[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / deviation;
    const float d2 = d1 - deviation;
    const float discounted = strike[i] * expf(-rate * years[i]);
    calls[i] = spot[i] * normal_below(d1) - discounted * normal_below(d2);
    puts[i] = discounted * normal_below(-d2) - spot[i] * normal_below(-d1);
}
