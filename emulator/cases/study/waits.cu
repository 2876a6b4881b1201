// Threads of a warp that wait for each other by the standard library's means.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/semaphore>

extern "C" __global__ void semaphores(int *o) {
    using semaphore = cuda::counting_semaphore<cuda::thread_scope_block, 4>;
    __shared__ semaphore *shared;
    __shared__ alignas(semaphore) unsigned char room[sizeof(semaphore)];
    if (threadIdx.x == 0) shared = new (room) semaphore(1);
    __syncthreads();
    shared->acquire();
    *(volatile int *)o = *(volatile int *)o + 1;
    shared->release();
}

// The lanes that wait stand first.
extern "C" __global__ void waits(int *o) {
    using atomic = cuda::atomic<int, cuda::thread_scope_block>;
    __shared__ atomic *shared;
    __shared__ alignas(atomic) unsigned char room[sizeof(atomic)];
    int t = threadIdx.x;
    if (t == 0) shared = new (room) atomic(0);
    __syncthreads();
    if (t % 32 != 31) {
        shared->wait(0);
    } else if (t == 31) {
        shared->store(7);
        shared->notify_all();
    }
    o[t] = shared->load();
}

// A barrier for two lanes, of which the one that waits stands first.
extern "C" __global__ void pairs(int *o) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    __shared__ barrier bar;
    __shared__ volatile int value;
    int t = threadIdx.x;
    if (t == 0) init(&bar, 2);
    __syncthreads();
    if (t == 3) {
        bar.arrive_and_wait();
        o[0] = value;
    } else if (t == 4) {
        value = 5;
        bar.arrive_and_wait();
    }
}
