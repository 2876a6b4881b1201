// Textures and surfaces as image programs use them. Pixel centres lie at halves.

extern "C" __global__ void rotate(cudaTextureObject_t image, float *out, int width, int height, float angle) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float u = (x + 0.5f) / width - 0.5f, v = (y + 0.5f) / height - 0.5f;
    float s = sinf(angle), c = cosf(angle);
    out[y * width + x] = tex2D<float>(image, u * c - v * s + 0.5f, v * c + u * s + 0.5f);
}

// The mean of (2 r + 1) squared pixels, of bytes that are read as numbers from 0 to 1.
extern "C" __global__ void box(cudaTextureObject_t image, uchar4 *out, int width, int height, int r) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int dy = -r; dy <= r; dy++)
        for (int dx = -r; dx <= r; dx++) {
            float4 texel = tex2D<float4>(image, x + dx + 0.5f, y + dy + 0.5f);
            sum.x += texel.x; sum.y += texel.y; sum.z += texel.z; sum.w += texel.w;
        }
    float scale = 255.0f / ((2 * r + 1) * (2 * r + 1));
    out[y * width + x] = make_uchar4(sum.x * scale + 0.5f, sum.y * scale + 0.5f, sum.z * scale + 0.5f, sum.w * scale + 0.5f);
}

extern "C" __global__ void slice(cudaTextureObject_t volume, float *out, int width, int height, float depth) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    out[y * width + x] = tex3D<float>(volume, (x + 0.5f) / width, (y + 0.5f) / height, depth);
}

extern "C" __global__ void reflections(cudaTextureObject_t cube, float *out, const float3 *directions, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = texCubemap<float>(cube, directions[i].x, directions[i].y, directions[i].z);
}

extern "C" __global__ void layers(cudaTextureObject_t image, short2 *out, int width, int height) {
    int x = threadIdx.x, y = threadIdx.y, layer = blockIdx.x;
    out[(layer * height + y) * width + x] = tex2DLayered<short2>(image, x + 0.5f, y + 0.5f, layer);
}

// Copies an image by surfaces, upside down, and counts up each of its bytes.
extern "C" __global__ void flip(cudaSurfaceObject_t from, cudaSurfaceObject_t to, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    uchar4 pixel = surf2Dread<uchar4>(from, x * sizeof(uchar4), y);
    pixel.x++; pixel.y++; pixel.z++; pixel.w++;
    surf2Dwrite(pixel, to, x * sizeof(uchar4), height - 1 - y);
}

// Every boundary mode but the trap, at both ends of the rows.
extern "C" __global__ void boundaries(cudaSurfaceObject_t image, float *out, int width) {
    int x = (int)threadIdx.x - 2;
    out[threadIdx.x] = surf2Dread<float>(image, x * 4, 0, cudaBoundaryModeClamp);
    out[threadIdx.x + blockDim.x] = surf2Dread<float>(image, x * 4, 0, cudaBoundaryModeZero);
    surf2Dwrite(1.0f + threadIdx.x, image, x * 4, 1, cudaBoundaryModeZero);
}

__device__ float weight(float x) {
    x = fabsf(x);
    if (x >= 3.0f) return 0.0f;
    if (x < 1e-5f) return 1.0f;
    float px = 3.14159265f * x;
    return 3.0f * sinf(px) * sinf(px / 3.0f) / (px * px);
}

// Lanczos with three lobes, enlarged.
extern "C" __global__ void lanczos(cudaTextureObject_t image, float *out, int width, int height, float scale) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float u = (x + 0.5f) * scale, v = (y + 0.5f) * scale;
    float fu = floorf(u - 0.5f), fv = floorf(v - 0.5f), sum = 0.0f, total = 0.0f;
    for (int j = -2; j <= 3; j++)
        for (int i = -2; i <= 3; i++) {
            float at_x = fu + i + 0.5f, at_y = fv + j + 0.5f, w = weight(u - at_x) * weight(v - at_y);
            sum += w * tex2D<float>(image, at_x, at_y);
            total += w;
        }
    out[y * width + x] = sum / total;
}

// A cubic B-spline by four fetches that are filtered linearly.
extern "C" __global__ void bicubic(cudaTextureObject_t image, float *out, int width, int height, float scale) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float u = (x + 0.5f) * scale - 0.5f, v = (y + 0.5f) * scale - 0.5f;
    float pu = floorf(u), pv = floorf(v), fu = u - pu, fv = v - pv;
    auto w0 = [](float a) { return (1 - a) * (1 - a) * (1 - a) / 6; };
    auto w1 = [](float a) { return (3 * a * a * a - 6 * a * a + 4) / 6; };
    auto w2 = [](float a) { return (-3 * a * a * a + 3 * a * a + 3 * a + 1) / 6; };
    auto w3 = [](float a) { return a * a * a / 6; };
    float gu0 = w0(fu) + w1(fu), gu1 = w2(fu) + w3(fu), gv0 = w0(fv) + w1(fv), gv1 = w2(fv) + w3(fv);
    float hu0 = pu - 0.5f + w1(fu) / gu0, hu1 = pu + 1.5f + w3(fu) / gu1;
    float hv0 = pv - 0.5f + w1(fv) / gv0, hv1 = pv + 1.5f + w3(fv) / gv1;
    out[y * width + x] = gv0 * (gu0 * tex2D<float>(image, hu0, hv0) + gu1 * tex2D<float>(image, hu1, hv0))
                       + gv1 * (gu0 * tex2D<float>(image, hu0, hv1) + gu1 * tex2D<float>(image, hu1, hv1));
}

// A table in linear memory, with entries around it that read as 0.
extern "C" __global__ void table(cudaTextureObject_t values, const int *indices, float *out) {
    out[threadIdx.x] = tex1Dfetch<float>(values, indices[threadIdx.x]);
}

extern "C" __global__ void levels(cudaTextureObject_t image, float *out) {
    float level = threadIdx.x * 0.5f;
    out[threadIdx.x] = tex2DLod<float>(image, 0.5f, 0.5f, level);
    float step = exp2f(level) / 16;
    out[threadIdx.x + blockDim.x] = tex2DGrad<float>(image, 0.5f, 0.5f, make_float2(step, 0), make_float2(0, step / 2));
}

extern "C" __global__ void neighbours(cudaTextureObject_t image, float4 *out, float2 at) {
    bool resident = false;
    out[0] = tex2Dgather<float4>(image, at.x, at.y, 1);
    float2 texel = tex2D<float2>(image, at.x, at.y, &resident);
    out[1] = make_float4(texel.x, texel.y, resident, 0);
}
