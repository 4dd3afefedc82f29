//! Runs the warps of a block.

#![allow(unsafe_code, reason = "kernels read and write the memory that their arguments point to")]

use super::LANES;
use super::decode::{
    Address, Alu, Atomic, Compare, Instruction, KINDS, Kind, Op, Place, Space, Special, Type,
};
use super::flow::EXIT;
use super::memory::{LINE, Memory};
use super::parse::{ARGUMENTS_AT, CONSTANT, Function, Module};

/// The values of a register in all lanes of a warp.
type Lanes = [u64; LANES];

/// Registers of all functions that a warp is in.
const REGISTERS: usize = 1 << 15;
/// Bytes of a lane's local memory.
const LOCAL_BYTES: usize = 64 << 10;
/// Bytes of a function's area of arguments for the functions that it calls, per lane.
const ARGUMENT_BYTES: usize = 512;
/// Maximum depth of calls.
const DEPTH: usize = 32;

/// Instructions in a line of the cache; each takes 16 bytes.
const LINE_INSTRUCTIONS: usize = LINE as usize / 16;

/// How many instructions the warps of a launch have run.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Per function and kind of instruction.
    pub warp: Vec<[u64; KINDS]>,
    /// Per function: lanes that took part, summed over instructions.
    pub lanes: Vec<u64>,
    /// Minima over lanes: turns of the grouped form.
    pub turns: u64,
    /// Per function and instruction.
    pub of_line: Vec<Vec<u64>>,
    /// Instructions of each block of the last launch.
    pub of_block: Vec<u64>,
    /// Accesses to global memory, if they are counted.
    pub memory: Option<Memory>,
    /// Caches of instructions, if their misses are counted.
    pub code: Vec<Memory>,
    /// The first line of each function's code.
    first_lines: Vec<u64>,
    /// The line of the last instruction.
    line: u64,
}

impl Counts {
    /// Nothing has run yet.
    pub fn new(module: &Module) -> Self {
        let count = module.functions.len();
        Self {
            warp: vec![[0; KINDS]; count],
            lanes: vec![0; count],
            turns: 0,
            of_line: module.functions.iter().map(|function| vec![0; function.code.len()]).collect(),
            of_block: vec![],
            memory: None,
            code: vec![],
            first_lines: module
                .functions
                .iter()
                .scan(0, |next, function| {
                    let first = *next;
                    *next += function.code.len().div_ceil(LINE_INSTRUCTIONS) as u64;
                    Some(first)
                })
                .collect(),
            line: u64::MAX,
        }
    }

    /// Instructions, without moves and arguments in registers.
    fn instructions(&self) -> u64 {
        self.warp.iter().flat_map(|all| &all[1..]).sum()
    }
}

/// Lanes that run together, from `at` until `meets`.
#[derive(Clone, Copy, Debug)]
struct Group {
    at: u32,
    meets: u32,
    lanes: u32,
}

/// A function that a warp is in.
struct Frame {
    function: usize,
    registers: usize,
    local: usize,
    groups: Vec<Group>,
}

/// Why a warp stops.
#[derive(PartialEq, Eq)]
enum Stop {
    Barrier,
    End,
}

struct Warp<'a> {
    module: &'a Module,
    constants: &'a [Lanes],
    registers: Vec<Lanes>,
    local: Vec<u8>,
    arguments: Vec<u8>,
    parameters: &'a [u8],
    shared: *mut u8,
    frames: Vec<Frame>,
    first_thread: u32,
    block: [u32; 3],
}

fn low_bits(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

fn signed(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits;
    ((value << shift) as i64) >> shift
}

/// Launches a kernel: runs its blocks one after the other. `parameters` are the bytes of its arguments.
///
/// # Errors
/// There is no kernel of this name, or lanes wait for each other forever.
pub fn launch(
    module: &Module,
    kernel: &str,
    (blocks, threads): (u32, u32),
    parameters: &[u8],
    counts: &mut Counts,
) -> Result<(), String> {
    let number = module.functions.iter().position(|function| function.is_kernel && function.name == kernel);
    let number = number.ok_or_else(|| format!("no kernel {kernel}"))?;
    let constants: Vec<Lanes> = module.constants.iter().map(|&value| [value; LANES]).collect();
    let mut shared = vec![0u64; module.shared_bytes.div_ceil(8)];
    let warps = threads.div_ceil(LANES as u32);
    let mut all: Vec<Warp<'_>> = (0..warps)
        .map(|_| Warp {
            module,
            constants: &constants,
            registers: vec![[0; LANES]; REGISTERS],
            local: vec![0; LOCAL_BYTES * LANES],
            arguments: vec![0; ARGUMENT_BYTES * LANES * DEPTH],
            parameters,
            shared: shared.as_mut_ptr().cast(),
            frames: vec![],
            first_thread: 0,
            block: [0; 3],
        })
        .collect();
    counts.of_block.clear();
    for block in 0..blocks {
        let before = counts.instructions();
        for (i, warp) in all.iter_mut().enumerate() {
            warp.first_thread = 32 * i as u32;
            warp.block = [block, threads, blocks];
            let lanes = (threads - warp.first_thread).min(32);
            warp.frames = vec![Frame {
                function: number,
                registers: 0,
                local: 0,
                groups: vec![Group { at: 0, meets: EXIT, lanes: low_bits(lanes) as u32 }],
            }];
        }
        loop {
            let mut ended = 0;
            for warp in &mut all {
                ended += u32::from(warp.frames.is_empty() || warp.run(counts)? == Stop::End);
            }
            if ended == warps {
                break;
            }
        }
        let all = counts.instructions() - before;
        counts.of_block.push(all);
    }
    Ok(())
}

/// The lanes of a mask.
fn each_lane(mut mask: u32, mut work: impl FnMut(usize)) {
    while mask != 0 {
        work(mask.trailing_zeros() as usize);
        mask &= mask - 1;
    }
}

impl Warp<'_> {
    /// Where a register or constant of the running function is.
    fn values(&self, base: usize, number: u32) -> *const Lanes {
        if number & CONSTANT == 0 {
            &raw const self.registers[base + number as usize]
        } else {
            &raw const self.constants[(number & !CONSTANT) as usize]
        }
    }

    fn set(&mut self, base: usize, number: u32, lanes: u32, value: impl Fn(usize) -> u64) {
        let to = &mut self.registers[base + number as usize];
        each_lane(lanes, |lane| to[lane] = value(lane));
    }

    fn area(&self, depth: usize, lane: usize) -> u64 {
        debug_assert!(depth < DEPTH);
        self.arguments.as_ptr() as u64 + ((depth * LANES + lane) * ARGUMENT_BYTES) as u64
    }

    /// The host's address of an operand in memory, for a lane.
    fn place(&self, base: usize, address: Address, lane: usize) -> u64 {
        let value = address.register.map_or(0, |register| self.registers[base + register as usize][lane]);
        let at = value.wrapping_add(address.offset as u64);
        let depth = self.frames.len() - 1;
        match address.space {
            Space::Generic | Space::Local => at,
            Space::Shared => self.shared as u64 + u64::from(at as u32),
            Space::Global => {
                if address.register.is_some() {
                    at
                } else {
                    self.module.data.as_ptr() as u64 + at
                }
            }
            Space::Given if depth == 0 => self.parameters.as_ptr() as u64 + at,
            // What the caller has passed.
            Space::Given | Space::Results => self.area(depth - 1, lane) + at,
            Space::Passed => self.area(depth, lane) + at,
        }
    }

    /// Runs until a barrier, or until all lanes have ended.
    fn run(&mut self, counts: &mut Counts) -> Result<Stop, String> {
        loop {
            let Some(frame) = self.frames.last_mut() else { return Ok(Stop::End) };
            let (number, base) = (frame.function, frame.registers);
            let Some(group) = frame.groups.last_mut() else {
                self.frames.pop();
                continue;
            };
            if group.at == group.meets || group.lanes == 0 {
                frame.groups.pop();
                continue;
            }
            let function = &self.module.functions[number];
            let at = group.at;
            let Some(&instruction) = function.code.get(at as usize) else {
                return Err(format!("{}: the end of the function is reached", function.name));
            };
            group.at += 1;
            let all = group.lanes;
            let mut lanes = all;
            if let Some((predicate, negated)) = instruction.guard {
                let values = &self.registers[base + predicate as usize];
                let mut holds = 0;
                each_lane(all, |lane| holds |= u32::from((values[lane] != 0) != negated) << lane);
                lanes = holds;
            }
            counts.warp[number][instruction.kind as usize] += 1;
            counts.lanes[number] += u64::from(all.count_ones());
            counts.of_line[number][at as usize] += 1;
            let line = counts.first_lines[number] + u64::from(at) / LINE_INSTRUCTIONS as u64;
            if line != counts.line && !counts.code.is_empty() {
                counts.line = line;
                // One sector stands for the line, which is loaded as a whole.
                counts.code.iter_mut().for_each(|cache| cache.access((number, at), &[line * LINE], 1));
            }
            if let Some(memory) = &mut counts.memory
                && let Op::Load(of, address, count, _) | Op::Store(of, address, count, _) = instruction.op
                && instruction.kind == Kind::Global
            {
                let mut addresses = vec![];
                each_lane(lanes, |lane| addresses.push(self.place(base, address, lane)));
                let shared = self.shared as u64;
                addresses.retain(|at| !(shared..shared + self.module.shared_bytes as u64).contains(at));
                memory.access((number, at), &addresses, u64::from(of.bits / 8 * count));
            }
            match instruction.op {
                Op::Branch => {
                    self.branch(function, at, &[(instruction.target, lanes), (at + 1, all & !lanes)])
                }
                Op::BranchTable(index, table) => {
                    let indices = self.values(base, index);
                    let mut targets: Vec<(u32, u32)> = vec![];
                    each_lane(lanes, |lane| {
                        // SAFETY: `values` points to the values of a register or constant.
                        let target = function.tables[table as usize][unsafe { (*indices)[lane] } as usize];
                        match targets.iter_mut().find(|other| other.0 == target) {
                            Some(other) => other.1 |= 1 << lane,
                            None => targets.push((target, 1 << lane)),
                        }
                    });
                    self.branch(function, at, &targets);
                }
                Op::Return => {
                    let frame = self.frames.last_mut().ok_or("no function")?;
                    for group in &mut frame.groups {
                        group.lanes &= !lanes;
                    }
                }
                Op::Call(callee) => self.call(callee as usize, lanes)?,
                Op::Barrier => return Ok(Stop::Barrier),
                Op::MinimumOfLanes([to, from, mask]) => {
                    counts.turns += 1;
                    self.check_mask(function, &instruction, base, mask, lanes)?;
                    // SAFETY: as above.
                    let values = unsafe { *self.values(base, from) };
                    let mut least = u64::MAX;
                    each_lane(lanes, |lane| least = least.min(values[lane] & low_bits(32)));
                    self.set(base, to, lanes, |_| least);
                }
                Op::AnyOfLanes([to, from, mask]) => {
                    self.check_mask(function, &instruction, base, mask, lanes)?;
                    // SAFETY: as above.
                    let values = unsafe { *self.values(base, from) };
                    let mut any = 0;
                    each_lane(lanes, |lane| any |= values[lane]);
                    self.set(base, to, lanes, |_| any);
                }
                Op::ActiveMask(to) => self.set(base, to, lanes, |_| u64::from(lanes)),
                _ => self.execute(&instruction, base, lanes),
            }
        }
    }

    /// Lanes wait for others that are not here: they would wait forever.
    fn check_mask(
        &self,
        function: &Function,
        instruction: &Instruction,
        base: usize,
        mask: u32,
        lanes: u32,
    ) -> Result<(), String> {
        let values = self.values(base, mask);
        let mut wrong = false;
        // SAFETY: `values` points to the values of a register or constant.
        each_lane(lanes, |lane| wrong |= unsafe { (*values)[lane] } as u32 != lanes);
        if wrong {
            return Err(format!(
                "{}, line {}: lanes wait for others forever",
                function.name, instruction.line
            ));
        }
        Ok(())
    }

    /// Lanes go to several places; those who go to where all meet wait there.
    fn branch(&mut self, function: &Function, at: u32, targets: &[(u32, u32)]) {
        let Some(frame) = self.frames.last_mut() else { return };
        let Some(group) = frame.groups.last_mut() else { return };
        let mut some = targets.iter().filter(|target| target.1 != 0);
        if let (Some(only), None) = (some.next(), some.next()) {
            group.at = only.0;
            return;
        }
        let meets = function.meets[at as usize];
        if meets == group.meets {
            frame.groups.pop();
        } else {
            group.at = meets;
        }
        for &(target, lanes) in targets {
            if lanes != 0 && target != meets {
                frame.groups.push(Group { at: target, meets, lanes });
            }
        }
    }

    fn call(&mut self, callee: usize, lanes: u32) -> Result<(), String> {
        let Some(frame) = self.frames.last() else { return Err("no function".into()) };
        let caller = &self.module.functions[frame.function];
        let function = &self.module.functions[callee];
        let (registers, local) = (frame.registers + caller.registers, frame.local + caller.local_bytes);
        let last = function.parameters.last().map_or(ARGUMENTS_AT, |slot| slot.at + slot.bytes);
        if registers + function.registers > REGISTERS
            || local + function.local_bytes > LOCAL_BYTES
            || last as usize > ARGUMENT_BYTES
            || self.frames.len() + 1 >= DEPTH
        {
            return Err(format!("{}: too many registers, arguments or calls", function.name));
        }
        let groups = vec![Group { at: 0, meets: EXIT, lanes }];
        self.frames.push(Frame { function: callee, registers, local, groups });
        Ok(())
    }

    fn execute(&mut self, instruction: &Instruction, base: usize, lanes: u32) {
        match instruction.op {
            Op::Alu(alu, of, [to, a, b, c]) => self.alu(alu, of, base, lanes, [to, a, b, c]),
            Op::Convert(from, into, truncated, [to, a]) => {
                let a = self.values(base, a);
                let width = instruction.width;
                // SAFETY: `values` points to the values of a register or constant.
                self.set(base, to, lanes, |lane| {
                    // SAFETY: as above.
                    let value = unsafe { (*a)[lane] };
                    convert(value, from, into, truncated, width)
                });
            }
            Op::Insert(bits, [to, a, b, c, d]) => {
                let [a, b, c, d] = [a, b, c, d].map(|number| self.values(base, number));
                self.set(base, to, lanes, |lane| {
                    // SAFETY: as above.
                    let [a, b, c, d] = unsafe { [(*a)[lane], (*b)[lane], (*c)[lane], (*d)[lane]] };
                    let (from, length) = (c & 0xFF, d & 0xFF);
                    if from >= u64::from(bits) {
                        return b & low_bits(bits);
                    }
                    let field = low_bits(length.min(64) as u32) << from;
                    ((b & !field) | ((a << from) & field)) & low_bits(bits)
                });
            }
            Op::Dot([to, a, b, c]) => {
                let [a, b, c] = [a, b, c].map(|number| self.values(base, number));
                self.set(base, to, lanes, |lane| {
                    // SAFETY: as above.
                    let [a, b, c] = unsafe { [(*a)[lane], (*b)[lane], (*c)[lane]] };
                    let sum: u64 = (0..4).map(|i| (a >> (8 * i) & 0xFF) * (b >> (8 * i) & 0xFF)).sum();
                    (c + sum) & low_bits(32)
                });
            }
            Op::Logic([to, a, b, c, table]) => {
                let [a, b, c, table] = [a, b, c, table].map(|number| self.values(base, number));
                self.set(base, to, lanes, |lane| {
                    // SAFETY: as above.
                    let [a, b, c, table] = unsafe { [(*a)[lane], (*b)[lane], (*c)[lane], (*table)[lane]] };
                    let bit = |at: u32| table >> ((a >> at & 1) << 2 | (b >> at & 1) << 1 | c >> at & 1) & 1;
                    (0..32).fold(0, |all, at| all | bit(at) << at)
                });
            }
            Op::DotOfHalves(has_sign, [to, a, b, c]) => {
                let [a, b, c] = [a, b, c].map(|number| self.values(base, number));
                self.set(base, to, lanes, |lane| {
                    // SAFETY: as above.
                    let [a, b, c] = unsafe { [(*a)[lane], (*b)[lane], (*c)[lane]] };
                    let half = |i: u32| {
                        let plain = a >> (16 * i) & 0xFFFF;
                        let value = if has_sign { signed(plain, 16) } else { plain as i64 };
                        value * (b >> (8 * i) & 0xFF) as i64
                    };
                    (c as i64 + half(0) + half(1)) as u64 & low_bits(32)
                });
            }
            Op::Pack(count, list, to) => {
                let (values, bits) =
                    (list.map(|number| self.values(base, number)), instruction.width / count);
                self.set(base, to, lanes, |lane| {
                    (0..count).fold(0, |all, i| {
                        // SAFETY: as above.
                        let value = unsafe { (*values[i as usize])[lane] };
                        all | (value & low_bits(bits)) << (bits * i)
                    })
                });
            }
            Op::Unpack(count, list, from) => {
                // SAFETY: as above.
                let values = unsafe { *self.values(base, from) };
                for i in 0..count {
                    let bits = instruction.width;
                    self.set(base, list[i as usize], lanes, |lane| {
                        values[lane] >> (bits * i) & low_bits(bits)
                    });
                }
            }
            Op::Load(of, address, count, list) => {
                let bytes = of.bits / 8;
                for (i, &to) in list[..count as usize].iter().enumerate() {
                    each_lane(lanes, |lane| {
                        let at = self.place(base, address, lane) + u64::from(bytes) * i as u64;
                        // SAFETY: the kernel's arguments and its own memory.
                        let value = unsafe { load(at, bytes) };
                        let value = if of.signed {
                            signed(value, of.bits) as u64 & low_bits(instruction.width)
                        } else {
                            value
                        };
                        self.registers[base + to as usize][lane] = value;
                    });
                }
            }
            Op::Store(of, address, count, list) => {
                let bytes = of.bits / 8;
                for (i, &from) in list[..count as usize].iter().enumerate() {
                    let values = self.values(base, from);
                    each_lane(lanes, |lane| {
                        let at = self.place(base, address, lane) + u64::from(bytes) * i as u64;
                        // SAFETY: as above.
                        unsafe { store(at, (*values)[lane], bytes) };
                    });
                }
            }
            Op::Atomic(atomic, address, [to, from]) => {
                let values = self.values(base, from);
                each_lane(lanes, |lane| {
                    let at = self.place(base, address, lane) as *mut u32;
                    // SAFETY: as above; no other thread runs.
                    unsafe {
                        let (before, value) = (at.read(), (*values)[lane] as u32);
                        at.write(match atomic {
                            Atomic::Add => before.wrapping_add(value),
                            Atomic::Or => before | value,
                            Atomic::And => before & value,
                            Atomic::Max => before.max(value),
                        });
                        self.registers[base + to as usize][lane] = u64::from(before);
                    }
                });
            }
            Op::Place(place, to, at) => {
                let local = self.frames.last().map_or(0, |frame| frame.local);
                let (locals, depth) = (self.local.as_ptr() as u64, self.frames.len() - 1);
                let areas: Vec<u64> =
                    (0..LANES).map(|lane| if depth == 0 { 0 } else { self.area(depth - 1, lane) }).collect();
                let (given, global) = (self.parameters.as_ptr() as u64, self.module.data.as_ptr() as u64);
                self.set(base, to, lanes, |lane| match place {
                    Place::Local => locals + (lane * LOCAL_BYTES + local) as u64,
                    Place::Given if depth == 0 => given + at as u64,
                    Place::Given => areas[lane] + at as u64,
                    Place::Global => global + at as u64,
                });
            }
            Op::Special(special, to) => {
                let (first, [block, threads, blocks]) = (self.first_thread, self.block);
                self.set(base, to, lanes, |lane| match special {
                    Special::Thread => u64::from(first) + lane as u64,
                    Special::Block => u64::from(block),
                    Special::BlockThreads => u64::from(threads),
                    Special::Blocks => u64::from(blocks),
                    Special::Zero => 0,
                });
            }
            Op::SharedToGeneric([to, a]) => {
                let (a, shared) = (self.values(base, a), self.shared as u64);
                // SAFETY: as above.
                self.set(base, to, lanes, |lane| shared + unsafe { (*a)[lane] });
            }
            Op::GenericToShared([to, a]) => {
                let (a, shared) = (self.values(base, a), self.shared as u64);
                // SAFETY: as above.
                self.set(base, to, lanes, |lane| unsafe { (*a)[lane] }.wrapping_sub(shared));
            }
            _ => {}
        }
    }

    fn alu(&mut self, alu: Alu, of: Type, base: usize, lanes: u32, [to, a, b, c]: [u32; 4]) {
        let [a, b, c] = [a, b, c].map(|number| self.values(base, number));
        let to = &raw mut self.registers[base + to as usize];
        let bits = of.bits;
        let all = low_bits(bits);
        // SAFETY: `values` points to the values of registers or constants; a lane is read before it is written.
        let compute = |work: &dyn Fn(u64, u64, u64) -> u64| unsafe {
            each_lane(lanes, |lane| (*to)[lane] = work((*a)[lane], (*b)[lane], (*c)[lane]));
        };
        macro_rules! whole {
            ($work:expr) => {{
                let work = $work;
                // SAFETY: as above.
                unsafe {
                    each_lane(lanes, |lane| {
                        (*to)[lane] = work((*a)[lane] & all, (*b)[lane] & all, (*c)[lane]) & all
                    });
                }
            }};
        }
        if of.float && alu != Alu::Mov && alu != Alu::Select {
            return compute(&|a, b, _| float(alu, bits, a, b));
        }
        match alu {
            Alu::Mov => whole!(|a, _: u64, _: u64| a),
            Alu::Add => whole!(|a: u64, b, _: u64| a.wrapping_add(b)),
            Alu::Sub => whole!(|a: u64, b, _: u64| a.wrapping_sub(b)),
            Alu::Mul => whole!(|a: u64, b, _: u64| a.wrapping_mul(b)),
            Alu::Mad => whole!(|a: u64, b, c| a.wrapping_mul(b).wrapping_add(c)),
            Alu::And => whole!(|a, b, _: u64| a & b),
            Alu::Or => whole!(|a, b, _: u64| a | b),
            Alu::Xor => whole!(|a, b, _: u64| a ^ b),
            Alu::Not => whole!(|a: u64, _: u64, _: u64| !a),
            Alu::Neg => whole!(|a: u64, _: u64, _: u64| a.wrapping_neg()),
            Alu::Select => {
                // SAFETY: as above.
                unsafe {
                    each_lane(lanes, |lane| {
                        (*to)[lane] = if (*c)[lane] != 0 { (*a)[lane] } else { (*b)[lane] } & all;
                    });
                }
            }
            Alu::Shl => compute(&|a, b, _| {
                let by = b & low_bits(32);
                if by >= u64::from(bits) { 0 } else { ((a & all) << by) & all }
            }),
            Alu::Shr => compute(&|a, b, _| {
                let by = (b & low_bits(32)).min(u64::from(bits));
                if of.signed {
                    (signed(a, bits) >> by.min(63)) as u64 & all
                } else if by >= u64::from(bits) {
                    0
                } else {
                    (a & all) >> by
                }
            }),
            Alu::Set(how) => compute(&|a, b, _| {
                let order =
                    if of.signed { signed(a, bits).cmp(&signed(b, bits)) } else { (a & all).cmp(&(b & all)) };
                u64::from(match how {
                    Compare::Equal => order.is_eq(),
                    Compare::Unequal => order.is_ne(),
                    Compare::Less => order.is_lt(),
                    Compare::LessEqual => order.is_le(),
                    Compare::Greater => order.is_gt(),
                    Compare::GreaterEqual => order.is_ge(),
                    Compare::Unordered => false,
                })
            }),
            Alu::MulWide => compute(&|a, b, _| {
                let product = if of.signed {
                    signed(a, bits).wrapping_mul(signed(b, bits)) as u64
                } else {
                    (a & all).wrapping_mul(b & all)
                };
                product & low_bits(2 * bits)
            }),
            Alu::MadWide => {
                compute(&|a, b, c| ((a & all).wrapping_mul(b & all)).wrapping_add(c) & low_bits(2 * bits));
            }
            // Of numbers without a sign.
            Alu::MadHigh => compute(&|a, b, c| {
                let product = (u128::from(a & all) * u128::from(b & all)) >> bits;
                (product as u64).wrapping_add(c) & all
            }),
            Alu::MulHigh => compute(&|a, b, _| {
                let product = if of.signed {
                    (i128::from(signed(a, bits)) * i128::from(signed(b, bits))) >> bits
                } else {
                    (u128::from(a & all) * u128::from(b & all)) as i128 >> bits
                };
                product as u64 & all
            }),
            Alu::Div | Alu::Rem | Alu::Min | Alu::Max | Alu::Abs => {
                compute(&|a, b, _| {
                    let (a, b) = if of.signed {
                        (i128::from(signed(a, bits)), i128::from(signed(b, bits)))
                    } else {
                        (i128::from(a & all), i128::from(b & all))
                    };
                    let value = match alu {
                        Alu::Div => a.checked_div(b).unwrap_or(-1),
                        Alu::Rem => a.checked_rem(b).unwrap_or(a),
                        Alu::Min => a.min(b),
                        Alu::Max => a.max(b),
                        _ => a.abs(),
                    };
                    value as u64 & all
                });
            }
            Alu::Extract => compute(&|a, b, c| {
                let (from, length) = (b & 0xFF, c & 0xFF);
                let field = if from >= u64::from(bits) { 0 } else { (a & all) >> from };
                field & low_bits(length.min(64) as u32)
            }),
            Alu::Count => compute(&|a, _, _| u64::from((a & all).count_ones())),
            Alu::LeadingZeros => compute(&|a, _, _| u64::from((a & all).leading_zeros() - (64 - bits))),
            Alu::Reverse => compute(&|a, _, _| (a & all).reverse_bits() >> (64 - bits)),
            Alu::Bytes => compute(&|a, b, c| {
                let bytes = (b & low_bits(32)) << 32 | a & low_bits(32);
                (0..4).fold(0, |found, i| {
                    let which = c >> (4 * i);
                    let byte = bytes >> (8 * (which & 7)) & 0xFF;
                    let byte = if which & 8 == 0 { byte } else { 0xFF * (byte >> 7) };
                    found | byte << (8 * i)
                })
            }),
            Alu::FunnelRight => compute(&|a, b, c| {
                let both = (b & low_bits(32)) << 32 | a & low_bits(32);
                both >> (c & 31) & low_bits(32)
            }),
            Alu::Funnel => compute(&|a, b, c| {
                let both = (b & low_bits(32)) << 32 | a & low_bits(32);
                (both << (c & 31)) >> 32
            }),
        }
    }
}

/// An operation on floats.
fn float(alu: Alu, bits: u32, a: u64, b: u64) -> u64 {
    macro_rules! with {
        ($float:ty, $bits:ty) => {{
            let (x, y) = (<$float>::from_bits(a as $bits), <$float>::from_bits(b as $bits));
            let value = match alu {
                Alu::Add => x + y,
                Alu::Sub => x - y,
                Alu::Mul => x * y,
                Alu::Div => x / y,
                Alu::Min => x.min(y),
                Alu::Max => x.max(y),
                Alu::Neg => -x,
                Alu::Abs => x.abs(),
                Alu::Set(how) => {
                    return u64::from(match how {
                        Compare::Equal => x == y,
                        Compare::Unequal => x != y,
                        Compare::Less => x < y,
                        Compare::LessEqual => x <= y,
                        Compare::Greater => x > y,
                        Compare::GreaterEqual => x >= y,
                        Compare::Unordered => x.is_nan() || y.is_nan(),
                    });
                }
                _ => <$float>::NAN,
            };
            u64::from(value.to_bits())
        }};
    }
    if bits == 32 { with!(f32, u32) } else { with!(f64, u64) }
}

fn convert(value: u64, from: Type, into: Type, truncated: bool, width: u32) -> u64 {
    if from.float {
        let x = if from.bits == 32 { f64::from(f32::from_bits(value as u32)) } else { f64::from_bits(value) };
        if into.float {
            return if into.bits == 32 { u64::from((x as f32).to_bits()) } else { x.to_bits() };
        }
        let x = if truncated { x.trunc() } else { x.round_ties_even() };
        let integer = if into.signed { (x as i64) as u64 } else { x as u64 };
        return integer & low_bits(into.bits);
    }
    let integer = if from.signed { signed(value, from.bits) } else { (value & low_bits(from.bits)) as i64 };
    if into.float {
        let negative = from.signed && integer < 0;
        return if into.bits == 32 {
            let x = if negative || from.signed { integer as f32 } else { integer as u64 as f32 };
            u64::from(x.to_bits())
        } else {
            let x = if negative || from.signed { integer as f64 } else { integer as u64 as f64 };
            x.to_bits()
        };
    }
    let value = integer as u64 & low_bits(into.bits);
    if into.signed { signed(value, into.bits) as u64 & low_bits(width) } else { value }
}

/// # Safety
/// `bytes` (1, 2, 4 or 8) bytes at `at` can be read.
unsafe fn load(at: u64, bytes: u32) -> u64 {
    // SAFETY: by the condition above.
    unsafe {
        match bytes {
            1 => u64::from((at as *const u8).read()),
            2 => u64::from((at as *const u16).read()),
            4 => u64::from((at as *const u32).read()),
            _ => (at as *const u64).read(),
        }
    }
}

/// # Safety
/// `bytes` (1, 2, 4 or 8) bytes at `at` can be written.
unsafe fn store(at: u64, value: u64, bytes: u32) {
    // SAFETY: by the condition above.
    unsafe {
        match bytes {
            1 => (at as *mut u8).write(value as u8),
            2 => (at as *mut u16).write(value as u16),
            4 => (at as *mut u32).write(value as u32),
            _ => (at as *mut u64).write(value),
        }
    }
}
