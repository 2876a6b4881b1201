template <typename T> __device__ T f(T x) {
    return x.size();
}
extern "C" __global__ void k(float *y) {
    y[0] = f(y[0]);
}
