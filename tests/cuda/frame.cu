// The whole console and the arithmetic of observations as plain kernels, one environment per thread. They
// test that NVRTC compiles all of it; they are not optimized.
#include "runner.cuh"

using cule::env::Action;
using cule::env::State;
using cule::machine::Board;

extern "C" __global__ void frame(State* states, cule::random::Random* randoms, Board* boards, const uint8_t* rom,
                                 uint32_t rom_bytes, const Action* actions, double keep, int32_t* rewards,
                                 uint32_t count) {
    const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= count) return;
    State state = states[lane];
    Plain runner{Slice<const uint8_t>(rom, rom_bytes)};
    rewards[lane] = cule::env::act(runner, state, randoms[lane], boards[lane], keep, actions[2 * lane], actions[2 * lane + 1]);
    states[lane] = state;
}

extern "C" __global__ void power_on(State* states, Board* boards, const uint8_t* rom, uint32_t rom_bytes, uint32_t game,
                                    uint8_t kind, uint32_t seed, uint32_t count) {
    const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= count) return;
    cule::random::Random random = cule::random::seeded(seed + lane);
    Array<uint8_t, 128> ram{};
    for (uint32_t i = 0; i < 128; ++i) ram[i] = static_cast<uint8_t>(cule::random::draw(random));
    State& state = states[lane];
    state.machine = cule::machine::new_(kind, rom_bytes, ram, cule::env::layout(game, false));
    cule::machine::reset(state.machine, boards[lane], Slice<const uint8_t>(rom, rom_bytes), cule::random::draw(random));
    state.machine.input = cule::env::first_inputs(game);
    state.env = cule::env::new_(game);
    state.rules = cule::games::new_(0);
    cule::games::evaluate::start_values(state.rules, game);
}

extern "C" __global__ void observe(const Board* boards, uint8_t* out, uint32_t count) {
    const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= count) return;
    const Board& board = boards[lane];
    Array<Array<uint8_t, 160>, 3> rows{};
    Array<uint16_t, 104> even{}, odd{};
    Array<uint16_t, 96> sums{};
    Array<uint8_t, 96> pixels{};
    for (uint32_t d = 0; d < 84; ++d) {
        const Tuple2<uint32_t, Array<uint16_t, 3>> source = cule::observe::rows_84(d);
        for (uint32_t i = 0; i < 3; ++i) {
            const uint32_t at = 160 * (source._0 + i);
            cule::observe::pooled_row(Slice<const uint8_t>(board.picture[0], at, at + 160),
                                      Slice<const uint8_t>(board.picture[1], at, at + 160),
                                      cule::observe::palette::GRAY[0], Slice<uint8_t>(rows[i]));
        }
        cule::observe::shrink_84(rows[0], rows[1], rows[2], source._1, even, odd, sums);
        cule::observe::round_84(sums, pixels);
        for (uint32_t x = 0; x < 84; ++x) out[(84ull * lane + d) * 84 + x] = pixels[x];
    }
}
