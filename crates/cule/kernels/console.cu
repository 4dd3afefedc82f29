// One console, played frame by frame as `parl.atari.Console` plays it: one thread. The state comes from the host and goes
// back to it; how sticky actions, frames and rewards follow each other is `Console::act_two` of src/console.rs.
#include "machine.cuh"

// Where one console lies and what it does; `src/cuda/console.rs` has the same.
struct Play {
    cule::env::State* state;
    cule::random::Random* random;
    cule::machine::Board* board;
    const uint8_t* rom;
    int32_t* reward;
    double keep;
    cule::env::Action a;
    cule::env::Action b;
    uint32_t rom_bytes;
    uint32_t frames;
};

extern "C" __global__ void parl_act(Play play) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    cule::env::State state = *play.state;
    cule::random::Random& random = *play.random;
    const Slice<const uint8_t> rom(play.rom, play.rom_bytes);
    int32_t reward = 0;
    for (uint32_t frame = 0; frame < play.frames; ++frame) {
        cule::env::hold(state, random, play.keep, play.a, play.b);
        if (cule::env::ended(state)) continue;
        cule::env::set_held_inputs(state);
        state.machine.draw = 1;
        cule::env::emulate(state, *play.board, rom);
        reward = rs::wrapping_add<int32_t>(reward, cule::env::count_frame(state));
    }
    *play.state = state;
    *play.reward = reward;
}
