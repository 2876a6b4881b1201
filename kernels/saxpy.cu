// saxpy: y[i] <- a * x[i] + y[i]
//
// One thread per element. The multiplication and the addition round once, together: fmaf says so, whatever the compiler's options.

extern "C" __global__ void saxpy(float a, const float* __restrict__ x, float* __restrict__ y, unsigned long long n) {
    const unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = fmaf(a, x[i], y[i]);
    }
}
