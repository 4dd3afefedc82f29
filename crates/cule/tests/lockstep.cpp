// The generated C++ as a program: reads commands from standard input, writes states to standard output. See
// lockstep.rs.
#include "runner.cuh"

#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

using cule::env::Action;
using cule::env::State;
using cule::machine::Board;
using cule::random::Random;
using cule::env::rules::Episode;
using cule::env::rules::StepRules;

template <class T> static void take(T& value) {
    if (std::fread(&value, sizeof(T), 1, stdin) != 1) std::exit(2);
}

template <class T> static void give(const T& value) { std::fwrite(&value, sizeof(T), 1, stdout); }

static uint64_t hash(const Board& board) {
    static_assert(sizeof(Board) % 8 == 0);
    uint64_t h = 0;
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&board);
    for (size_t at = 0; at < sizeof(Board); at += 8) {
        uint64_t word;
        std::memcpy(&word, bytes + at, 8);
        h = ((h << 5 | h >> 59) ^ word) * 0x9E3779B97F4A7C15ull;
    }
    return h;
}

struct Lane {
    std::vector<uint8_t> rom;
    State state{};
    Random random{};
    Episode episode{};
    StepRules rules{};
    std::unique_ptr<Board> board = std::make_unique<Board>();

    Slice<const uint8_t> image() const { return Slice<const uint8_t>(rom.data(), static_cast<uint32_t>(rom.size())); }

    void put_rom() {
        uint32_t bytes;
        take(bytes);
        rom.resize(bytes);
        if (std::fread(rom.data(), 1, bytes, stdin) != bytes) std::exit(2);
    }

    void put_state() {
        take(state);
        take(random);
        take(rules);
        *board = Board{};
        episode = cule::env::rules::begin_episode(state);
    }

    // A console with this ROM after its first reset.
    void power_on() {
        uint32_t kind, game, seed;
        take(kind);
        take(game);
        take(seed);
        take(rules);
        random = cule::random::seeded(seed);
        Array<uint8_t, 128> ram{};
        for (uint32_t i = 0; i < 128; ++i) ram[i] = static_cast<uint8_t>(cule::random::draw(random));
        *board = Board{};
        state.machine = cule::machine::new_(static_cast<uint8_t>(kind), static_cast<uint32_t>(rom.size()), ram,
                                            cule::env::layout(game, false));
        state.machine.input = cule::env::first_inputs(game);
        state.rules = cule::games::new_(0);
        state.env = cule::env::new_(game);
        const uint32_t timer = cule::random::draw(random);
        for (uint32_t i = 0; i < cule::machine::cart::reset_draws(state.machine.cart); ++i) {
            const uint8_t byte = static_cast<uint8_t>(cule::random::draw(random));
            cule::machine::cart::fill(state.machine.cart, *board, i, byte);
        }
        cule::machine::reset(state.machine, *board, image(), timer);
        cule::games::evaluate::start_values(state.rules, game);
        episode = cule::env::rules::begin_episode(state);
        report(0);
    }

    void frame() {
        Action a, b;
        uint32_t draw;
        take(a);
        take(b);
        take(draw);
        state.machine.draw = static_cast<uint8_t>(draw);
        cule::env::rules::begin_step(episode);
        Plain runner{image()};
        const int32_t reward = cule::env::act(runner, state, random, *board, rules.repeat_probability, a, b);
        cule::env::rules::count(episode, state, reward);
        const uint32_t said = cule::env::rules::stops(rules, episode, state) |
                              cule::env::rules::terminated(rules, episode, state) << 1 |
                              cule::env::rules::truncated(rules, episode, state) << 2 |
                              static_cast<uint32_t>(cule::env::rules::clipped(rules, reward) + 1) << 3;
        cule::env::rules::end_step(rules, episode, state);
        report(said);
    }

    void report(uint32_t said) {
        give(state);
        give(random);
        give(episode);
        give(said);
        give(hash(*board));
    }

    // The maximum of both pictures, resized to 84 x 84 without the ties; then the other arithmetic of
    // observations.
    void observe() {
        uint32_t television;
        Array<float, 160> weights;
        take(television);
        take(weights);
        const Array<uint8_t, 256>& gray = cule::observe::palette::GRAY[television];
        Array<Array<uint8_t, 160>, 210> pooled{};
        for (uint32_t y = 0; y < 210; ++y) {
            Slice<const uint8_t> last(board->picture[0], 160 * y, 160 * y + 160);
            Slice<const uint8_t> before(board->picture[1], 160 * y, 160 * y + 160);
            cule::observe::pooled_row(last, before, gray, Slice<uint8_t>(pooled[y]));
        }
        give(pooled);
        Array<uint16_t, 104> even{}, odd{};
        Array<uint16_t, 96> sums{};
        Array<uint8_t, 96> pixels{};
        for (uint32_t d = 0; d < 84; ++d) {
            const auto rows = cule::observe::rows_84(d);
            cule::observe::shrink_84(pooled[rows._0], pooled[rows._0 + 1], pooled[rows._0 + 2], rows._1, even, odd,
                                     sums);
            const bool ties = cule::observe::round_84(sums, pixels);
            give(pixels);
            give(ties);
        }
        Array<cule::observe::Cell, 100> cells{};
        Array<cule::observe::Blend, 100> blends{};
        for (uint32_t d = 0; d < 100; ++d) {
            cells[d] = cule::observe::Cell{d, 1 + d % 5, d};
            blends[d] = cule::observe::Blend{{{d, d + 1}}, {{static_cast<int32_t>(20 * d), 2048 - static_cast<int32_t>(20 * d)}}};
        }
        Array<float, 100> line{}, total{};
        Array<int32_t, 100> upper{}, lower{};
        Array<uint8_t, 100> shown{};
        for (uint32_t y = 0; y + 1 < 210; y += 7) {
            cule::observe::area_row(Slice<const uint8_t>(pooled[y]), Slice<const cule::observe::Cell>(cells),
                                    Slice<const float>(weights), Slice<float>(line));
            cule::observe::add_row(Slice<const float>(line), weights[y % 160], y % 3 == 0, Slice<float>(total));
            cule::observe::round_row(Slice<const float>(total), Slice<uint8_t>(shown));
            give(line);
            give(total);
            give(shown);
            cule::observe::blend_row(Slice<const uint8_t>(pooled[y]), Slice<const cule::observe::Blend>(blends),
                                     Slice<int32_t>(upper));
            cule::observe::blend_row(Slice<const uint8_t>(pooled[y + 1]), Slice<const cule::observe::Blend>(blends),
                                     Slice<int32_t>(lower));
            cule::observe::blend_rows(Slice<const int32_t>(upper), Slice<const int32_t>(lower), blends[y % 100].weight,
                                      Slice<uint8_t>(shown));
            give(shown);
            give(cule::observe::block_average(static_cast<uint32_t>(upper[y % 100]), weights[(y + 1) % 160]));
        }
        for (uint32_t i = 0; i + 5 <= 160; i += 5) {
            give(cule::env::rules::continuous_action(weights[i], weights[i + 1], weights[i + 2], weights[i + 3],
                                               weights[i + 4]));
        }
    }
};

int main() {
    Lane lane;
    for (;;) {
        const int command = std::getchar();
        switch (command) {
            case 'R': lane.put_rom(); break;
            case 'S': lane.put_state(); break;
            case 'P': lane.power_on(); break;
            case 'F': lane.frame(); break;
            case 'O': lane.observe(); break;
            case EOF: return 0;
            default: return 2;
        }
        std::fflush(stdout);
    }
}
