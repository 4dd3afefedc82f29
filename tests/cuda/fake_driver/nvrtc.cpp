// An NVRTC that compiles for the CPU: the C++ compiler compiles device.h and the kernel to a shared object,
// which the fake driver loads. Built as `libnvrtc.so.13`; only for tests.
//
// Source: the NVRTC reference (names, arguments, error numbers).
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

enum : int { SUCCESS = 0, INVALID_INPUT = 3, INVALID_OPTION = 5, COMPILATION = 6 };
const int ARCHITECTURES[] = {75, 80, 86, 89, 90, 100, 103, 110, 120, 121};
constexpr int COUNT = sizeof(ARCHITECTURES) / sizeof(ARCHITECTURES[0]);

struct Program {
    std::string name, source, log, image;
    std::vector<std::pair<std::string, std::string>> headers;
};

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Names of the kernels in a source.
std::set<std::string> kernels(const std::string& source) {
    std::set<std::string> names;
    const std::regex pattern("(?:__global__\\s+void\\s+(?:__launch_bounds__\\s*\\([^)]*\\)\\s+)?|PARL_KERNEL\\([^)]*\\)\\s+)(\\w+)\\s*\\(");
    for (std::sregex_iterator at(source.begin(), source.end(), pattern), end; at != end; ++at) names.insert((*at)[1]);
    // From the definition of PARL_KERNEL.
    names.erase("__launch_bounds__");
    return names;
}

// A source with all headers that it includes, directly or indirectly.
std::string whole(const Program& program) {
    std::string all = program.source;
    std::set<std::string> seen;
    const std::regex pattern("#include \"([^\"]+)\"");
    for (bool more = true; more;) {
        more = false;
        const std::string now = all;
        for (std::sregex_iterator at(now.begin(), now.end(), pattern), end; at != end; ++at) {
            for (const auto& [name, text] : program.headers) {
                if (name != (*at)[1] || !seen.insert(name).second) continue;
                all += text;
                more = true;
            }
        }
    }
    return all;
}

// Returns true if a source has operations in which threads wait for each other.
bool waits(const std::string& text) {
    return std::regex_search(text, std::regex("__sync(threads|warp)|__\\w+_sync\\b|__activemask"));
}

int build(Program& program, const std::filesystem::path& folder) {
    bool together = waits(program.source);
    for (const auto& [name, text] : program.headers) {
        std::ofstream(folder / name) << text;
        together = together || waits(text);
    }
    std::ofstream(folder / program.name) << program.source;
    std::ofstream main(folder / "main.cpp");
    if (together) main << "#define PARL_FAKE_DRIVER_WAITS\n";
    main << "#include \"" << PARL_FAKE_DRIVER_FOLDER << "/device.h\"\n#include \"" << program.name << "\"\n";
    for (const std::string& name : kernels(whole(program))) main << "PARL_FAKE_DRIVER_KERNEL(" << name << ")\n";
    main.close();
    // Hidden visibility: otherwise all libraries of the process would share the static variables of inline
    // functions, and lose them when the first library is closed.
    const char* compiler = std::getenv("CXX");
    const std::string command = "cd '" + folder.string() + "' && " + (compiler != nullptr ? compiler : "c++") +
                                " -std=c++17 -O1 -w -fPIC -shared -fvisibility=hidden -Wl,-Bsymbolic -ffp-contract=off -I. main.cpp -o out.so 2> log";
    const int status = std::system(command.c_str());
    program.log = contents(folder / "log");
    program.image = contents(folder / "out.so");
    return status == 0 ? SUCCESS : COMPILATION;
}

int enqueue(const std::string& text, bool ends, size_t* size, char* out) {
    if (size != nullptr) *size = text.size() + (ends ? 1 : 0);
    if (out != nullptr) std::memcpy(out, text.c_str(), text.size() + (ends ? 1 : 0));
    return SUCCESS;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
    *major = 13;
    *minor = 0;
    return SUCCESS;
}

int nvrtcGetNumSupportedArchs(int* count) {
    *count = COUNT;
    return SUCCESS;
}

int nvrtcGetSupportedArchs(int* all) {
    std::memcpy(all, ARCHITECTURES, sizeof(ARCHITECTURES));
    return SUCCESS;
}

int nvrtcCreateProgram(Program** program, const char* source, const char* name, int count, const char* const* texts,
                       const char* const* names) {
    *program = new Program{name, source, "", "", {}};
    for (int i = 0; i < count; ++i) (*program)->headers.emplace_back(names[i], texts[i]);
    return SUCCESS;
}

int nvrtcDestroyProgram(Program** program) {
    delete *program;
    *program = nullptr;
    return SUCCESS;
}

int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    bool chosen = false;
    for (int i = 0; i < count; ++i) {
        const std::string option = options[i];
        for (const int architecture : ARCHITECTURES) {
            chosen = chosen || option == "--gpu-architecture=sm_" + std::to_string(architecture) ||
                     option == "--gpu-architecture=compute_" + std::to_string(architecture);
        }
    }
    if (!chosen) return INVALID_OPTION;
    std::string folder = (std::filesystem::temp_directory_path() / "parl-nvrtc-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return INVALID_INPUT;
    const int status = build(*program, folder);
    std::filesystem::remove_all(folder);
    return status;
}

int nvrtcGetProgramLogSize(Program* program, size_t* size) { return enqueue(program->log, true, size, nullptr); }
int nvrtcGetProgramLog(Program* program, char* log) { return enqueue(program->log, true, nullptr, log); }
int nvrtcGetPTXSize(Program* program, size_t* size) { return enqueue(program->image, false, size, nullptr); }
int nvrtcGetPTX(Program* program, char* out) { return enqueue(program->image, false, nullptr, out); }
int nvrtcGetCUBINSize(Program* program, size_t* size) { return enqueue(program->image, false, size, nullptr); }
int nvrtcGetCUBIN(Program* program, char* out) { return enqueue(program->image, false, nullptr, out); }

}  // extern "C"
