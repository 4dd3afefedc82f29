//! Compiles the instructions of a ROM image to machine code: functions of the chain for many instructions each.
//!
//! The code of an image is one piece. Straight runs of instructions follow each other without the chain's indirect
//! jumps, branches go directly to their targets, and the result of an instruction is computed only if something can
//! read it. What is not compiled (most device registers, RTS, decimal mode, rare opcodes and addressing modes), and
//! every rare case of what is, jumps to the functions of `handlers`, which return to compiled code through the records.
//! A write to the TIA that changes something calls a function of `stores`.
//!
//! Registers are those of the chain's arguments (see `Handler`), without the record: DI context, DX X, Y and V, CX A,
//! R8 cycles and instructions left, R9 result and carry. Within a run the result may be in A, X or Y instead, and
//! cycles and instructions may not be counted yet (`State`).
//!
//! A function of the chain does not return but jumps to that of the next record. Compiled code calls one with the record
//! `Compiled::back`, whose function is a return instruction: the registers are then those that the next function gets.
//! No unwinding passes compiled code: a panic in such a function would abort, but none of them panics.
//!
//! Operations come from the text in `machine::instructions`; access to operands, jumps and the stack are written here.

mod assembler;
mod instructions;
mod operands;
mod operations;
mod reach;
mod runs;
mod statements;

use std::collections::HashMap;
use std::mem::offset_of;

use memmap2::{Mmap, MmapMut};

use super::code::{Code, Decoded};
use super::handlers::HANDLERS;
use super::stores::Stores;
use super::{Context, Handler, Record, leave};
use assembler::{Assembler, Label, Reg};

/// Where compiled code has the chain's arguments.
const CONTEXT: Reg = Reg::Di;
const XY: Reg = Reg::Dx;
const A: Reg = Reg::Cx;
const CYCLES: Reg = Reg::R8;
const FLAGS: Reg = Reg::R9;
/// The variable `o` of an operation, unless it is known.
const OPERAND: Reg = Reg::R10;
/// The variable `t`.
const TEMPORARY: Reg = Reg::R11;

const STACK_POINTER: u32 = offset_of!(Context, m.cpu.s) as u32;
const DECIMAL: u32 = offset_of!(Context, m.cpu.decimal) as u32;
const INTERRUPT: u32 = offset_of!(Context, m.cpu.interrupt) as u32;

/// Compiled code is used on the systems that it has been tested on.
pub const SUPPORTED: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));
/// The environment variable that turns it off, by the value 0.
const VARIABLE: &str = "PARL_COMPILE";
/// Position of code that only returns.
const RETURN: u32 = 0;

/// True unless the user has turned compiled code off.
pub fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_none_or(|value| value != "0")
}

/// Executable code of an image.
#[derive(Debug)]
pub struct Compiled {
    memory: Mmap,
    /// Its function returns to compiled code that has called a function of the chain.
    back: Box<Record>,
    /// Image offset of an instruction, and the position of its code.
    entries: Vec<(usize, u32)>,
}

impl Compiled {
    /// Compiles an image. `None` if the system is not supported, or allows no executable memory.
    pub(super) fn new(
        image: &[u8],
        decoded: &[Decoded],
        records: &[Record],
        mapping: Mapping,
    ) -> Option<Self> {
        if !SUPPORTED {
            return None;
        }
        let back = Box::new(Record { function: leave::<false>, operand: 0, extra: 0 });
        let mut compiler = Compiler {
            image,
            decoded,
            records,
            mapping,
            functions: if mapping.segmented { Functions::of::<true>() } else { Functions::of::<false>() },
            out: Assembler::default(),
            state: State::default(),
            stubs: vec![],
            kinds: vec![Kind::Unknown; image.len()],
            labels: HashMap::new(),
            entries: vec![],
            places: vec![],
            back: &raw const *back as u64,
            stores: HashMap::new(),
        };
        let heads = compiler.find();
        compiler.compile(&heads);
        let entries = std::mem::take(&mut compiler.entries);
        let mut memory = MmapMut::map_anon(compiler.out.code.len().max(1)).ok()?;
        memory[..compiler.out.code.len()].copy_from_slice(&compiler.out.code);
        let mut compiled = Self { memory: memory.make_exec().ok()?, back, entries };
        compiled.back.function = compiled.function(RETURN);
        Some(compiled)
    }

    /// The function at a position of the code.
    fn function(&self, position: u32) -> Handler {
        // SAFETY: the code at this position takes the arguments of a `Handler`, with its calling convention.
        unsafe { std::mem::transmute::<*const u8, Handler>(self.memory.as_ptr().add(position as usize)) }
    }

    /// Makes records lead to the compiled code, which must exist for as long as they do.
    pub(super) fn install(&self, records: &mut [Record]) {
        for &(at, position) in &self.entries {
            records[at].function = self.function(position);
        }
    }

    /// Bytes of machine code.
    pub fn len(&self) -> usize {
        self.memory.len()
    }
}

/// How an image is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapping {
    /// Size of the blocks that are mapped as a whole, in bytes.
    pub bank: usize,
    /// As `Code::is_segmented`.
    pub segmented: bool,
    /// The last block is always mapped to the end of the window.
    pub last_fixed: bool,
}

/// Functions of the chain.
#[derive(Clone, Copy)]
struct Functions {
    /// By `handlers::NUMBER`.
    table: &'static [Handler],
    pairs: &'static [(u16, u16, Handler)],
    /// By register of the TIA.
    stores: &'static [Handler],
    leave: Handler,
}

impl Functions {
    fn of<const S: bool>() -> Self {
        Self {
            table: &HANDLERS::<S>::TABLE,
            pairs: HANDLERS::<S>::PAIRS,
            stores: &Stores::<S>::TABLE,
            leave: leave::<S>,
        }
    }
}

/// Where bits 7-0 of the last result are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Held {
    #[default]
    Flags,
    A,
    X,
    Y,
}

/// What compiled code has not done yet at some place.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// To be added to `CYCLES`.
    pending: i32,
    result: Held,
}

/// What is known of the instruction at an image offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Unknown,
    /// Left to the function of its record.
    Left,
    Compiled,
}

/// Code after a run, which is rarely reached.
struct Stub {
    label: Label,
    state: State,
    /// Image offset of the record, and the function that is jumped to.
    at: usize,
    function: Handler,
}

struct Compiler<'a> {
    image: &'a [u8],
    decoded: &'a [Decoded],
    records: &'a [Record],
    mapping: Mapping,
    functions: Functions,
    out: Assembler,
    state: State,
    stubs: Vec<Stub>,
    kinds: Vec<Kind>,
    labels: HashMap<usize, Label>,
    /// As those of `Compiled`.
    entries: Vec<(usize, u32)>,
    /// Image offsets of the current run's instructions, with their positions and the state there.
    places: Vec<(usize, Label, State)>,
    /// Address of `Compiled::back`.
    back: u64,
    /// Code that jumps to the function of a register of the TIA.
    stores: HashMap<u32, Label>,
}

fn length(opcode: u8) -> usize {
    usize::from(Code::length(opcode))
}
