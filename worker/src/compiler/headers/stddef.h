// NVRTC has these types in the global namespace.
#ifndef NULL
#define NULL 0
#endif
#ifndef offsetof
#define offsetof(type, member) ((size_t) &reinterpret_cast<const volatile char &>(((type *) 0)->member))
#endif
namespace std {
using ::size_t;
using ::ptrdiff_t;
typedef decltype(nullptr) nullptr_t;
}
