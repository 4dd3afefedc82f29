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
    bra, brx, load_byte, load_word, load_half, store_byte, load_global, load_pair, mov, add, sub, mul, mul_high, and_, or_, xor_,
    shl, shr, bfe, reverse, dot, mad, mad_high, mad_wide, select, equal, unequal, below, not_below, active, any
};

// What it works on are registers; numbers lie in registers of their own.
struct Instruction {
    Name name;
    int8_t guard;     // 0: none; 1, 2: the number of the predicate; negative: its negation
    uint8_t a[4];
    uint32_t target;  // of a branch: an instruction or a table
    int32_t offset;   // of an address
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
        std::map<std::string, std::string> targets;
        for (const std::string& line : lines) {
            const size_t table = line.find(": .branchtargets ");
            if (table != std::string::npos) {
                targets[line.substr(0, table)] = line.substr(table + 17);
            } else if (line.back() == ':') {
                if (!labels.emplace(line.substr(0, line.size() - 1), kept.size()).second) fail("label twice: " + line);
            } else if (line[0] != '.') {
                kept.push_back(line);
            }
        }
        std::map<std::string, uint32_t> numbers;
        for (const auto& [name, list] : targets) {
            numbers[name] = static_cast<uint32_t>(tables_.size());
            tables_.emplace_back();
            for (const std::string& target : split(list)) tables_.back().push_back(place(labels, target));
        }
        for (const std::string& line : kept) instructions_.push_back(instruction(line, labels, numbers));
        predicates_[1] = number_of("p");
        predicates_[2] = number_of("p2");
    }

    // `operands` are %0, %1 and so on. Of shared memory `bytes` from `machine` on may be used, which belong to the lane.
    void run(uint64_t* operands, size_t count, uint32_t machine, uint32_t bytes) const {
        uint64_t r[REGISTERS];
        if (count > OPERANDS) fail("too many operands");
        std::memcpy(r, operands, count * sizeof(uint64_t));
        std::memcpy(r + REGISTERS - numbers_.size(), numbers_.data(), numbers_.size() * sizeof(uint64_t));
        const auto value = [&](uint8_t register_number) { return r[register_number]; };
        const auto low = [&](uint8_t register_number) { return static_cast<uint32_t>(r[register_number]); };
        char* const base = const_cast<char*>(parl_shared_base);
        const auto own = [&](uint32_t at, int32_t offset, uint32_t size) {
            at += static_cast<uint32_t>(offset);
            if (at - machine > bytes - size) strange(at);
            return base + at;
        };
        const uint32_t end = static_cast<uint32_t>(instructions_.size());
        uint32_t word;
        uint16_t half;
        for (uint32_t at = 0; at < end;) {
            const Instruction& i = instructions_[at++];
            if (i.guard > 0 && r[predicates_[i.guard]] == 0) continue;
            if (i.guard < 0 && r[predicates_[-i.guard]] != 0) continue;
            uint64_t& to = r[i.a[0]];
            const uint32_t count_of_bits = low(i.a[2]);
            switch (i.name) {
                case Name::bra: at = i.target; break;
                case Name::brx:
                    if (low(i.a[0]) >= tables_[i.target].size()) fail("a jump behind its table");
                    at = tables_[i.target][low(i.a[0])];
                    break;
                case Name::load_byte: to = static_cast<uint8_t>(*own(low(i.a[1]), i.offset, 1)); break;
                case Name::load_word: std::memcpy(&word, own(low(i.a[1]), i.offset, 4), 4); to = word; break;
                case Name::load_half: std::memcpy(&half, own(low(i.a[1]), i.offset, 2), 2); to = half; break;
                case Name::store_byte: *own(low(i.a[0]), i.offset, 1) = static_cast<char>(value(i.a[1])); break;
                case Name::load_global: to = *reinterpret_cast<const uint8_t*>(value(i.a[1])); break;
                case Name::load_pair: {
                    const uint64_t both = *reinterpret_cast<const uint64_t*>(value(i.a[2]) + i.offset);
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
                case Name::bfe: to = low(i.a[1]) >> count_of_bits & ((1u << low(i.a[3])) - 1); break;
                case Name::reverse:
                    for (uint32_t from = low(i.a[1]), bit = word = 0; bit < 32; ++bit) word |= (from >> bit & 1) << (31 - bit);
                    to = word;
                    break;
                case Name::mul: to = static_cast<uint32_t>(low(i.a[1]) * low(i.a[2])); break;
                case Name::mul_high: to = static_cast<uint64_t>(low(i.a[1])) * low(i.a[2]) >> 32; break;
                // The upper half of the first factor meets byte 1 of the second one.
                case Name::dot: to = static_cast<uint32_t>((low(i.a[1]) & 0xFFFF) * (low(i.a[2]) & 0xFF) + (low(i.a[1]) >> 16) * (low(i.a[2]) >> 8 & 0xFF) + low(i.a[3])); break;
                case Name::mad_high: to = static_cast<uint32_t>((static_cast<uint64_t>(low(i.a[1])) * low(i.a[2]) >> 32) + low(i.a[3])); break;
                case Name::mad: to = static_cast<uint32_t>(low(i.a[1]) * low(i.a[2]) + low(i.a[3])); break;
                case Name::mad_wide: to = static_cast<uint64_t>(low(i.a[1])) * low(i.a[2]) + value(i.a[3]); break;
                // Each lane is interpreted by itself.
                case Name::active: to = 1; break;
                case Name::any: to = value(i.a[1]); break;
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
    static constexpr uint32_t OPERANDS = 32, REGISTERS = 256;

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

    Instruction instruction(std::string line, const std::map<std::string, uint32_t>& labels,
                            const std::map<std::string, uint32_t>& tables) {
        static const std::map<std::string, Name> names = {
            {"bra", Name::bra}, {"brx.idx", Name::brx}, {"ld.shared.u8", Name::load_byte}, {"ld.shared.u16", Name::load_half},
            {"ld.shared.u32", Name::load_word}, {"st.shared.u8", Name::store_byte}, {"ld.global.nc.u8", Name::load_global},
            {"ld.global.nc.v2.u32", Name::load_pair}, {"mov.u32", Name::mov}, {"add.u32", Name::add}, {"sub.u32", Name::sub},
            {"mul.lo.u32", Name::mul}, {"mul.hi.u32", Name::mul_high}, {"and.b32", Name::and_}, {"or.b32", Name::or_},
            {"xor.b32", Name::xor_}, {"shl.b32", Name::shl}, {"shr.u32", Name::shr}, {"bfe.u32", Name::bfe},
            {"brev.b32", Name::reverse}, {"dp2a.lo.u32.u32", Name::dot}, {"mad.lo.u32", Name::mad}, {"mad.hi.u32", Name::mad_high}, {"mad.wide.u32", Name::mad_wide}, {"selp.u32", Name::select},
            {"setp.eq.u32", Name::equal}, {"setp.ne.u32", Name::unequal}, {"setp.lt.u32", Name::below},
            {"setp.ge.u32", Name::not_below}, {"activemask.b32", Name::active}, {"vote.sync.any.pred", Name::any}};
        static const std::map<std::string, int8_t> guards = {{"@p", 1}, {"@p2", 2}, {"@!p", -1}, {"@!p2", -2}};
        Instruction made{};
        if (line[0] == '@') {
            const size_t end = line.find(' ');
            const auto guard = guards.find(line.substr(0, end));
            if (guard == guards.end()) fail("guard of " + line);
            made.guard = guard->second;
            line.erase(0, end + 1);
        }
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
        for (size_t i = 0; i < parts.size(); ++i) {
            if (made.name == Name::brx && i == 1) {
                made.target = place(tables, parts[1]);
                continue;
            }
            const size_t plus = parts[i].find('+');
            made.a[i] = number_of(parts[i].substr(0, plus));
            if (plus != std::string::npos) made.offset = static_cast<int32_t>(std::strtol(parts[i].c_str() + plus + 1, nullptr, 10));
        }
        return made;
    }

    std::vector<Instruction> instructions_;
    std::vector<std::vector<uint32_t>> tables_;
    std::map<std::string, uint64_t> names_;
    std::vector<uint64_t> numbers_;  // from the last register back
    uint8_t predicates_[3] = {};
};

}  // namespace parl_ptx
