// The replay: rows of bytes in a ring of slots, one column per field, as in `crates/sumtree/src/replay`, but without
// the synchronization of threads: launches on one stream run one after the other. README.md lists the launches of each
// call.
#pragma once
#include "sample.cuh"

// Bits of a generation: two flags, and above them the lap of the row, counted from 1.
constexpr uint32_t OPEN = 1, SAMPLEABLE = 2, LAP_SHIFT = 2, LAP_MASK = (1u << 30) - 1;
// No next row.
constexpr uint32_t NO_LINK = 0;
// Ticket that a call returns if it has no rows to draw.
constexpr uint64_t NO_TICKET = 0;
// Distances to the row before: there is none in the episode, or it is too far back.
constexpr uint32_t FIRST_ROW = 0, UNREACHABLE = 0xffffffffu;

struct Replay {
    Tree tree;
    uint64_t states;   // one uint4 per slot: generation, link (slot + 1), parked weight, distance of the row before
    uint64_t tails;    // per environment: state, newest row, waiting rows
    uint64_t listed;   // slots of rows that became sampleable in this call
    uint64_t final_of; // per row of this call: its final observation is row `count + final_of`, or NONE
    uint64_t reward, terminated, truncated, discount;  // columns, 0 for none
    double gamma;
    double share;      // of the drawn rows that get another goal
    float alpha, epsilon;
    uint32_t reward_is_double, discount_is_double;
    uint32_t slots, capacity, chunk;
    uint32_t n_step, window_rows;  // rows in the window of a row, itself included
    uint32_t frames;               // of the largest stack
    uint32_t num_envs;
    uint32_t resets_next_step;  // the row after the last of an episode carries the final observation
    uint32_t rebuilds;          // next observations come from the next row
    uint32_t steps;             // rows are steps of episodes
    uint32_t independent;       // rows have no windows and no rows before them
    uint32_t pads_first;
    uint32_t is_global;  // importance weights are divided by a bound for all rows
    uint32_t period;     // steps from one sequence of `n_step` steps to the next; 0: rows are drawn, not sequences
    uint32_t burn_in;    // steps at the start of a sequence that are not trained on
    uint32_t strategy;   // which goals rows get, numbers as in `structs.py`; 0: none
    uint32_t goal_in_next;  // the goal that a step achieved is in the row after it
    uint32_t tag;           // the bits by which the laps in tickets differ from those of rows
};

struct Row {
    uint32_t slot, lap;
};

PARL_FN uint4* state(const Replay& replay, uint32_t slot) { return at<uint4>(replay.states) + slot; }
PARL_FN uint64_t packed(Row row) { return row.slot | static_cast<uint64_t>(row.lap) << 32; }
PARL_FN Row unpacked(uint64_t row) { return Row{static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32)}; }
// Callers get tickets, which differ between replays.
PARL_FN uint64_t ticket_of(const Replay& replay, Row row) { return packed(Row{row.slot, row.lap ^ replay.tag}); }
PARL_FN Row row_of(const Replay& replay, uint64_t ticket) {
    const Row row = unpacked(ticket);
    return Row{row.slot, row.lap ^ replay.tag};
}
PARL_NOINLINE Row row_at(const Replay& replay, uint64_t sequence) {
    const uint64_t lap = sequence / replay.slots;
    return Row{static_cast<uint32_t>(sequence - lap * replay.slots), static_cast<uint32_t>(lap + 1) & LAP_MASK};
}
// Sequence number of a stored row.
PARL_NOINLINE uint64_t sequence_of(const Replay& replay, Row row) {
    const uint64_t newest = words(replay.tree)[NEWEST_LAP];
    const uint64_t behind = (newest - row.lap + 1) & LAP_MASK;
    return (newest >= behind ? newest - behind : 0) * replay.slots + row.slot;
}
// Sequence number of the row in `slot`, which was added less than a lap after row `sequence`.
PARL_FN uint64_t later_sequence(const Replay& replay, uint64_t sequence, uint32_t slot) {
    const uint64_t here = sequence % replay.slots;
    return sequence + (slot + replay.slots - here) % replay.slots;
}
PARL_FN bool is_open(const Replay& replay, Row row) {
    const uint32_t generation = state(replay, row.slot)->x;
    return (generation & OPEN) != 0 && generation >> LAP_SHIFT == row.lap;
}

// What precedes a row: a stored row, the start of its episode, or a row that is no longer stored.
enum PreviousRow : uint32_t { STORED, EPISODE_START, OVERWRITTEN };
PARL_NOINLINE PreviousRow find_previous(const Replay& replay, uint64_t sequence, uint64_t& found) {
    const uint32_t distance = state(replay, static_cast<uint32_t>(sequence % replay.slots))->w;
    if (distance == FIRST_ROW) return EPISODE_START;
    if (distance == UNREACHABLE || distance > sequence) return OVERWRITTEN;
    found = sequence - distance;
    return found >= words(replay.tree)[HORIZON] ? STORED : OVERWRITTEN;
}
// True if the earlier rows that a row's stacks need are stored, as far as its episode has them.
PARL_NOINLINE bool has_whole_stack(const Replay& replay, uint64_t sequence) {
    for (uint32_t i = 1; i < replay.frames; ++i) {
        const PreviousRow previous = find_previous(replay, sequence, sequence);
        if (previous != STORED) return previous == EPISODE_START;
    }
    return true;
}

PARL_FN double column_real(uint64_t column, uint32_t is_double, uint32_t slot) {
    return is_double ? at<double>(column)[slot] : static_cast<double>(at<float>(column)[slot]);
}
PARL_FN double row_discount(const Replay& replay, uint32_t slot) {
    return replay.discount == 0 ? 1.0 : column_real(replay.discount, replay.discount_is_double, slot);
}
PARL_FN bool flag(uint64_t column, uint32_t slot) { return column != 0 && at<uint8_t>(column)[slot] != 0; }

// `(|priority| + epsilon) ** alpha` in units of weight.
PARL_NOINLINE uint32_t weight_of(const Replay& replay, double priority, bool& saturated) {
    const float base = add_rn(static_cast<float>(priority < 0.0 ? -priority : priority), replay.epsilon);
    const float units = static_cast<float>(replay.tree.units), most = static_cast<float>(MAX_WEIGHT);
    const float scaled = replay.alpha == 0.0f ? units : multiply_rn(power(base, replay.alpha), units);
    saturated = scaled > most;
    // Rounds half up; a positive priority never becomes weight 0.
    uint32_t weight = static_cast<uint32_t>(add_rn(saturated ? most : scaled, 0.5f));
    if (weight == 0 && (priority != 0.0 || replay.epsilon > 0.0f)) weight = 1;
    return weight > MAX_WEIGHT ? MAX_WEIGHT : weight;
}

PARL_FN void update_largest(const Tree& tree, uint32_t weight) {
    if (weight > words(tree)[LARGEST_EVER]) atomicMax(&words(tree)[LARGEST_EVER], static_cast<uint64_t>(weight));
}
