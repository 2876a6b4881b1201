// NVRTC has these functions in the global namespace.
namespace std {
using ::memcpy;
using ::memset;
}
