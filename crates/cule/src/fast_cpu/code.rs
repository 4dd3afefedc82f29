//! ROM images as records: the decoded instruction at each address.

use std::sync::{Arc, OnceLock};

use super::compiled::{self, Compiled, Mapping};
use super::handlers::{self, CLASSES, HANDLERS, NONE, NUMBER};
use super::watch::{Watch, watch, watch_of};
use super::{Handler, RESERVE, Record, count, dpc_display, poll, ram_code, slow};
use crate::machine::cart;
use crate::machine::cart::Cart;

/// Addressing modes and lengths come from the table of instructions.
use crate::machine::instructions::{INSTRUCTIONS, Mode};

/// A ROM image, and its records if the fast CPU can run it.
#[derive(Clone, Debug)]
pub struct Code {
    image: Arc<[u8]>,
    records: Arc<[Record]>,
    /// Machine code that the functions of `records` may be in.
    compiled: Option<Arc<Compiled>>,
    /// Records for drawing access by access (see `watch`); created on first use.
    watching: Arc<OnceLock<Vec<Record>>>,
    kind: u8,
    segmented: bool,
    rom_bytes: u32,
    /// More than the number of instructions from any instruction to the next jump.
    reserve: u32,
}

/// A decoded instruction: the index of its function, and the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    /// Opcode and operand class.
    pub kind: (u8, u8),
    pub handler: u16,
    pub operand: u32,
    /// Additional cycles of a taken branch.
    pub extra: u8,
}

const SLOW: Decoded = Decoded { kind: (0, 0), handler: NONE, operand: 0, extra: 0 };

/// Settings for the creation of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Use functions for pairs of instructions.
    pub pairs: bool,
    /// Skip iterations of waiting and counting loops instead of executing them.
    pub skips: bool,
    /// Compile instructions to machine code, where the system is supported and allows it.
    pub compiled: bool,
    /// Execute writes to the sound registers.
    pub sound: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { pairs: true, skips: true, compiled: true, sound: false }
    }
}

/// Bytes of the console's RAM.
const RAM_BYTES: u32 = 128;
const DEX: u8 = 0xCA;
const DEY: u8 = 0x88;
const BNE: u8 = 0xD0;
const BPL: u8 = 0x10;

impl Code {
    /// Decodes an image that `rom::image` has returned.
    pub fn new(image: &[u8], kind: u8) -> Self {
        Self::with(image, kind, Settings { compiled: compiled::is_wanted(), ..Settings::default() })
    }

    /// Returns an image that only the plain interpreter runs.
    pub fn plain(image: &[u8]) -> Self {
        Self {
            image: image.into(),
            records: Arc::new([]),
            compiled: None,
            watching: Arc::default(),
            kind: 0,
            segmented: false,
            rom_bytes: image.len() as u32,
            reserve: u32::from(RESERVE),
        }
    }

    /// As [`Code::new`], with settings.
    pub fn with(image: &[u8], kind: u8, settings: Settings) -> Self {
        let Some(bank) = Self::bank(kind) else { return Self::plain(image) };
        let rom_bytes = image.len() as u32;
        let cart = cart::new(kind, rom_bytes);
        // A cartridge of 2 KiB is mapped twice.
        let image = if kind == cart::KIND_2K { [image, image].concat() } else { image.to_vec() };
        let segmented = matches!(kind, cart::KIND_E0 | cart::KIND_FE);
        let decoder = Decoder { image: &image, cart: &cart, bank, segmented, sound: settings.sound };
        let decoded = decoder.decoded();
        // A program in RAM has at most an instruction per byte up to its next jump.
        let reserve = decoder.longest_run(&decoded) + RAM_BYTES + 16;
        let mut records: Arc<[Record]> = (0..image.len())
            .map(|at| {
                if segmented {
                    decoder.record::<true>(&decoded, at, settings)
                } else {
                    decoder.record::<false>(&decoded, at, settings)
                }
            })
            .collect();
        let mapping = Mapping { bank, segmented, last_fixed: kind == cart::KIND_E0 };
        let compiled = settings
            .compiled
            .then(|| Compiled::new(&image, &decoded, &records, mapping))
            .flatten()
            .map(Arc::new);
        if let (Some(compiled), Some(records)) = (&compiled, Arc::get_mut(&mut records)) {
            compiled.install(records);
        }
        Self {
            image: image.into(),
            records,
            compiled,
            watching: Arc::default(),
            kind,
            segmented,
            rom_bytes,
            reserve: reserve.min(u32::from(RESERVE)),
        }
    }

    /// Bytes of machine code that the image has been compiled to.
    pub fn compiled_bytes(&self) -> usize {
        self.compiled.as_ref().map_or(0, |compiled| compiled.len())
    }

    /// Records whose functions leave instructions that may access the TIA to the plain interpreter.
    pub(super) fn watching_records(&self) -> &[Record] {
        self.watching.get_or_init(|| {
            let cart = cart::new(self.kind, self.rom_bytes);
            let bank = Self::bank(self.kind).unwrap_or(usize::MAX);
            // The plain interpreter executes all writes to the TIA, those to the sound registers included.
            let decoder =
                Decoder { image: &self.image, cart: &cart, bank, segmented: self.segmented, sound: false };
            let decoded = decoder.decoded();
            (0..self.image.len())
                .map(|at| {
                    if self.segmented {
                        decoder.watching_record::<true>(&decoded, at)
                    } else {
                        decoder.watching_record::<false>(&decoded, at)
                    }
                })
                .collect()
        })
    }

    /// Minimum number of remaining instructions at a taken jump.
    pub(super) fn reserve(&self) -> u32 {
        self.reserve
    }

    /// Opcode and operand class (`handlers::CLASS_NAMES`) of the instruction at each byte of an image; `None`
    /// if the slow path executes it.
    pub fn kinds(image: &[u8], kind: u8) -> Vec<Option<(u8, u8)>> {
        let Some(bank) = Self::bank(kind) else { return vec![] };
        let cart = cart::new(kind, image.len() as u32);
        let segmented = matches!(kind, cart::KIND_E0 | cart::KIND_FE);
        let image = if kind == cart::KIND_2K { [image, image].concat() } else { image.to_vec() };
        let decoder = Decoder { image: &image, cart: &cart, bank, segmented, sound: false };
        decoder.decoded().iter().map(|one| (one.handler != NONE).then_some(one.kind)).collect()
    }

    /// Length of an instruction in bytes.
    pub fn length(opcode: u8) -> u16 {
        match INSTRUCTIONS[usize::from(opcode)].mode {
            Mode::Imp | Mode::Acc => 1,
            Mode::Abs | Mode::Absx | Mode::Absy | Mode::Ind => 3,
            _ => 2,
        }
    }

    /// Size of the blocks that are mapped as a whole, in bytes; `None` if the fast CPU cannot run the
    /// cartridge.
    fn bank(kind: u8) -> Option<usize> {
        Some(match kind {
            cart::KIND_2K
            | cart::KIND_4K
            | cart::KIND_F8
            | cart::KIND_F8SC
            | cart::KIND_F6
            | cart::KIND_F6SC => 4096,
            cart::KIND_F4 | cart::KIND_F4SC | cart::KIND_FE | cart::KIND_DPC | cart::KIND_MB => 4096,
            cart::KIND_F8_LOW | cart::KIND_FA => 4096,
            cart::KIND_E0 => 1024,
            _ => return None,
        })
    }

    /// The image, of the same length as the records.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Bytes of the image that the cartridge was created with.
    pub fn rom_bytes(&self) -> u32 {
        self.rom_bytes
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// True if the fast CPU can run the image.
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// True if segments of 1 KiB are switched separately, or if PC selects the bank.
    pub(super) fn is_segmented(&self) -> bool {
        self.segmented
    }
}

struct Decoder<'a> {
    image: &'a [u8],
    cart: &'a Cart,
    /// Size of the blocks that are mapped as a whole, in bytes.
    bank: usize,
    segmented: bool,
    sound: bool,
}

impl Decoder<'_> {
    /// True if `count` bytes from image offset `at` on are plain ROM wherever they are mapped, and the next
    /// byte belongs to the same bank.
    fn is_plain(&self, at: usize, count: usize) -> bool {
        if at % self.bank + count >= self.bank {
            return false;
        }
        if self.cart.kind == cart::KIND_E0 {
            // Only the last slice can be mapped to the addresses of the hotspots.
            return at / 1024 != 7 || at % 1024 + count <= 0x3E0;
        }
        (at..at + count).all(|at| cart::is_plain(self.cart, (at & 0xFFF) as u32))
    }

    /// True if an absolute address is plain ROM, and thus in the bank of the instruction that accesses it.
    fn is_same_bank(&self, address: usize) -> bool {
        address & 0x1000 != 0 && cart::is_plain(self.cart, (address & 0xFFF) as u32)
    }

    fn decoded(&self) -> Vec<Decoded> {
        (0..self.image.len()).map(|at| self.decode(at)).collect()
    }

    fn decode(&self, at: usize) -> Decoded {
        let length = usize::from(Code::length(self.image[at]));
        if self.is_plain(at, length) { self.decode_bytes(at) } else { SLOW }
    }

    /// Decodes the instruction at image offset `at`, which is in one bank.
    fn decode_bytes(&self, at: usize) -> Decoded {
        let opcode = usize::from(self.image[at]);
        let instruction = &INSTRUCTIONS[opcode];
        let length = usize::from(Code::length(opcode as u8));
        let low = if length > 1 { usize::from(self.image[at + 1]) } else { 0 };
        let word = if length > 2 { low | usize::from(self.image[at + 2]) << 8 } else { low };
        let mut extra = 0;
        let (class, operand) = match instruction.mode {
            Mode::Imp | Mode::Acc | Mode::Imm => (handlers::PLAIN, low),
            Mode::Rel => {
                let from = at + 2;
                let to = from.wrapping_add_signed(low as u8 as i8 as isize);
                if to / self.bank != at / self.bank || from / self.bank != at / self.bank {
                    return SLOW;
                }
                extra = if (from ^ to) & 0xFF00 != 0 { 2 } else { 1 };
                let distance = low as u8 as i8 as isize * size_of::<Record>() as isize;
                (handlers::PLAIN, distance as usize)
            }
            Mode::Zp => self.constant(opcode, low, low, at),
            Mode::Abs if matches!(instruction.name, "JMP" | "JSR") => {
                if word & 0x1000 == 0 {
                    return SLOW;
                }
                (handlers::PLAIN, word)
            }
            Mode::Abs => self.constant(opcode, word, word, at),
            Mode::Absx | Mode::Absy => {
                let inside = |address| self.is_same_bank(address) && word & 0x1000 == address & 0x1000;
                let in_rom = (word..word + 256).all(inside) && (word & 0xFFF) + 255 < 0x1000;
                let class = if in_rom && has_handler(opcode, handlers::ROM_INDEXED) {
                    handlers::ROM_INDEXED
                } else {
                    handlers::INDEX
                };
                (class, word)
            }
            Mode::Indy if !(0x80..=0xFE).contains(&low) => return SLOW,
            Mode::Indy => (handlers::INDEX, low & 0x7F),
            Mode::Zpx | Mode::Zpy | Mode::Indx => (handlers::INDEX, low),
            Mode::Ind => (handlers::INDEX, word),
        };
        let handler = NUMBER[opcode][class];
        if handler == NONE {
            return SLOW;
        }
        Decoded { kind: (opcode as u8, class as u8), handler, operand: operand as u32, extra }
    }

    /// Class and operand of an instruction with a constant address.
    fn constant(&self, opcode: usize, address: usize, operand: usize, at: usize) -> (usize, usize) {
        if address & 0x1000 != 0 {
            let superchip = cart::is_superchip(self.cart) && self.cart.kind != cart::KIND_F4SC;
            let offset = address & 0xFFF;
            let writes = has_handler(opcode, handlers::STORE);
            if superchip && (writes && offset < 0x80 || !writes && (0x80..0x100).contains(&offset)) {
                return (handlers::SUPERCHIP, offset);
            }
            if self.cart.kind == cart::KIND_DPC && offset < 0x40 && has_handler(opcode, handlers::DPC) {
                return (handlers::DPC, offset);
            }
            if !self.segmented && self.is_same_bank(address) && has_handler(opcode, handlers::CONSTANT) {
                let place = at / 4096 * 4096 + offset;
                return (handlers::CONSTANT, usize::from(self.image[place]));
            }
            // Other addresses of the window are handled at execution.
            return (handlers::INDEX, operand);
        }
        if address & 0x1280 == 0x0080 {
            return (handlers::RAM, address & 0x7F);
        }
        if address & 0x80 != 0 {
            if has_handler(opcode, handlers::RIOT_WRITE) {
                return (handlers::RIOT_WRITE, operand);
            }
            let class = if address & 5 == 4 { handlers::TIMER } else { handlers::PORT };
            return (class, operand);
        }
        if has_handler(opcode, handlers::STORE) {
            let register = address & 0x3F;
            let class = match register {
                0x02 => handlers::WSYNC,
                0x15..=0x1A if self.sound => handlers::STORE,
                0x03 | 0x15..=0x1A | 0x2D..=0x3F => handlers::TIA_UNUSED,
                _ => handlers::STORE,
            };
            return (class, register);
        }
        match address & 15 {
            12 | 13 => (handlers::TRIGGER, operand),
            _ => (handlers::TIA_READ, operand),
        }
    }

    /// Maximum number of instructions from any instruction to the next that jumps or takes the slow path.
    fn longest_run(&self, decoded: &[Decoded]) -> u32 {
        let mut runs = vec![0; decoded.len()];
        for at in (0..decoded.len()).rev() {
            let opcode = self.image[at];
            let ends = decoded[at].handler == NONE
                || matches!(INSTRUCTIONS[usize::from(opcode)].name, "JMP" | "JSR" | "RTS");
            let next = at + usize::from(Code::length(opcode));
            runs[at] = 1 + if ends { 0 } else { runs.get(next).copied().unwrap_or(0) };
        }
        runs.into_iter().max().unwrap_or(0)
    }

    /// The record at image offset `at` for drawing access by access.
    fn watching_record<const S: bool>(&self, decoded: &[Decoded], at: usize) -> Record {
        let Decoded { kind: (opcode, class), handler, operand, extra } = decoded[at];
        let settings = Settings { pairs: false, ..Settings::default() };
        let function = match watch_of(opcode, usize::from(class)) {
            _ if handler == NONE => slow::<S>,
            Watch::Never => self.function::<S>(decoded, at, settings, handler),
            Watch::Stack => watch::<S, { handlers::PLAIN }>,
            Watch::Index => watch::<S, { handlers::INDEX }>,
            Watch::Always => slow::<S>,
        };
        Record { function, operand, extra: u32::from(extra) << 16 }
    }

    /// The target of an instruction at image offset `at` that jumps to RAM.
    fn jump_target(&self, at: usize) -> Option<u32> {
        let &bytes = self.image.get(at..at + 3)?.first_chunk()?;
        ram_code::jump_target(bytes).filter(|_| self.is_plain(at, 3))
    }

    /// The record at image offset `at`.
    fn record<const S: bool>(&self, decoded: &[Decoded], at: usize, settings: Settings) -> Record {
        if let Some(operand) = self.jump_target(at) {
            return Record { function: ram_code::jump::<S>, operand, extra: 0 };
        }
        if let Some(record) = self.clocked_record::<S>(at) {
            return record;
        }
        let Decoded { handler, operand, extra, .. } = decoded[at];
        let function = self.function::<S>(decoded, at, settings, handler);
        Record { function, operand, extra: u32::from(extra) << 16 }
    }

    /// The record at image offset `at` if it is code of a DPC cartridge between its plain ROM and its hotspots. The
    /// number of these instructions in sequence is below `RAM_BYTES`.
    fn clocked_record<const S: bool>(&self, at: usize) -> Option<Record> {
        let opcode = self.image[at];
        let last = at % self.bank + usize::from(Code::length(opcode)) - 1;
        if self.cart.kind != cart::KIND_DPC
            || !dpc_display::CLOCKED.contains(&(at % self.bank))
            || !dpc_display::CLOCKED.contains(&last)
        {
            return None;
        }
        let Decoded { kind: (_, class), handler, operand, extra } = self.decode_bytes(at);
        let function = dpc_display::clocked_function::<S>(opcode, usize::from(class));
        (handler != NONE).then_some(Record { function: function?, operand, extra: u32::from(extra) << 16 })
    }

    fn function<const S: bool>(
        &self,
        decoded: &[Decoded],
        at: usize,
        settings: Settings,
        handler: u16,
    ) -> Handler {
        if handler == NONE {
            return slow::<S>;
        }
        let opcode = self.image[at];
        let length = usize::from(Code::length(opcode));
        let Some(&next) = decoded.get(at + length) else {
            return HANDLERS::<S>::TABLE[usize::from(handler)];
        };
        if settings.skips
            && next.handler != NONE
            && let Some(function) = self.loop_handler::<S>(at, length, handler)
        {
            return function;
        }
        if settings.pairs {
            let found =
                HANDLERS::<S>::PAIRS.binary_search_by_key(&(handler, next.handler), |pair| (pair.0, pair.1));
            if let Ok(place) = found {
                return HANDLERS::<S>::PAIRS[place].2;
            }
        }
        HANDLERS::<S>::TABLE[usize::from(handler)]
    }

    /// The function for a loop of two instructions that waits for the timer or counts.
    fn loop_handler<const S: bool>(&self, at: usize, length: usize, handler: u16) -> Option<Handler> {
        let branch = self.image[at + length];
        let back = self.image[at + length + 1] as i8;
        if isize::from(back) != -(length as isize) - 2 {
            return None;
        }
        const LDA: usize = NUMBER[0xAD][handlers::TIMER] as usize;
        const LDX: usize = NUMBER[0xAE][handlers::TIMER] as usize;
        const LDY: usize = NUMBER[0xAC][handlers::TIMER] as usize;
        const COUNT_X: usize = NUMBER[DEX as usize][handlers::PLAIN] as usize;
        const COUNT_Y: usize = NUMBER[DEY as usize][handlers::PLAIN] as usize;
        Some(match (usize::from(handler), branch) {
            (LDA, BNE) => poll::<S, LDA, true>,
            (LDX, BNE) => poll::<S, LDX, true>,
            (LDY, BNE) => poll::<S, LDY, true>,
            (LDA, BPL) => poll::<S, LDA, false>,
            (LDX, BPL) => poll::<S, LDX, false>,
            (LDY, BPL) => poll::<S, LDY, false>,
            (COUNT_X, BNE) => count::<S, COUNT_X, 0, true>,
            (COUNT_Y, BNE) => count::<S, COUNT_Y, 8, true>,
            (COUNT_X, BPL) => count::<S, COUNT_X, 0, false>,
            (COUNT_Y, BPL) => count::<S, COUNT_Y, 8, false>,
            _ => return None,
        })
    }
}

/// Decodes the instruction with these bytes at `address` in RAM: the index of its function, and operand and extra of its
/// record. `None` if the slow path executes it.
#[inline]
pub(super) fn decode_in_ram(cart: &Cart, address: u32, bytes: [u8; 3]) -> Option<(usize, (u32, u32))> {
    const JMP: u8 = 0x4C;
    const JSR: u8 = 0x20;
    // No constants: the mapped bank is not known here.
    let decoder = Decoder { image: &[], cart, bank: 4096, segmented: true, sound: true };
    let [opcode, low, high] = bytes;
    let (number, low) = (usize::from(opcode), usize::from(low));
    let word = low | usize::from(high) << 8;
    let mut extra = 0;
    let (class, operand) = match INSTRUCTIONS[number].mode {
        Mode::Imp | Mode::Acc | Mode::Imm => (handlers::PLAIN, low),
        Mode::Rel => {
            let distance = low as u8 as i8 as isize;
            let to = (address as usize + 2).wrapping_add_signed(distance);
            if !(0x80..0x100).contains(&to) {
                return None;
            }
            extra = 1 << 16;
            (handlers::PLAIN, (distance * size_of::<Record>() as isize) as usize)
        }
        Mode::Zp => decoder.constant(number, low, low, 0),
        Mode::Abs if opcode == JMP || opcode == JSR => {
            if word & 0x1000 == 0 {
                return None;
            }
            (handlers::PLAIN, word)
        }
        Mode::Abs => decoder.constant(number, word, word, 0),
        Mode::Absx | Mode::Absy | Mode::Ind => (handlers::INDEX, word),
        Mode::Indy if !(0x80..=0xFE).contains(&low) => return None,
        Mode::Indy => (handlers::INDEX, low & 0x7F),
        Mode::Zpx | Mode::Zpy | Mode::Indx => (handlers::INDEX, low),
    };
    let handler = NUMBER[number][class];
    (handler != NONE).then_some((usize::from(handler), (operand as u32, extra)))
}

/// True if an opcode has a function for this operand class.
fn has_handler(opcode: usize, class: usize) -> bool {
    NUMBER[opcode][class] != NONE
}

const _: () = assert!(CLASSES <= 16);
