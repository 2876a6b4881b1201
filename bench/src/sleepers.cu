// Rests until so many nanoseconds are over. A sleep lasts a millisecond at most, as CUDA says.
extern "C" __global__ void sleeps(unsigned *done, unsigned long long nanoseconds)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        __nanosleep(1000000);
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < nanoseconds);
    *done = 42;
}
