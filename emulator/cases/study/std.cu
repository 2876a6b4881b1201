// The device's standard library.
#include <cuda/std/array>
#include <cuda/std/tuple>
#include <cuda/std/optional>
#include <cuda/std/variant>
#include <cuda/std/complex>
#include <cuda/std/bit>
#include <cuda/std/limits>
#include <cuda/std/utility>
#include <cuda/std/functional>
#include <cuda/std/span>
#include <cuda/std/chrono>
#include <cuda/std/cmath>
#include <cuda/std/type_traits>
#include <cuda/std/atomic>
struct Area {
    __device__ float operator()(float r) const { return r * r * 3.0f; }
    __device__ float operator()(cuda::std::pair<float, float> s) const { return s.first * s.second; }
    __device__ float operator()(int) const { return -1.0f; }
};
extern "C" __global__ void containers(const int* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    cuda::std::array<int, 4> a{in[i], in[i] + 1, 3, 4};
    cuda::std::span<int> s(a.data(), a.size());
    int sum = 0;
    for (int v : s.subspan(1)) sum += v;
    auto t = cuda::std::make_tuple(sum, 0.5f, i);
    cuda::std::optional<int> o = in[i] % 3 == 0 ? cuda::std::optional<int>(in[i]) : cuda::std::nullopt;
    cuda::std::variant<float, cuda::std::pair<float, float>, int> v = 2.0f;
    if (in[i] % 3 == 1) v = cuda::std::make_pair(3.0f, (float)in[i]);
    if (in[i] % 3 == 2) v = 7;
    out[i] = cuda::std::get<0>(t) + cuda::std::get<1>(t) + o.value_or(-5) + cuda::std::visit(Area{}, v);
}
extern "C" __global__ void numbers(const unsigned* in, unsigned* out, float* f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = in[i];
    out[i * 6] = cuda::std::popcount(v); out[i * 6 + 1] = cuda::std::countl_zero(v); out[i * 6 + 2] = cuda::std::countr_zero(v);
    out[i * 6 + 3] = cuda::std::rotl(v, 7); out[i * 6 + 4] = cuda::std::bit_cast<unsigned>((float)v); out[i * 6 + 5] = cuda::std::bit_ceil(v >> 1);
    cuda::std::complex<float> z(v % 7, v % 5), w(1.0f, 2.0f);
    auto p = z * w / (w + 1.0f);
    f[i * 3] = p.real(); f[i * 3 + 1] = p.imag(); f[i * 3 + 2] = cuda::std::abs(z) + cuda::std::numeric_limits<float>::epsilon();
}
