// The CUDA C of programs.ptx, which the tests load. Built with NVRTC 12.9 for compute_75.

extern "C" __global__ void scale_add(float a, const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void block_sum(const int *in, int *out, unsigned n) {
    __shared__ int part[256];
    unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void warp_sum(const int *in, int *out) {
    int value = in[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = value;
}

extern "C" __global__ void shuffles(int *out) {
    int lane = threadIdx.x;
    out[lane] = __shfl_up_sync(0xffffffffu, lane, 3);
    out[32 + lane] = __shfl_xor_sync(0xffffffffu, lane, 5);
    out[64 + lane] = __shfl_sync(0xffffffffu, lane, 2, 8);
    out[96 + lane] = __shfl_down_sync(0xffffffffu, lane, 1, 4);
    out[128 + lane] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    out[160 + lane] = __any_sync(0xffffffffu, lane == 7) + 2 * __all_sync(0xffffffffu, lane < 31);
    out[192 + lane] = __match_any_sync(0xffffffffu, lane / 5);
    if (lane < 10) out[224 + lane] = __activemask();
}

extern "C" __global__ void histogram(const unsigned char *data, unsigned *bins, unsigned n) {
    __shared__ unsigned local[256];
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}

extern "C" __global__ void collatz(unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned steps = 0;
    for (unsigned long long value = i + 1; value != 1; ++steps) value = value % 2 ? 3 * value + 1 : value / 2;
    out[i] = steps;
}

extern "C" __global__ void nested(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
    if (i >= n) return;
    for (int a = 0; a <= i % 7; ++a) {
        if (a == 5) continue;
        for (int b = a; b < i; ++b) {
            if ((a * b + i) % 11 == 0) break;
            if (sum > 1000) { out[i] = -sum; return; }
            sum += a ^ b;
        }
    }
    out[i] = sum;
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void recursion(int *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }

typedef int (*Operation)(int, int);
__device__ int plus(int a, int b) { return a + b; }
__device__ int times(int a, int b) { return a * b; }
__device__ int minus(int a, int b) { return a - b; }
__device__ Operation operations[3] = {plus, times, minus};
extern "C" __global__ void pointers(int *out) {
    int i = threadIdx.x;
    out[i] = operations[i % 3](i, 10);
}

// Lanes of one warp and blocks on other threads want the same lock.
extern "C" __global__ void locked(int *lock, int *counter, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        bool done = false;
        while (!done) {
            if (atomicCAS(lock, 0, 1) == 0) {
                __threadfence();
                *(volatile int *)counter = *(volatile int *)counter + 1;
                __threadfence();
                atomicExch(lock, 0);
                done = true;
            }
        }
    }
}

__constant__ float weights[4] = {0.5f, 1.5f, -2.0f, 4.0f};
__device__ int calls = 7;
extern "C" __global__ void constants(float *out) {
    out[threadIdx.x] = weights[threadIdx.x % 4];
    if (threadIdx.x == 0) atomicAdd(&calls, 1);
}

extern "C" __global__ void reverse(int *data) {
    extern __shared__ int tile[];
    tile[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

struct Options { char tag; short level; double scale; int3 shift; };
extern "C" __global__ void options(Options o, double *out) {
    out[threadIdx.x] = o.scale * threadIdx.x + o.level + o.tag + o.shift.z;
}

extern "C" __global__ void scratch(int *out, int k) {
    int table[16];
    for (int i = 0; i < 16; ++i) table[i] = i * i + threadIdx.x;
    for (int i = 0; i < 32; ++i) { int j = table[(k + i) & 15] & 15; table[j] += table[(j + i) & 15]; }
    out[threadIdx.x] = table[(k + threadIdx.x) & 15];
}

extern "C" __global__ void math(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    out[i * 8 + 0] = expf(v);
    out[i * 8 + 1] = logf(fabsf(v) + 0.25f);
    out[i * 8 + 2] = sinf(v);
    out[i * 8 + 3] = cosf(v);
    out[i * 8 + 4] = powf(fabsf(v), 1.5f);
    out[i * 8 + 5] = sqrtf(fabsf(v)) / (v * v + 1.0f);
    out[i * 8 + 6] = erff(v);
    out[i * 8 + 7] = tanhf(v);
}

extern "C" __global__ void greet(int n) {
    if (threadIdx.x < n) printf("thread %d of block %d: %.2f %s\n", (int)threadIdx.x, (int)blockIdx.x, threadIdx.x * 0.5, "ok");
}

extern "C" __global__ void forever(volatile int *flag) { while (*flag == 0) {} }

extern "C" __global__ void beyond(int *data, int n) { data[blockIdx.x * blockDim.x + threadIdx.x + n] = 1; }

extern "C" __global__ void votes(const int *in, int *out) {
    int value = in[threadIdx.x];
    int count = __syncthreads_count(value > 3), all = __syncthreads_and(value >= 0), any = __syncthreads_or(value == 99);
    if (threadIdx.x == 0) { out[0] = count; out[1] = all != 0; out[2] = any != 0; }
}

#define TILE 16
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int start = 0; start < n; start += TILE) {
        as[threadIdx.y][threadIdx.x] = a[row * n + start + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void mandelbrot(unsigned *out, int width, int height, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height) return;
    float cx = -2.0f + 3.0f * px / width, cy = -1.5f + 3.0f * py / height, x = 0, y = 0;
    int steps = 0;
    while (steps < limit && x * x + y * y < 4.0f) {
        float next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
        ++steps;
    }
    out[py * width + px] = steps;
}
