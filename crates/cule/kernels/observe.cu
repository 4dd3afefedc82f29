// Observations: one thread per byte of a plane; and states as rows, one thread per byte.
#include "layout.cuh"

using cule::lane::Extra;
using cule::lane::Head;

PARL_CONST uint32_t RAM_AT = PARL_OFFSET(cule::env::State, machine) + PARL_OFFSET(cule::machine::Machine, riot) +
                             PARL_OFFSET(cule::machine::riot::Riot, ram);
PARL_CONST uint32_t RAM_BYTES = 128;

// What the last step or reset shows goes into the ring of planes, and the whole stack out, oldest plane first.
extern "C" __global__ void parl_observe(Batch b, Call call) {
    const uint64_t thread = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint32_t env = static_cast<uint32_t>(thread / b.plane_bytes);
    const uint32_t byte = static_cast<uint32_t>(thread % b.plane_bytes);
    if (env >= b.count) return;
    const Extra extra = b.extras[env];
    const bool apart = extra.due != 0 && call.mode == OBSERVE_ENDED_APART;
    if (call.mode == OBSERVE_RESET && extra.due == 0) return;
    const uint32_t newest = b.heads[static_cast<uint64_t>(PARL_OFFSET(Head, newest) / 4) * b.count + env];
    uint8_t* planes = b.planes + static_cast<uint64_t>(env) * b.stack * b.plane_bytes + byte;
    if (extra.push != cule::lane::PUSH_NOTHING) {
        uint8_t value = 0;
        if (extra.push == cule::lane::PUSH_AGAIN) {
            value = planes[static_cast<uint64_t>((newest + b.stack - 1) % b.stack) * b.plane_bytes];
        } else if (extra.push == cule::lane::PUSH_RAM) {
            value = *head_byte(b, env, RAM_AT + byte);
        } else {
            const Slice<const uint8_t> boards(b.boards + static_cast<uint64_t>(env) * b.board_bytes,
                                              2 * cule::machine::tia::PICTURE_BYTES);
            const cule::lane::show::Chosen chosen{extra.picture, b.rules->picture_bytes};
            value = cule::lane::show::pixel(
                b.reductions[b.playing[env]], chosen, boards, kept_of(b, env),
                Slice<const cule::observe::Cell>(b.cells, b.cell_count), Slice<const float>(b.weights, b.weight_count),
                Slice<const cule::observe::Blend>(b.blends, b.blend_count), Slice<const uint8_t>(b.tables, b.table_bytes),
                byte);
        }
        if (extra.clear != 0) {
            for (uint32_t k = 0; k < b.stack; ++k) {
                planes[static_cast<uint64_t>(k) * b.plane_bytes] = extra.clear == cule::lane::CLEAR_FIRST ? value : 0;
            }
        }
        planes[static_cast<uint64_t>(newest) * b.plane_bytes] = value;
    }
    uint8_t* obs = apart ? call.final_obs : call.obs;
    if (obs != nullptr) {
        obs += static_cast<uint64_t>(env) * b.stack * b.plane_bytes + byte;
        for (uint32_t k = 0; k < b.stack; ++k) {
            const uint32_t plane = (newest + 1 + k) % b.stack;
            obs[static_cast<uint64_t>(k) * b.plane_bytes] = planes[static_cast<uint64_t>(plane) * b.plane_bytes];
        }
    }
    if (call.ram != nullptr && !apart) {
        for (uint32_t i = byte; i < RAM_BYTES; i += b.plane_bytes) {
            call.ram[static_cast<uint64_t>(env) * RAM_BYTES + i] = *head_byte(b, env, RAM_AT + i);
        }
    }
}

// Row i of `rows` is environment `envs[i]`: head, generator, extra, planes, kept pictures. `writes` says that the
// environments take the rows.
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
    } else if ((byte -= sizeof(cule::random::Random)) < sizeof(Extra)) {
        place = reinterpret_cast<uint8_t*>(b.extras + env) + byte;
    } else if ((byte -= sizeof(Extra)) < planes) {
        place = b.planes + static_cast<uint64_t>(env) * planes + byte;
    } else if ((byte -= planes) < b.kept_bytes) {
        place = b.kept + static_cast<uint64_t>(env) * b.kept_bytes + byte;
    } else {
        return;
    }
    uint8_t& other = call.rows[thread];
    if (call.writes != 0) {
        *place = other;
    } else {
        other = *place;
    }
}
