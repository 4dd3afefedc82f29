// A small interpreter of PTX for host builds: the text of `cpu_brx.cuh`, as the compiler of a GPU gets it, runs here. It
// knows the instructions that the generator uses and ends the program at any other.
//
// Source: the PTX ISA reference (instructions, and that shifts clamp their count).
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

// Where shared memory begins, as 32-bit addresses see it. Of this library alone: another one's, loaded into the same
// process, may lie farther away than 32 bits reach.
static thread_local const char* parl_shared_base = nullptr;
static inline uint64_t __cvta_generic_to_shared(const void* place) {
    const char* at = static_cast<const char*>(place);
    if (parl_shared_base == nullptr) parl_shared_base = at - (1 << 20);
    return static_cast<uint64_t>(at - parl_shared_base);
}

namespace parl_ptx {

enum class Name {
    bra, brx, load_shared, load_word, load_segment, store_shared, load_global, load_pair, mov, add, sub, and_, or_, xor_, shl, shr, shr_wide, bfe,
    add_wide, mul_wide, widen, narrow, select, equal, unequal, below, not_below
};

// What it works on are registers; numbers lie in registers of their own.
struct Instruction {
    Name name;
    bool guarded;
    uint8_t a[4];
    uint32_t target;  // of a branch: an instruction
};

[[noreturn]] inline void fail(const std::string& what) {
    std::fprintf(stderr, "PTX: %s\n", what.c_str());
    std::abort();
}

class Program {
public:
    explicit Program(const char* text) {
        std::vector<std::string> lines = statements(text);
        std::map<std::string, uint32_t> labels;
        std::vector<std::string> kept;
        std::string targets;
        for (const std::string& line : lines) {
            const size_t table = line.find(".branchtargets ");
            if (table != std::string::npos) {
                targets = line.substr(table + 15);
            } else if (line.back() == ':') {
                if (!labels.emplace(line.substr(0, line.size() - 1), kept.size()).second) fail("label twice: " + line);
            } else if (line[0] != '.') {
                kept.push_back(line);
            }
        }
        for (const std::string& target : split(targets)) table_.push_back(place(labels, target));
        for (const std::string& line : kept) instructions_.push_back(instruction(line, labels));
        predicate_ = number_of("p");
    }

    // `operands` are %0, %1 and so on. Of shared memory the 128 bytes of RAM and the interrupt flag may
    // be used, and the timer behind the RAM and the eight segments of 16 bits read.
    void run(uint64_t* operands, size_t count, uint32_t ram, uint32_t segments, uint32_t interrupt) const {
        uint64_t r[REGISTERS];
        if (count > OPERANDS) fail("too many operands");
        std::memcpy(r, operands, count * sizeof(uint64_t));
        std::memcpy(r + REGISTERS - numbers_.size(), numbers_.data(), numbers_.size() * sizeof(uint64_t));
        const auto value = [&](uint8_t register_number) { return r[register_number]; };
        const auto low = [&](uint8_t register_number) { return static_cast<uint32_t>(r[register_number]); };
        char* const base = const_cast<char*>(parl_shared_base);
        const auto own = [&](uint64_t at) {
            if (at - ram >= 128 && at != interrupt) strange(at);
            return base + at;
        };
        const auto readable = [&](uint64_t at, uint32_t bytes) {
            if (at - ram > 144 - bytes && at != interrupt) strange(at);
            return base + at;
        };
        const auto segment = [&](uint64_t at) {
            if (at - segments >= 16) strange(at);
            return reinterpret_cast<const uint16_t*>(base + at);
        };
        const uint32_t end = static_cast<uint32_t>(instructions_.size());
        uint32_t word;
        for (uint32_t at = 0; at < end;) {
            const Instruction& i = instructions_[at++];
            if (i.guarded && r[predicate_] == 0) continue;
            uint64_t& to = r[i.a[0]];
            const uint32_t count_of_bits = low(i.a[2]);
            switch (i.name) {
                case Name::bra: at = i.target; break;
                case Name::brx:
                    if (low(i.a[0]) >= table_.size()) fail("a jump behind its table");
                    at = table_[low(i.a[0])];
                    break;
                case Name::load_shared: to = static_cast<uint8_t>(*readable(value(i.a[1]), 1)); break;
                case Name::load_word: std::memcpy(&word, readable(value(i.a[1]), 4), 4); to = word; break;
                case Name::load_segment: to = *segment(value(i.a[1])); break;
                case Name::store_shared: *own(value(i.a[0])) = static_cast<char>(value(i.a[1])); break;
                case Name::load_global: to = *reinterpret_cast<const uint8_t*>(value(i.a[1])); break;
                case Name::load_pair: {
                    const uint64_t both = *reinterpret_cast<const uint64_t*>(value(i.a[2]));
                    r[i.a[0]] = both & 0xFFFFFFFFu;
                    r[i.a[1]] = both >> 32;
                    break;
                }
                case Name::mov: to = low(i.a[1]); break;
                case Name::add: to = static_cast<uint32_t>(low(i.a[1]) + low(i.a[2])); break;
                case Name::sub: to = static_cast<uint32_t>(low(i.a[1]) - low(i.a[2])); break;
                case Name::and_: to = low(i.a[1]) & low(i.a[2]); break;
                case Name::or_: to = low(i.a[1]) | low(i.a[2]); break;
                case Name::xor_: to = low(i.a[1]) ^ low(i.a[2]); break;
                case Name::shl: to = count_of_bits < 32 ? static_cast<uint32_t>(low(i.a[1]) << count_of_bits) : 0; break;
                case Name::shr: to = count_of_bits < 32 ? low(i.a[1]) >> count_of_bits : 0; break;
                case Name::shr_wide: to = count_of_bits < 64 ? value(i.a[1]) >> count_of_bits : 0; break;
                case Name::bfe: to = low(i.a[1]) >> count_of_bits & ((1u << low(i.a[3])) - 1); break;
                case Name::add_wide: to = value(i.a[1]) + value(i.a[2]); break;
                case Name::mul_wide: to = static_cast<uint64_t>(low(i.a[1])) * low(i.a[2]); break;
                case Name::widen:
                case Name::narrow: to = low(i.a[1]); break;
                case Name::select: to = value(i.a[value(i.a[3]) != 0 ? 1 : 2]); break;
                case Name::equal: to = low(i.a[1]) == low(i.a[2]); break;
                case Name::unequal: to = low(i.a[1]) != low(i.a[2]); break;
                case Name::below: to = low(i.a[1]) < low(i.a[2]); break;
                case Name::not_below: to = low(i.a[1]) >= low(i.a[2]); break;
            }
        }
        std::memcpy(operands, r, count * sizeof(uint64_t));
    }

private:
    // Operands come first, then the text's own registers; its numbers are the last.
    static constexpr uint32_t OPERANDS = 24, REGISTERS = 256;

    [[noreturn]] static __attribute__((noinline)) void strange(uint64_t at) {
        fail("another lane's memory at " + std::to_string(at));
    }

    // Lines without braces, blanks at their ends and semicolons.
    static std::vector<std::string> statements(const std::string& text) {
        std::vector<std::string> all;
        std::string line;
        for (const char c : text + "\n") {
            if (c != '\n') {
                line += c;
                continue;
            }
            const size_t first = line.find_first_not_of(" {"), last = line.find_last_not_of(" ;}");
            // A pair of registers begins with a brace of its own, behind the name of its instruction.
            if (first != std::string::npos && last != std::string::npos && last >= first) {
                all.push_back(line.substr(first, last - first + 1));
            }
            line.clear();
        }
        return all;
    }

    static std::vector<std::string> split(const std::string& text) {
        std::vector<std::string> parts;
        std::string part;
        for (const char c : text + ",") {
            if (c == ',') {
                parts.push_back(part);
                part.clear();
            } else if (c != '{' && c != '}' && c != '[' && c != ']' && c != ' ') {
                part += c;
            }
        }
        return parts;
    }

    static uint32_t place(const std::map<std::string, uint32_t>& labels, const std::string& label) {
        const auto found = labels.find(label);
        if (found == labels.end()) fail("no label " + label);
        return found->second;
    }

    // The register of a name or a number.
    uint8_t number_of(const std::string& name) {
        if (name[0] == '%') {
            const unsigned long number = std::strtoul(name.c_str() + 1, nullptr, 10);
            if (number >= OPERANDS) fail("operand " + name);
            return static_cast<uint8_t>(number);
        }
        if (OPERANDS + names_.size() + numbers_.size() >= REGISTERS) fail("too many registers");
        if (name[0] < '0' || name[0] > '9') {
            const uint64_t next = OPERANDS + names_.size();
            return static_cast<uint8_t>(names_.emplace(name, next).first->second);
        }
        const uint64_t number = std::strtoull(name.c_str(), nullptr, 0);
        size_t place = 0;
        while (place < numbers_.size() && numbers_[numbers_.size() - 1 - place] != number) ++place;
        if (place == numbers_.size()) numbers_.insert(numbers_.begin(), number);
        return static_cast<uint8_t>(REGISTERS - 1 - place);
    }

    Instruction instruction(std::string line, const std::map<std::string, uint32_t>& labels) {
        static const std::map<std::string, Name> names = {
            {"bra", Name::bra}, {"brx.idx", Name::brx}, {"ld.shared.u8", Name::load_shared}, {"ld.shared.u16", Name::load_segment},
            {"ld.shared.u32", Name::load_word},
            {"st.shared.u8", Name::store_shared}, {"ld.global.nc.u8", Name::load_global},
            {"ld.global.nc.v2.u32", Name::load_pair}, {"mov.u32", Name::mov}, {"add.u32", Name::add}, {"sub.u32", Name::sub},
            {"and.b32", Name::and_}, {"or.b32", Name::or_}, {"xor.b32", Name::xor_}, {"shl.b32", Name::shl},
            {"shr.u32", Name::shr}, {"shr.u64", Name::shr_wide}, {"bfe.u32", Name::bfe}, {"add.u64", Name::add_wide},
            {"mul.wide.u32", Name::mul_wide}, {"cvt.u64.u32", Name::widen}, {"cvt.u32.u64", Name::narrow},
            {"selp.u32", Name::select}, {"selp.b64", Name::select}, {"setp.eq.u32", Name::equal},
            {"setp.ne.u32", Name::unequal}, {"setp.lt.u32", Name::below}, {"setp.ge.u32", Name::not_below}};
        Instruction made{};
        made.guarded = line.compare(0, 3, "@p ") == 0;
        if (made.guarded) line.erase(0, 3);
        const size_t space = line.find(' ');
        const auto found = names.find(line.substr(0, space));
        if (found == names.end()) fail("instruction " + line);
        made.name = found->second;
        const std::vector<std::string> parts = split(line.substr(space + 1));
        if (made.name == Name::bra) {
            made.target = place(labels, parts[0]);
            return made;
        }
        if (parts.size() > 4) fail("arguments of " + line);
        for (size_t i = 0; i < parts.size() && !(made.name == Name::brx && i == 1); ++i) {
            made.a[i] = number_of(parts[i]);
        }
        return made;
    }

    std::vector<Instruction> instructions_;
    std::vector<uint32_t> table_;
    std::map<std::string, uint64_t> names_;
    std::vector<uint64_t> numbers_;  // from the last register back
    uint8_t predicate_ = 0;
};

}  // namespace parl_ptx
