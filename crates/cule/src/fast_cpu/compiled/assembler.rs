//! Encodes the few x86-64 instructions that compiled code needs.
//!
//! Registers are those of the chain's arguments in the System V calling convention, and those that a function may
//! change without saving them.

/// A general register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reg {
    Ax = 0,
    Cx = 1,
    Dx = 2,
    Si = 6,
    Di = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
}

/// An operation of two operands, by its opcode for a register as source.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Alu {
    Add = 0x01,
    Or = 0x09,
    And = 0x21,
    Sub = 0x29,
    Xor = 0x31,
    Cmp = 0x39,
}

/// A condition of a jump, by the low bits of its opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum If {
    Below = 2,
    AtLeast = 3,
    Zero = 4,
    NotZero = 5,
}

impl If {
    /// The opposite condition.
    pub fn not(self) -> Self {
        match self {
            If::Below => If::AtLeast,
            If::AtLeast => If::Below,
            If::Zero => If::NotZero,
            If::NotZero => If::Zero,
        }
    }
}

/// A position in the code, which may be known later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(u32);

/// Machine code, and the jumps in it whose targets are not known yet.
#[derive(Default)]
pub struct Assembler {
    pub code: Vec<u8>,
    labels: Vec<Option<u32>>,
    /// Position of a distance of four bytes, and the label that it leads to.
    jumps: Vec<(u32, Label)>,
}

impl Assembler {
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() as u32 - 1)
    }

    /// Sets a label to the end of the code.
    pub fn bind(&mut self, label: Label) {
        debug_assert!(self.labels[label.0 as usize].is_none(), "a label is at one position");
        self.labels[label.0 as usize] = Some(self.code.len() as u32);
    }

    /// The position of a label, if it is known.
    pub fn position(&self, label: Label) -> Option<u32> {
        self.labels[label.0 as usize]
    }

    /// Inserts the distances of all jumps. Every label must have been set.
    pub fn link(&mut self) {
        for (at, label) in std::mem::take(&mut self.jumps) {
            let target = self.labels[label.0 as usize].expect("all labels are set");
            let distance = target.wrapping_sub(at + 4);
            self.code[at as usize..at as usize + 4].copy_from_slice(&distance.to_le_bytes());
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// The prefix for registers above 7 and operands of 64 bits, if one is needed.
    fn rex(&mut self, wide: bool, reg: u8, index: u8, base: u8, byte_registers: bool) {
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | (index >> 3) << 1 | base >> 3;
        if rex != 0x40 || byte_registers {
            self.bytes(&[rex]);
        }
    }

    /// An instruction on two registers: `rm` is the destination of most.
    fn registers(&mut self, wide: bool, opcode: &[u8], reg: u8, rm: u8) {
        self.rex(wide, reg, 0, rm, false);
        self.bytes(opcode);
        self.bytes(&[0xC0 | (reg & 7) << 3 | rm & 7]);
    }

    /// An instruction on a register and the memory at `base + offset`.
    fn memory(&mut self, prefix: &[u8], wide: bool, opcode: &[u8], reg: u8, base: Reg, offset: u32) {
        self.bytes(prefix);
        self.rex(wide, reg, 0, base as u8, false);
        self.bytes(opcode);
        self.bytes(&[0x80 | (reg & 7) << 3 | base as u8 & 7]);
        self.u32(offset);
    }

    /// An instruction on a register and the memory at `base + index + offset`.
    fn indexed(&mut self, prefix: &[u8], opcode: &[u8], reg: u8, (base, index): (Reg, Reg), offset: u32) {
        self.bytes(prefix);
        // A byte of SI or DI needs a prefix; it changes nothing otherwise.
        self.rex(false, reg, index as u8, base as u8, reg >= 4);
        self.bytes(opcode);
        self.bytes(&[0x84 | (reg & 7) << 3, (index as u8 & 7) << 3 | base as u8 & 7]);
        self.u32(offset);
    }

    pub fn mov(&mut self, to: Reg, from: Reg) {
        if to != from {
            self.registers(false, &[0x89], from as u8, to as u8);
        }
    }

    pub fn mov_number(&mut self, to: Reg, value: u32) {
        self.rex(false, 0, 0, to as u8, false);
        self.bytes(&[0xB8 | to as u8 & 7]);
        self.u32(value);
    }

    pub fn mov_address(&mut self, to: Reg, value: u64) {
        self.rex(true, 0, 0, to as u8, false);
        self.bytes(&[0xB8 | to as u8 & 7]);
        self.bytes(&value.to_le_bytes());
    }

    pub fn alu(&mut self, operation: Alu, to: Reg, from: Reg) {
        self.registers(false, &[operation as u8], from as u8, to as u8);
    }

    pub fn alu_wide(&mut self, operation: Alu, to: Reg, from: Reg) {
        self.registers(true, &[operation as u8], from as u8, to as u8);
    }

    fn number(&mut self, wide: bool, operation: Alu, to: Reg, value: u32) {
        self.rex(wide, 0, 0, to as u8, false);
        let register = 0xC0 | operation as u8 & 0x38 | to as u8 & 7;
        if let Ok(short) = i8::try_from(value as i32) {
            self.bytes(&[0x83, register, short as u8]);
        } else {
            self.bytes(&[0x81, register]);
            self.u32(value);
        }
    }

    pub fn alu_number(&mut self, operation: Alu, to: Reg, value: u32) {
        self.number(false, operation, to, value);
    }

    /// On 64 bits; the number is extended with its sign.
    pub fn alu_number_wide(&mut self, operation: Alu, to: Reg, value: i32) {
        self.number(true, operation, to, value as u32);
    }

    pub fn test_number(&mut self, register: Reg, value: u32) {
        self.rex(false, 0, 0, register as u8, false);
        self.bytes(&[0xF7, 0xC0 | register as u8 & 7]);
        self.u32(value);
    }

    pub fn shl(&mut self, register: Reg, by: u8) {
        self.shift(false, 0xE0, register, by);
    }

    pub fn shr(&mut self, register: Reg, by: u8) {
        self.shift(false, 0xE8, register, by);
    }

    pub fn shl_wide(&mut self, register: Reg, by: u8) {
        self.shift(true, 0xE0, register, by);
    }

    pub fn shr_wide(&mut self, register: Reg, by: u8) {
        self.shift(true, 0xE8, register, by);
    }

    fn shift(&mut self, wide: bool, operation: u8, register: Reg, by: u8) {
        self.rex(wide, 0, 0, register as u8, false);
        self.bytes(&[0xC1, operation | register as u8 & 7, by]);
    }

    pub fn mov_wide(&mut self, to: Reg, from: Reg) {
        self.registers(true, &[0x89], from as u8, to as u8);
    }

    /// `to = from * value` on 64 bits, for a value below 2^31.
    pub fn multiply(&mut self, to: Reg, from: Reg, value: i32) {
        self.registers(true, &[0x69], to as u8, from as u8);
        self.u32(value as u32);
    }

    /// `to = from + number` on 32 bits.
    pub fn add_to(&mut self, to: Reg, from: Reg, number: u32) {
        self.rex(false, to as u8, 0, from as u8, false);
        self.bytes(&[0x8D, 0x80 | (to as u8 & 7) << 3 | from as u8 & 7]);
        self.u32(number);
    }

    /// Bits 7-0 of a register, without its other bits.
    pub fn low_byte(&mut self, to: Reg, from: Reg) {
        self.rex(false, to as u8, 0, from as u8, from as u8 >= 4);
        self.bytes(&[0x0F, 0xB6, 0xC0 | (to as u8 & 7) << 3 | from as u8 & 7]);
    }

    /// Bits 15-8 of DX; `to` is AX or SI.
    pub fn second_byte_of_dx(&mut self, to: Reg) {
        debug_assert!((to as u8) < 8);
        self.bytes(&[0x0F, 0xB6, 0xC6 | (to as u8) << 3]);
    }

    pub fn low_word(&mut self, to: Reg, from: Reg) {
        self.registers(false, &[0x0F, 0xB7], to as u8, from as u8);
    }

    /// Sets bits 7-0 of DX to those of AX.
    pub fn set_low_byte_of_dx(&mut self) {
        self.bytes(&[0x88, 0xC2]);
    }

    /// Sets bits 15-8 of DX to bits 7-0 of AX.
    pub fn set_second_byte_of_dx(&mut self) {
        self.bytes(&[0x88, 0xC6]);
    }

    /// Adds 1 or -1 to bits 7-0 (`second` = false) or 15-8 of DX, modulo 256.
    pub fn step_byte_of_dx(&mut self, second: bool, up: bool) {
        self.bytes(&[0xFE, 0xC2 | u8::from(second) << 2 | u8::from(!up) << 3]);
    }

    pub fn load_byte(&mut self, to: Reg, base: Reg, offset: u32) {
        self.memory(&[], false, &[0x0F, 0xB6], to as u8, base, offset);
    }

    pub fn load_word(&mut self, to: Reg, base: Reg, offset: u32) {
        self.memory(&[], false, &[0x0F, 0xB7], to as u8, base, offset);
    }

    pub fn load(&mut self, to: Reg, base: Reg, offset: u32) {
        self.memory(&[], false, &[0x8B], to as u8, base, offset);
    }

    pub fn load_wide(&mut self, to: Reg, base: Reg, offset: u32) {
        self.memory(&[], true, &[0x8B], to as u8, base, offset);
    }

    pub fn load_byte_at(&mut self, to: Reg, place: (Reg, Reg), offset: u32) {
        self.indexed(&[], &[0x0F, 0xB6], to as u8, place, offset);
    }

    pub fn load_word_at(&mut self, to: Reg, place: (Reg, Reg), offset: u32) {
        self.indexed(&[], &[0x0F, 0xB7], to as u8, place, offset);
    }

    pub fn store_byte(&mut self, from: Reg, base: Reg, offset: u32) {
        self.rex(false, from as u8, 0, base as u8, from as u8 >= 4);
        self.bytes(&[0x88, 0x80 | (from as u8 & 7) << 3 | base as u8 & 7]);
        self.u32(offset);
    }

    pub fn store_byte_at(&mut self, from: Reg, place: (Reg, Reg), offset: u32) {
        self.indexed(&[], &[0x88], from as u8, place, offset);
    }

    pub fn store_word_at(&mut self, from: Reg, place: (Reg, Reg), offset: u32) {
        self.indexed(&[0x66], &[0x89], from as u8, place, offset);
    }

    pub fn store_number(&mut self, value: u32, base: Reg, offset: u32) {
        self.memory(&[], false, &[0xC7], 0, base, offset);
        self.u32(value);
    }

    pub fn store_byte_number(&mut self, value: u8, base: Reg, offset: u32) {
        self.memory(&[], false, &[0xC6], 0, base, offset);
        self.bytes(&[value]);
    }

    /// Compares a word in memory with a register.
    pub fn compare_word(&mut self, base: Reg, offset: u32, with: Reg) {
        self.memory(&[0x66], false, &[0x39], with as u8, base, offset);
    }

    pub fn compare_byte_number(&mut self, base: Reg, offset: u32, value: u8) {
        self.memory(&[], false, &[0x80], 7, base, offset);
        self.bytes(&[value]);
    }

    pub fn compare_wide(&mut self, register: Reg, base: Reg, offset: u32) {
        self.memory(&[], true, &[0x3B], register as u8, base, offset);
    }

    pub fn compare(&mut self, register: Reg, base: Reg, offset: u32) {
        self.memory(&[], false, &[0x3B], register as u8, base, offset);
    }

    pub fn subtract(&mut self, register: Reg, base: Reg, offset: u32) {
        self.memory(&[], false, &[0x2B], register as u8, base, offset);
    }

    pub fn jump_if(&mut self, condition: If, label: Label) {
        self.bytes(&[0x0F, 0x80 | condition as u8]);
        self.distance(label);
    }

    pub fn jump(&mut self, label: Label) {
        self.bytes(&[0xE9]);
        self.distance(label);
    }

    pub fn call(&mut self, label: Label) {
        self.bytes(&[0xE8]);
        self.distance(label);
    }

    pub fn ret(&mut self) {
        self.bytes(&[0xC3]);
    }

    /// Adds a number to the stack pointer.
    pub fn move_stack(&mut self, by: i8) {
        self.bytes(&[0x48, 0x83, 0xC4, by as u8]);
    }

    fn distance(&mut self, label: Label) {
        self.jumps.push((self.code.len() as u32, label));
        self.u32(0);
    }

    /// Calls the function at an address. Changes AX.
    pub fn call_to(&mut self, address: u64) {
        self.mov_address(Reg::Ax, address);
        self.bytes(&[0xFF, 0xD0]);
    }

    /// Jumps to the function at an address. Changes AX.
    pub fn jump_to(&mut self, address: u64) {
        self.mov_address(Reg::Ax, address);
        self.bytes(&[0xFF, 0xE0]);
    }
}
