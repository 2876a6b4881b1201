// Lanes of a warp go their own ways, as devices since sm_70 let them.
__device__ __noinline__ int warpsum(int x) {
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
    return x;
}

__device__ __noinline__ void put(int *s, int x) {
    s[threadIdx.x] = x;
    __syncthreads();
}

// Each lane takes longer than the one before.
__device__ __forceinline__ void dawdle(int turns) {
    volatile int s = 0;
    for (int i = 0; i < turns; i++) s += i;
}

extern "C" __global__ void called(int *o, int m) {
    int t = threadIdx.x;
    dawdle(t * m);
    o[t] = warpsum(t);
}

extern "C" __global__ void plain(int *o, int m) {
    int t = threadIdx.x, x = t;
    dawdle(t * m);
    for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
    o[t] = x;
}

extern "C" __global__ void barrier(int *o, int m) {
    __shared__ int a[64];
    int t = threadIdx.x;
    dawdle(t * m);
    put(a, t);
    o[t] = a[0] + a[31] * 16;
}

// Half of the lanes come to the sum by another function.
__device__ __noinline__ int detour(int x) {
    volatile int local[8];
    local[x & 7] = x;
    return warpsum(local[x & 7]) + local[x & 7];
}

extern "C" __global__ void two_ways(int *o, int m) {
    int t = threadIdx.x;
    dawdle(t * m);
    o[t] = t % 2 ? detour(t) : warpsum(t);
}

// Lanes come to the sum at different depths of one function.
__device__ __noinline__ int deep(int n, int x) {
    if (n == 0) {
        for (int d = 16; d; d >>= 1) x += __shfl_xor_sync(~0u, x, d);
        return x;
    }
    volatile int kept = n;
    return deep(n - 1, x) + kept;
}

extern "C" __global__ void at_depths(int *o, int m) {
    int t = threadIdx.x;
    dawdle(t * m);
    o[t] = deep(t % 4, t);
}

struct Shape {
    __device__ virtual int sum(int x) = 0;
};
struct Square : Shape {
    int side;
    __device__ Square(int side) : side(side) {}
    __device__ int sum(int x) override { return warpsum(x) + side; }
};

extern "C" __global__ void by_pointer(int *o, int m) {
    int t = threadIdx.x;
    Square square(t);
    Shape *volatile shape = &square;
    dawdle(t * m);
    o[t] = shape->sum(t);
}

extern "C" __global__ void sleepy(int *o) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 0;
    __syncwarp();
    int t = threadIdx.x;
    while (*(volatile int *)&s != t) __nanosleep(20);
    o[t] = t + 1;
    __threadfence_block();
    *(volatile int *)&s = t + 1;
}

extern "C" __global__ void spin(int *o) {
    __shared__ int lock;
    if (threadIdx.x == 0) lock = 0;
    __syncwarp();
    while (atomicCAS(&lock, 0, 1));
    __threadfence_block();
    *(volatile int *)o = *(volatile int *)o + 1;
    __threadfence_block();
    atomicExch(&lock, 0);
}

// A lock that is taken at two depths of calls.
__device__ __noinline__ void take(int *lock) {
    while (atomicCAS(lock, 0, 1));
    __threadfence_block();
}

__device__ __noinline__ void deeper(int *lock, int *o) {
    take(lock);
    *(volatile int *)o = *(volatile int *)o + 1;
}

extern "C" __global__ void depths(int *o) {
    __shared__ int lock;
    if (threadIdx.x == 0) lock = 0;
    __syncwarp();
    if (threadIdx.x % 2) {
        deeper(&lock, o);
    } else {
        take(&lock);
        *(volatile int *)o = *(volatile int *)o + 1;
    }
    __threadfence_block();
    atomicExch(&lock, 0);
}

// Each lane waits for the next one, so the first to stand in the way is the last to go on.
extern "C" __global__ void chain(int *o) {
    __shared__ volatile int turn;
    int t = threadIdx.x;
    if (t == 0) turn = blockDim.x - 1;
    __syncwarp();
    while (turn != t);
    o[t] = t + 1;
    turn = t - 1;
}

// Each block waits for the one after it.
extern "C" __global__ void later(int *flags, int sleep) {
    int next = blockIdx.x + 1;
    if (threadIdx.x == 0 && next < gridDim.x)
        while (!((volatile int *)flags)[next])
            if (sleep) __nanosleep(1000);
    __syncthreads();
    if (threadIdx.x == 0) ((volatile int *)flags)[blockIdx.x] = 1;
}
