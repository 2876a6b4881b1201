// NVRTC has these functions in the global namespace.
namespace std {
using ::size_t;
using ::abs;
using ::malloc;
using ::free;
}
