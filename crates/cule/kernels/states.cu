// Reads and writes states of environments as rows, one thread per byte.
#include "layout.cuh"

using cule::env::state::StepOutput;
using cule::env::state::Head;

// Reserves places for the kept pictures in rows, one thread per row. Runs before `parl_states` writes the
// rows.
extern "C" __global__ void parl_saved_pictures(Batch b, Call call) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= call.row_count) return;
    const uint32_t env = call.envs[row];
    const uint8_t* output = call.rows + static_cast<uint64_t>(row) * call.row_bytes + sizeof(Head) + sizeof(cule::random::Random);
    if (output[PARL_OFFSET(StepOutput, kept)] == 0) {
        free_saved_pictures(b, env);
    } else if (!reserve_saved_pictures(b, env)) {
        fault(b, FAULT_SAVED_PICTURES, env);
    }
}

// Row i of `rows` belongs to environment `envs[i]`: head, generator, extra, planes, kept pictures. If
// `writes` is not 0, the rows are copied to the environments, otherwise the environments to the rows.
extern "C" __global__ void parl_states(Batch b, Call call) {
    const uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint32_t row = static_cast<uint32_t>(thread / call.row_bytes);
    uint32_t byte = static_cast<uint32_t>(thread % call.row_bytes);
    if (row >= call.row_count) return;
    const uint32_t env = call.envs[row];
    const uint32_t planes = b.stack * b.plane_bytes;
    uint8_t* place = nullptr;
    if (byte < sizeof(Head)) {
        place = head_byte(b, env, byte);
    } else if ((byte -= sizeof(Head)) < sizeof(cule::random::Random)) {
        place = reinterpret_cast<uint8_t*>(b.randoms + env) + byte;
    } else if ((byte -= sizeof(cule::random::Random)) < sizeof(StepOutput)) {
        place = reinterpret_cast<uint8_t*>(b.step_outputs + env) + byte;
    } else if ((byte -= sizeof(StepOutput)) < planes) {
        place = b.planes + static_cast<uint64_t>(env) * planes + byte;
    } else if ((byte -= planes) < saved_bytes(b)) {
        if (b.saved_pictures[env] != NO_SAVED_PICTURES) place = saved_pictures_at(b, b.saved_pictures[env]) + byte;
    }
    uint8_t& other = call.rows[thread];
    if (call.writes == 0) {
        other = place == nullptr ? 0 : *place;
    } else if (place != nullptr) {
        *place = other;
    }
}
