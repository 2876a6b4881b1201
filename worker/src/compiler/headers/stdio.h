// NVRTC has this function in the global namespace.
namespace std {
using ::printf;
}
