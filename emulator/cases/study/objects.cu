// What C++ has beyond functions: virtual calls, the heap, lambdas, unions, bit fields, jumps, tables.
struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual int corners() const { return 0; }
    __device__ virtual ~Shape() {}
};
struct Circle : Shape {
    float r;
    __device__ explicit Circle(float r) : r(r) {}
    __device__ float area() const override { return 3.0f * r * r; }
};
struct Box : Shape {
    float w, h;
    __device__ Box(float w, float h) : w(w), h(h) {}
    __device__ float area() const override { return w * h; }
    __device__ int corners() const override { return 4; }
};
extern "C" __global__ void virtuals(const int* kinds, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Shape* s = kinds[i] & 1 ? (Shape*)new Box(kinds[i], 2.0f) : new Circle(kinds[i]);
    out[i] = s ? s->area() + s->corners() * 1000 : -1.0f;
    delete s;
}
struct Node { int value; Node* next; };
extern "C" __global__ void lists(int* out, int n) {
    Node* head = nullptr;
    for (int i = 0; i < n; ++i) {
        Node* node = (Node*)malloc(sizeof(Node));
        if (!node) { out[threadIdx.x] = -1; return; }
        node->value = i * threadIdx.x; node->next = head; head = node;
    }
    int sum = 0;
    while (head) { Node* next = head->next; sum = sum * 3 + head->value; free(head); head = next; }
    out[threadIdx.x] = sum;
}
union Bits { float f; unsigned u; unsigned char b[4]; };
struct Packed { unsigned a : 3, b : 11; int c : 7; unsigned long long d : 40; };
struct Triple { int x, y, z; };
__device__ __noinline__ Triple rotated(Triple t, int by) { return by % 3 == 0 ? t : by % 3 == 1 ? Triple{t.y, t.z, t.x} : Triple{t.z, t.x, t.y}; }
extern "C" __global__ void layouts(const unsigned* in, unsigned* out) {
    unsigned v = in[threadIdx.x];
    Bits bits; bits.u = v; bits.b[1] ^= 0x5a;
    Packed p; p.a = v; p.b = v >> 3; p.c = (int)v; p.d = (unsigned long long)v << 20;
    Triple t = rotated(Triple{(int)v, 2, 3}, threadIdx.x);
    out[threadIdx.x * 4] = bits.u;
    out[threadIdx.x * 4 + 1] = p.a + p.b * 8 + (unsigned)p.c;
    out[threadIdx.x * 4 + 2] = (unsigned)(p.d >> 16);
    out[threadIdx.x * 4 + 3] = t.x * 1 + t.y * 100 + t.z * 10000;
}
__device__ int wide_switch(int v) {
    switch (v) {
        case 0: return 5; case 1: return -7; case 2: return 11; case 3: return 13 * v; case 4: return v << 9; case 5: return ~v; case 6: return v % 4;
        case 7: return 77; case 8: return 1 - v; case 9: return v * v; case 10: return 1010; case 11: return 3; case 12: return -12; case 100: return 1; case 1000: return 2;
        default: return v / 2;
    }
}
__device__ int step_a(int v) { return v + 1; }
__device__ int step_b(int v) { return v * 2; }
__device__ int step_c(int v) { return v ^ 21; }
typedef int (*Step)(int);
__constant__ Step steps[3] = { step_a, step_b, step_c };
__device__ int calls = 100;
extern "C" __global__ void jumps(const int* in, int* out, int n) {
    int i = threadIdx.x, v = in[i], r = wide_switch(v), turns = 0;
again:
    r = steps[(unsigned)(r + turns) % 3](r);
    if (++turns < (v & 7)) goto again;
    auto add = [=](double x) { return x + r; };
    static __device__ int seen[4];
    atomicAdd(&seen[i & 3], 1); atomicAdd(&calls, 1);
    do { r -= 3; if (r & 8) continue; turns += 2; } while (r > 50);
    out[i] = (int)add(turns) + (int)add(0.5);
}
extern "C" __global__ void counted(int* out) { out[0] = calls; }
__device__ constexpr unsigned table_entry(unsigned i) { for (int k = 0; k < 8; ++k) i = i & 1 ? i >> 1 ^ 0xedb88320u : i >> 1; return i; }
struct Table { unsigned t[256]; __device__ constexpr Table() : t() { for (unsigned i = 0; i < 256; ++i) t[i] = table_entry(i); } };
__constant__ Table crc_table = Table();
extern "C" __global__ void checksums(const unsigned char* text, unsigned* out, int n) {
    unsigned c = ~0u;
    for (int i = threadIdx.x; i < n; ++i) c = crc_table.t[(c ^ text[i]) & 255] ^ c >> 8;
    out[threadIdx.x] = ~c;
}
extern "C" __global__ void formats(double d) {
    printf("%d|%5d|%-5d|%05d|%+d|%u|%x|%X|%#x|%o|%c|%s|%%\n", -42, 42, 42, 42, 42, 4000000000u, 48879u, 48879u, 255u, 8u, 'z', "text");
    printf("%f|%.2f|%10.3f|%-10.1f|%e|%g|%G|%lld|%llu|%llx|%hd\n", d, d, d, d, d, d, 1e-10, -5000000000ll, 18446744073709551615ull, 1ull << 40, (short)-3);
    printf("%5s|%-5s|%.2s|%*d\n", "ab", "ab", "abcdef", 6, 7);
}
extern "C" __global__ void builtins(const unsigned* in, unsigned* out) {
    unsigned v = in[threadIdx.x];
    unsigned char a[24], b[24];
    memset(a, v & 255, sizeof a); memcpy(b, a, 16); memset(b + 16, 7, 8); memcpy(b + 12, a + 2, 10); b[5] = v >> 8;
    unsigned sum = 0;
    for (int i = 0; i < 24; ++i) sum = sum * 31 + b[i];
    out[threadIdx.x * 4] = sum;
    out[threadIdx.x * 4 + 1] = __popc(v) + 100 * __clz(v) + 10000 * __ffs(v);
    out[threadIdx.x * 4 + 2] = __byte_perm(v, 0, 0x0123);
    out[threadIdx.x * 4 + 3] = __builtin_expect(v > 9, 1) ? v - 9 : 0;
    if (v == 0xffffffffu && threadIdx.x > 1000) __trap();
}
