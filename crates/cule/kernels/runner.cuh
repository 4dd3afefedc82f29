// Runs the frames of an environment on a device: the C++ side of the traits `env::FrameRunner` and
// `machine::Processor`.
#pragma once
#include "machine.cuh"

// Runs instructions with the interpreter `RUN`.
template <void (*RUN)(cule::machine::Machine&, cule::machine::Board&, Slice<const uint8_t>, uint32_t)> struct Runner {
    Slice<const uint8_t> rom;

    PARL_MEMBER void run(cule::machine::Machine& m, cule::machine::Board& board, uint32_t budget) {
        RUN(m, board, rom, budget);
    }
    PARL_MEMBER void run_frame(cule::machine::Machine& m, cule::machine::Board& board) {
        cule::machine::step(*this, m, board);
    }
    // A boot draws all of its frames if its pictures are wanted.
    PARL_MEMBER void begin_boot(cule::machine::Machine& m, cule::machine::Board& board, uint32_t timer_draw, bool draws) {
        cule::machine::reset(m, board, rom, timer_draw);
        m.draw = draws;
    }
    PARL_MEMBER void end_boot(cule::machine::Machine&, cule::machine::Board&, bool) {}
    // A device makes no sound.
    PARL_MEMBER void begin_reset(cule::machine::Board&, bool) {}
    PARL_MEMBER void replace_sound(cule::machine::Board&, bool) {}
    PARL_MEMBER void end_act(cule::machine::Board&) {}
};

using Plain = Runner<cule::machine::cpu::run>;
using Compact = Runner<cule::machine::compact::run>;
