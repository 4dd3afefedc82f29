// A CUDA driver whose devices are the CPU: the functions of libcuda that parl calls, and functions with which
// tests set and read figures. Built as `libcuda.so.1`; only for tests.
//
// It is stricter than a real driver, to reveal mistakes. Allocated memory is filled with 0xCD, freed memory
// with 0xDD. A call without a current context, or with another device's memory, fails. With the figure
// `lazy`, a stream does no work until it is synchronized, and streams do not wait for each other. While a
// stream is captured, calls that wait or allocate fail. A module cannot be unloaded while work is queued. As on
// a device, the first launch of a kernel reserves its stack, of the figure `stack` bytes, for every thread.
//
// Source: the CUDA Driver API reference (names, arguments, error numbers, what is asynchronous).
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"

namespace {

enum : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

typedef std::function<int()> Work;

constexpr int MULTIPROCESSORS = 2, RESIDENT_THREADS = 2048;

struct Memory {
    size_t bytes;
    int device;
};
struct Stream {
    std::vector<Work> waiting;
    std::vector<Work>* capture = nullptr;
    bool invalidated = false;
};
struct Context {
    int device;
    int retained = 0;
    long stacks = 0;  // bytes reserved for stacks
    int failed = SUCCESS;
};
struct Graph {
    std::vector<Work> nodes;
};
struct Module {
    void* library;
};

// Figures by name, which tests set or read.
std::map<std::string, long> figures = {
    {"devices", 1},        {"architecture", 90}, {"version", 13000},     {"memory", 1L << 36}, {"init", 0},
    {"lazy", 0},           {"used", 0},          {"synchronizations", 0}, {"launches", 0},      {"allocations", 0},
    {"modules", 0},        {"contexts", 0},      {"copies", 0},           {"fail", 0},          {"stack", 64},
};

// Initial figures from the environment, such as PARL_FAKE_DRIVER="init=100,devices=2".
[[maybe_unused]] const bool read_environment = [] {
    const char* text = std::getenv("PARL_FAKE_DRIVER");
    for (std::string rest = text == nullptr ? "" : text; !rest.empty();) {
        const std::string entry = rest.substr(0, rest.find(','));
        rest = entry.size() < rest.size() ? rest.substr(entry.size() + 1) : "";
        const size_t equals = entry.find('=');
        if (equals != std::string::npos) figures[entry.substr(0, equals)] = std::atol(entry.c_str() + equals + 1);
    }
    return true;
}();

std::recursive_mutex mutex;
std::map<uintptr_t, Memory> memory;
std::map<void*, Stream> streams;
std::map<int, Context> contexts;
thread_local std::vector<Context*> current;
bool started = false;

struct Locked {
    std::lock_guard<std::recursive_mutex> guard{mutex};
};

Context* current_context() { return current.empty() ? nullptr : current.back(); }

bool capturing() {
    for (auto& [handle, stream] : streams) {
        if (stream.capture != nullptr) return true;
    }
    return false;
}

// For calls that are not allowed during a capture: fails the call, and invalidates the capture.
int fail_in_capture() {
    for (auto& [handle, stream] : streams) {
        if (stream.capture != nullptr) stream.invalidated = true;
    }
    return CAPTURE_UNSUPPORTED;
}

int check_context() {
    if (!started) return NOT_INITIALIZED;
    if (current_context() == nullptr) return INVALID_CONTEXT;
    return current_context()->failed;
}

// Runs the queued work of a stream. Streams are identified by their handles only, so all devices share the
// default stream.
int drain(Stream& stream) {
    std::vector<Work> all;
    all.swap(stream.waiting);
    int worst = SUCCESS;
    for (Work& work : all) {
        const int status = work();
        if (status != SUCCESS) worst = status;
    }
    return worst;
}

int drain_all() {
    int worst = SUCCESS;
    for (auto& [handle, stream] : streams) {
        const int status = drain(stream);
        if (status != SUCCESS) worst = status;
    }
    return worst;
}

// Queues work on a stream, or records it in a capture. Errors of the work are kept in the context, as on a
// device.
int enqueue(void* handle, Work work) {
    Context* context = current_context();
    Work kept = [context, work] {
        const int status = context->failed != SUCCESS ? context->failed : work();
        if (status != SUCCESS) context->failed = status;
        return status;
    };
    Stream& stream = streams[handle];
    if (stream.capture != nullptr) {
        stream.capture->push_back(kept);
        return SUCCESS;
    }
    stream.waiting.push_back(kept);
    if (figures["lazy"] == 0) drain(stream);
    return SUCCESS;
}

// The allocation that contains a whole range; null if there is none.
const Memory* allocation_of(uintptr_t address, size_t bytes) {
    auto after = memory.upper_bound(address);
    if (after == memory.begin()) return nullptr;
    --after;
    return address + bytes <= after->first + after->second.bytes ? &after->second : nullptr;
}

bool is_on_device(uint64_t address, size_t bytes) {
    const Memory* found = allocation_of(address, bytes);
    return found != nullptr && found->device == current_context()->device;
}

// A test may set less memory than is used.
long free_memory() { return std::max(figures["memory"] - figures["used"], 0L); }

bool is_device(int device) { return device >= 0 && device < figures["devices"]; }

// Size of a shared object, computed from its ELF header.
size_t image_bytes(const void* image) {
    Elf64_Ehdr header;
    std::memcpy(&header, image, sizeof(header));
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
    return header.e_shoff + static_cast<size_t>(header.e_shnum) * header.e_shentsize;
}

}  // namespace

extern "C" {

// ------------------------------------------------------------ functions for tests

// Sets a figure by its name. Returns 1 if there is no such figure.
int parl_fake_driver_set(const char* name, long value) {
    Locked lock;
    auto found = figures.find(name);
    if (found == figures.end()) return 1;
    found->second = value;
    return 0;
}

// Returns a figure by its name, or -1 if there is no such figure.
long parl_fake_driver_get(const char* name) {
    Locked lock;
    auto found = figures.find(name);
    return found == figures.end() ? -1 : found->second;
}

// ------------------------------------------------------------ the driver

int cuInit(unsigned) {
    Locked lock;
    if (figures["init"] != 0) return static_cast<int>(figures["init"]);
    started = true;
    return SUCCESS;
}

int cuDriverGetVersion(int* version) {
    *version = static_cast<int>(figures["version"]);
    return SUCCESS;
}

int cuDeviceGetCount(int* count) {
    if (!started) return NOT_INITIALIZED;
    *count = static_cast<int>(figures["devices"]);
    return SUCCESS;
}

int cuDeviceGet(int* device, int ordinal) {
    if (!is_device(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

int cuDeviceGetName(char* name, int length, int device) {
    if (!is_device(device)) return INVALID_DEVICE;
    std::snprintf(name, static_cast<size_t>(length), "the processor, as device %d", device);
    return SUCCESS;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
    if (!is_device(device)) return INVALID_DEVICE;
    const std::map<int, int> known = {
        {1, 1024},        // threads of a block
        {8, 48 << 10},    // shared memory of a block
        {10, 32},         // lanes of a warp
        {16, MULTIPROCESSORS},
        {39, RESIDENT_THREADS},  // of a multiprocessor
        {75, static_cast<int>(figures["architecture"] / 10)},
        {76, static_cast<int>(figures["architecture"] % 10)},
        {81, 228 << 10},  // shared memory of a multiprocessor
        {97, 227 << 10},  // shared memory that a block may opt in to
    };
    auto found = known.find(attribute);
    if (found == known.end()) return INVALID_VALUE;
    *value = found->second;
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t* bytes, int device) {
    if (!is_device(device)) return INVALID_DEVICE;
    *bytes = static_cast<size_t>(figures["memory"]);
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(Context** context, int device) {
    Locked lock;
    if (!started) return NOT_INITIALIZED;
    if (!is_device(device)) return INVALID_DEVICE;
    Context& found = contexts[device];
    found.device = device;
    ++found.retained;
    ++figures["contexts"];
    *context = &found;
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    Locked lock;
    auto found = contexts.find(device);
    if (found == contexts.end() || found->second.retained == 0) return INVALID_CONTEXT;
    --found->second.retained;
    --figures["contexts"];
    if (found->second.retained == 0) figures["used"] -= std::exchange(found->second.stacks, 0);
    return SUCCESS;
}

int cuCtxPushCurrent_v2(Context* context) {
    if (context == nullptr || context->retained == 0) return INVALID_CONTEXT;
    current.push_back(context);
    return SUCCESS;
}

int cuCtxPopCurrent_v2(Context** context) {
    if (current.empty()) return INVALID_CONTEXT;
    *context = current.back();
    current.pop_back();
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t* free, size_t* total) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    *total = static_cast<size_t>(figures["memory"]);
    *free = static_cast<size_t>(free_memory());
    return SUCCESS;
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    if (capturing()) return fail_in_capture();
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > static_cast<size_t>(free_memory())) return OUT_OF_MEMORY;
    void* room = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (room == nullptr) return OUT_OF_MEMORY;
    std::memset(room, 0xCD, bytes);
    *address = reinterpret_cast<uint64_t>(room);
    memory[*address] = {bytes, current_context()->device};
    figures["used"] += static_cast<long>(bytes);
    ++figures["allocations"];
    return SUCCESS;
}

int cuMemFree_v2(uint64_t address) {
    Locked lock;
    if (current_context() == nullptr) return INVALID_CONTEXT;
    if (capturing()) return fail_in_capture();
    auto found = memory.find(address);
    if (found == memory.end() || found->second.device != current_context()->device) return INVALID_VALUE;
    drain_all();
    std::memset(reinterpret_cast<void*>(address), 0xDD, found->second.bytes);
    std::free(reinterpret_cast<void*>(address));
    figures["used"] -= static_cast<long>(found->second.bytes);
    --figures["allocations"];
    memory.erase(found);
    return SUCCESS;
}

int cuMemsetD8Async(uint64_t address, unsigned char value, size_t bytes, void* stream) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    if (!is_on_device(address, bytes)) return INVALID_VALUE;
    return enqueue(stream, [=] {
        std::memset(reinterpret_cast<void*>(address), value, bytes);
        return SUCCESS;
    });
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    // Pageable memory is read before the call returns, so a capture cannot record the copy.
    if (streams[stream].capture != nullptr) return fail_in_capture();
    if (!is_on_device(to, bytes)) return INVALID_VALUE;
    ++figures["copies"];
    const auto* begin = static_cast<const unsigned char*>(from);
    auto staged = std::make_shared<std::vector<unsigned char>>(begin, begin + bytes);
    return enqueue(stream, [=] {
        std::memcpy(reinterpret_cast<void*>(to), staged->data(), bytes);
        return SUCCESS;
    });
}

int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    if (streams[stream].capture != nullptr) return fail_in_capture();
    if (!is_on_device(from, bytes)) return INVALID_VALUE;
    ++figures["copies"];
    return enqueue(stream, [=] {
        std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
        return SUCCESS;
    });
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    return enqueue(stream, [=] {
        std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
        return SUCCESS;
    });
}

int cuModuleLoadData(Module** module, const void* image) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    if (capturing()) return fail_in_capture();
    const size_t bytes = image_bytes(image);
    if (bytes == 0) return INVALID_IMAGE;
    // A unique file name: for a known name the loader would return the library that is loaded already.
    char path[] = "/tmp/parl-fake-driver-XXXXXX";
    const int file = mkstemp(path);
    const auto* rest = static_cast<const char*>(image);
    for (size_t left = bytes; left > 0;) {
        const ssize_t written = write(file, rest, left);
        if (written <= 0) return INVALID_IMAGE;
        rest += written;
        left -= static_cast<size_t>(written);
    }
    close(file);
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return INVALID_IMAGE;
    }
    ++figures["modules"];
    *module = new Module{library};
    return SUCCESS;
}

int cuModuleUnload(Module* module) {
    Locked lock;
    if (current_context() == nullptr) return INVALID_CONTEXT;
    for (auto& [handle, stream] : streams) {
        if (!stream.waiting.empty()) return ILLEGAL_ADDRESS;
    }
    dlclose(module->library);
    delete module;
    --figures["modules"];
    return SUCCESS;
}

int cuModuleGetFunction(const ParlKernel** function, Module* module, const char* name) {
    const int status = check_context();
    if (status != SUCCESS) return status;
    void* found = dlsym(module->library, (std::string("parl_kernel_") + name).c_str());
    if (found == nullptr) return NOT_FOUND;
    *function = static_cast<const ParlKernel*>(found);
    return SUCCESS;
}

int cuFuncGetAttribute(int* value, int attribute, const ParlKernel*) {
    Locked lock;
    if (attribute != 3) return INVALID_VALUE;  // bytes of the stack of a thread
    *value = static_cast<int>(figures["stack"]);
    return check_context();
}

int cuFuncSetAttribute(const ParlKernel*, int, int) { return check_context(); }

int cuLaunchKernel(const ParlKernel* kernel, unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty, unsigned tz,
                   unsigned shared_bytes, void* stream, void** arguments, void** extra) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    const uint64_t threads = static_cast<uint64_t>(tx) * ty * tz;
    if (threads == 0 || threads > 1024 || bx == 0 || by == 0 || bz == 0 || extra != nullptr) return INVALID_VALUE;
    if (bx > 0x7FFFFFFFu || by > 65535 || bz > 65535 || shared_bytes > (227u << 10)) return INVALID_VALUE;
    const long stacks = figures["stack"] * MULTIPROCESSORS * RESIDENT_THREADS;
    const long more = stacks - current_context()->stacks;
    if (more > 0) {
        if (more > free_memory()) return OUT_OF_MEMORY;
        figures["used"] += more;
        current_context()->stacks = stacks;
    }
    // Arguments are copied now. When the kernel runs, words that point into an allocation must belong to this
    // device.
    auto room = std::make_shared<std::vector<uint64_t>>((kernel->argument_bytes + 7) / 8);
    kernel->copy(arguments, room->data());
    ++figures["launches"];
    const ParlShape shape = {{bx, by, bz}, {tx, ty, tz}, shared_bytes};
    const int device = current_context()->device;
    return enqueue(stream, [=] {
        for (const uint64_t word : *room) {
            const Memory* found = allocation_of(word, 1);
            if (found != nullptr && found->device != device) return static_cast<int>(ILLEGAL_ADDRESS);
        }
        if (figures["fail"] != 0) return static_cast<int>(std::exchange(figures["fail"], 0));
        kernel->run(room->data(), &shape);
        return static_cast<int>(SUCCESS);
    });
}

int cuStreamSynchronize(void* stream) {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    if (streams[stream].capture != nullptr) return fail_in_capture();
    ++figures["synchronizations"];
    return drain(streams[stream]);
}

int cuCtxSynchronize() {
    Locked lock;
    const int status = check_context();
    if (status != SUCCESS) return status;
    if (capturing()) return fail_in_capture();
    ++figures["synchronizations"];
    return drain_all();
}

// ------------------------------------------------------------ graphs, for tests

int cuStreamBeginCapture_v2(void* stream, int) {
    Locked lock;
    if (stream == nullptr || streams[stream].capture != nullptr) return CAPTURE_UNSUPPORTED;
    streams[stream].capture = new std::vector<Work>;
    streams[stream].invalidated = false;
    return SUCCESS;
}

int cuStreamEndCapture(void* handle, Graph** graph) {
    Locked lock;
    Stream& stream = streams[handle];
    if (stream.capture == nullptr) return INVALID_VALUE;
    std::unique_ptr<std::vector<Work>> nodes(stream.capture);
    stream.capture = nullptr;
    if (stream.invalidated) return CAPTURE_INVALIDATED;
    *graph = new Graph{std::move(*nodes)};
    return SUCCESS;
}

int cuGraphLaunch(Graph* graph, void* stream) {
    Locked lock;
    for (const Work& node : graph->nodes) streams[stream].waiting.push_back(node);
    if (figures["lazy"] == 0) drain(streams[stream]);
    return SUCCESS;
}

int cuGraphDestroy(Graph* graph) {
    delete graph;
    return SUCCESS;
}

int cuGetErrorName(int error, const char** text) {
    static const std::map<int, const char*> names = {
        {SUCCESS, "CUDA_SUCCESS"},
        {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {100, "CUDA_ERROR_NO_DEVICE"},
        {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
    };
    auto found = names.find(error);
    *text = found == names.end() ? nullptr : found->second;
    return found == names.end() ? INVALID_VALUE : SUCCESS;
}

}  // extern "C"
