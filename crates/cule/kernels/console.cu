// Runs the frames of one `parl.atari.Console` (`env::act`) in one thread. The host uploads the state before
// and downloads it afterwards.
#include "runner.cuh"

// Device addresses and actions of one console; `src/console/device.rs` has the same struct.
struct Play {
    cule::env::State* state;
    cule::random::Random* random;
    cule::machine::Board* board;
    const uint8_t* rom;
    int32_t* reward;
    double repeat_probability;
    cule::env::Action a;
    cule::env::Action b;
    uint32_t rom_bytes;
    uint32_t frames;
};

extern "C" __global__ void parl_act(Play play) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    cule::env::State state = *play.state;
    cule::random::Random& random = *play.random;
    Plain runner{Slice<const uint8_t>(play.rom, play.rom_bytes)};
    int32_t reward = 0;
    for (uint32_t frame = 0; frame < play.frames; ++frame) {
        state.machine.draw = 1;
        const int32_t more = cule::env::act(runner, state, random, *play.board, play.repeat_probability, play.a, play.b);
        reward = rs::wrapping_add<int32_t>(reward, more);
    }
    *play.state = state;
    *play.reward = reward;
}
