//! One instruction of PTX.

use super::parse::{Names, Symbol, Token, bits};

/// A type: `u32`, `s64`, `b16`, `f32`, `pred`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    pub bits: u32,
    pub signed: bool,
    pub float: bool,
}

/// An operation on registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    Mov,
    Add,
    Sub,
    /// The lower half of a product.
    Mul,
    /// The upper half of a product.
    MulHigh,
    /// A product of twice the bits.
    MulWide,
    /// The lower half of a product, plus a summand.
    Mad,
    MadWide,
    MadHigh,
    Div,
    Rem,
    Min,
    Max,
    Neg,
    Abs,
    And,
    Or,
    Xor,
    Not,
    Shl,
    Shr,
    /// A field of bits.
    Extract,
    Count,
    LeadingZeros,
    Reverse,
    Select,
    /// A choice of four bytes.
    Bytes,
    /// Two words shifted left as one; the upper half.
    Funnel,
    FunnelRight,
    Set(Compare),
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// At least one operand is not a number.
    Unordered,
}

/// A state space of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    Generic,
    Shared,
    Local,
    Global,
    /// Arguments of the function.
    Given,
    /// Arguments and results of functions that it calls.
    Passed,
    /// Results of the function.
    Results,
}

/// An address: a register (or none) plus an offset.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub space: Space,
    pub register: Option<u32>,
    pub offset: i64,
}

/// An address that an instruction puts into a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of the function's local memory.
    Local,
    /// Of an argument of the function.
    Given,
    Global,
}

/// A number of the running thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Thread,
    Block,
    BlockThreads,
    Blocks,
    /// Numbers of the multiprocessor and of the warp, and the clock.
    Zero,
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    Add,
    Or,
    And,
    Max,
}

/// What an instruction does. Registers and constants are numbers (`parse::CONSTANT`).
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Alu(Alu, Type, [u32; 4]),
    /// `cvt`: from, to, whether a float is rounded towards zero.
    Convert(Type, Type, bool, [u32; 2]),
    /// `bfi`: bits of the type; register, field, around it, its place, its length.
    Insert(u32, [u32; 5]),
    /// Products of four bytes, summed.
    Dot([u32; 4]),
    /// Any function of three bits, by a table of eight.
    Logic([u32; 5]),
    /// Products of two halves, with a sign or not, and two bytes, summed.
    DotOfHalves(bool, [u32; 4]),
    /// One register from several: their number, they, the register.
    Pack(u32, [u32; 4], u32),
    /// Several registers from one.
    Unpack(u32, [u32; 4], u32),
    Load(Type, Address, u32, [u32; 4]),
    Store(Type, Address, u32, [u32; 4]),
    Atomic(Atomic, Address, [u32; 2]),
    Place(Place, u32, i64),
    Special(Special, u32),
    /// From an address of shared memory to a generic one, and back.
    SharedToGeneric([u32; 2]),
    GenericToShared([u32; 2]),
    Branch,
    BranchTable(u32, u32),
    Call(u32),
    Return,
    Barrier,
    Fence,
    ActiveMask(u32),
    MinimumOfLanes([u32; 3]),
    AnyOfLanes([u32; 3]),
}

/// What kind of work an instruction is, for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing in machine code, or a copy that the compiler mostly avoids: `mov`, `cvta`, arguments in registers.
    Free,
    Arithmetic,
    Control,
    Local,
    Shared,
    Global,
    /// Waits of lanes and threads, and their votes.
    Sync,
}

/// Number of kinds.
pub const KINDS: usize = 7;

/// An instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub op: Op,
    pub kind: Kind,
    /// Predicate register, and whether it is negated.
    pub guard: Option<(u32, bool)>,
    /// Of a branch: number of an instruction.
    pub target: u32,
    pub line: u32,
    /// Bits of the destination register.
    pub width: u32,
}

fn kind_of_type(name: &str) -> Result<Type, String> {
    let bits = bits(name).ok_or_else(|| format!("type {name}"))?;
    Ok(Type { bits, signed: name.starts_with('s'), float: name.starts_with('f') })
}

/// The operands of an instruction, from left to right.
struct Operands<'a, 'b> {
    tokens: &'a [Token],
    at: usize,
    names: &'a mut Names<'b>,
    width: u32,
}

impl Operands<'_, '_> {
    fn is(&mut self, mark: char) -> bool {
        let found = self.tokens.get(self.at) == Some(&Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        if self.is(mark) { Ok(()) } else { Err(format!("expected {mark} at {:?}", self.tokens.get(self.at))) }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => {
                self.at += 1;
                self.is(',');
                Ok(word.clone())
            }
            other => Err(format!("operand {other:?}")),
        }
    }

    /// A register that is written.
    fn destination(&mut self) -> Result<u32, String> {
        let name = self.word()?;
        let (register, width) = self.names.register(&name).ok_or_else(|| format!("register {name}"))?;
        self.width = width;
        Ok(register)
    }

    /// A register or a constant that is read.
    fn source(&mut self) -> Result<u32, String> {
        if let Some(Token::Number(value)) = self.tokens.get(self.at) {
            let value = *value;
            self.at += 1;
            self.is(',');
            return Ok(self.names.constant(value));
        }
        let name = self.word()?;
        if let Some((register, _)) = self.names.register(&name) {
            return Ok(register);
        }
        match self.names.symbols.get(&name) {
            Some(Symbol::Shared(at)) => {
                let at = u64::from(*at);
                Ok(self.names.constant(at))
            }
            _ => Err(format!("operand {name}")),
        }
    }

    /// One register, or several in braces.
    fn list(&mut self, written: bool) -> Result<(u32, [u32; 4]), String> {
        let mut list = [0; 4];
        if !self.is('{') {
            list[0] = if written { self.destination()? } else { self.source()? };
            return Ok((1, list));
        }
        let mut count = 0;
        while !self.is('}') {
            list[count] = if written { self.destination()? } else { self.source()? };
            count += 1;
        }
        self.is(',');
        Ok((count as u32, list))
    }

    fn address(&mut self, space: Space) -> Result<Address, String> {
        self.expect('[')?;
        let Some(Token::Word(name)) = self.tokens.get(self.at) else {
            return Err("an address without a name".into());
        };
        let name = name.clone();
        self.at += 1;
        let mut offset = 0;
        self.is('+');
        if let Some(Token::Number(value)) = self.tokens.get(self.at) {
            offset = *value as i64;
            self.at += 1;
        }
        self.expect(']')?;
        self.is(',');
        if let Some((register, _)) = self.names.register(&name) {
            return Ok(Address { space, register: Some(register), offset });
        }
        let (space, at) = if let Some(slot) = self.names.argument(&name) {
            (Space::Passed, i64::from(slot.at))
        } else if let Some(slot) = self.names.parameters.get(&name) {
            (Space::Given, i64::from(slot.at))
        } else if let Some(slot) = self.names.results.get(&name) {
            (Space::Results, i64::from(slot.at))
        } else {
            match self.names.symbols.get(&name) {
                Some(Symbol::Shared(at)) => (Space::Shared, i64::from(*at)),
                Some(Symbol::Global(at)) => (Space::Global, i64::from(*at)),
                None => return Err(format!("symbol {name}")),
            }
        };
        Ok(Address { space, register: None, offset: offset + at })
    }
}

fn compare(name: &str) -> Result<Compare, String> {
    Ok(match name {
        "eq" => Compare::Equal,
        "ne" | "neu" => Compare::Unequal,
        "lt" | "lo" | "ltu" => Compare::Less,
        "le" | "ls" | "leu" => Compare::LessEqual,
        "gt" | "hi" | "gtu" => Compare::Greater,
        "ge" | "hs" | "geu" => Compare::GreaterEqual,
        "nan" => Compare::Unordered,
        other => return Err(format!("comparison {other}")),
    })
}

/// Decodes one instruction.
///
/// # Errors
/// What is not supported.
pub fn decode(word: &str, tokens: &[Token], names: &mut Names<'_>) -> Result<Instruction, String> {
    let parts: Vec<&str> = word.split('.').collect();
    let last = *parts.last().unwrap_or(&"");
    let mut o = Operands { tokens, at: 0, names, width: 0 };
    let (op, kind) = match parts[0] {
        "mov" => mov(last, &mut o)?,
        "cvta" => cvta(&parts, &mut o)?,
        "ld" | "st" => transfer(&parts, &mut o)?,
        "cvt" => {
            let (to, from) = (kind_of_type(parts[parts.len() - 2])?, kind_of_type(last)?);
            let op = Op::Convert(from, to, parts.contains(&"rzi"), [o.destination()?, o.source()?]);
            (op, Kind::Arithmetic)
        }
        "bfi" => {
            let bits = kind_of_type(last)?.bits;
            let all = [o.destination()?, o.source()?, o.source()?, o.source()?, o.source()?];
            (Op::Insert(bits, all), Kind::Arithmetic)
        }
        "lop3" if word == "lop3.b32" => {
            let all = [o.destination()?, o.source()?, o.source()?, o.source()?, o.source()?];
            (Op::Logic(all), Kind::Arithmetic)
        }
        "dp2a" if word == "dp2a.lo.s32.u32" || word == "dp2a.lo.u32.u32" => {
            let all = [o.destination()?, o.source()?, o.source()?, o.source()?];
            (Op::DotOfHalves(word == "dp2a.lo.s32.u32", all), Kind::Arithmetic)
        }
        "dp4a" => {
            if word != "dp4a.u32.u32" {
                return Err(word.into());
            }
            (Op::Dot([o.destination()?, o.source()?, o.source()?, o.source()?]), Kind::Arithmetic)
        }
        "bra" => (Op::Branch, Kind::Control),
        "brx" => {
            let index = o.source()?;
            let table = o.word()?;
            let table = *o.names.tables.get(&table).ok_or_else(|| format!("table {table}"))?;
            (Op::BranchTable(index, table), Kind::Control)
        }
        "call" => (Op::Call(callee(&mut o)?), Kind::Control),
        "ret" | "exit" => (Op::Return, Kind::Control),
        "bar" if word.starts_with("bar.warp") => {
            o.source()?;
            (Op::Fence, Kind::Sync)
        }
        "bar" => (Op::Barrier, Kind::Sync),
        "nanosleep" => {
            o.source()?;
            (Op::Fence, Kind::Sync)
        }
        "membar" | "fence" => (Op::Fence, Kind::Sync),
        "activemask" => (Op::ActiveMask(o.destination()?), Kind::Sync),
        "redux" if word == "redux.sync.min.u32" => {
            (Op::MinimumOfLanes([o.destination()?, o.source()?, o.source()?]), Kind::Sync)
        }
        "vote" if word == "vote.sync.any.pred" => {
            (Op::AnyOfLanes([o.destination()?, o.source()?, o.source()?]), Kind::Sync)
        }
        "atom" => {
            let atomic = match parts[parts.len() - 2] {
                "add" => Atomic::Add,
                "or" => Atomic::Or,
                "and" => Atomic::And,
                "max" => Atomic::Max,
                _ => return Err(word.into()),
            };
            if kind_of_type(last)?.bits != 32 || last == "s32" {
                return Err(word.into());
            }
            let register = o.destination()?;
            let shared = parts.contains(&"shared");
            let address = o.address(if shared { Space::Shared } else { Space::Generic })?;
            let kind = if shared { Kind::Shared } else { Kind::Global };
            (Op::Atomic(atomic, address, [register, o.source()?]), kind)
        }
        _ => (arithmetic(&parts, last, &mut o)?, Kind::Arithmetic),
    };
    let whole = o.at == tokens.len() || matches!(op, Op::Call(_) | Op::Branch | Op::Barrier);
    let width = o.width;
    if !whole {
        return Err(format!("{word}: operands are left"));
    }
    Ok(Instruction { op, kind, guard: None, target: 0, line: 0, width })
}

fn mov(last: &str, o: &mut Operands<'_, '_>) -> Result<(Op, Kind), String> {
    let kind = kind_of_type(last)?;
    if o.tokens.first() == Some(&Token::Mark('{')) {
        let (count, list) = o.list(true)?;
        return Ok((Op::Unpack(count, list, o.source()?), Kind::Arithmetic));
    }
    let register = o.destination()?;
    if o.tokens.get(o.at) == Some(&Token::Mark('{')) {
        let width = o.width;
        let (count, list) = o.list(false)?;
        o.width = width;
        return Ok((Op::Pack(count, list, register), Kind::Arithmetic));
    }
    if let Some(Token::Word(name)) = o.tokens.get(o.at) {
        let name = name.clone();
        let special = match name.as_str() {
            "%tid.x" => Some(Special::Thread),
            "%ctaid.x" => Some(Special::Block),
            "%ntid.x" => Some(Special::BlockThreads),
            "%nctaid.x" => Some(Special::Blocks),
            "%smid" | "%warpid" | "%clock64" => Some(Special::Zero),
            _ => None,
        };
        let place = if name == o.names.depot {
            Some((Place::Local, 0))
        } else if let Some(slot) = o.names.parameters.get(&name) {
            Some((Place::Given, i64::from(slot.at)))
        } else if let Some(Symbol::Global(at)) = o.names.symbols.get(&name) {
            Some((Place::Global, i64::from(*at)))
        } else {
            None
        };
        if special.is_some() || place.is_some() {
            o.at += 1;
        }
        if let Some(special) = special {
            return Ok((Op::Special(special, register), Kind::Arithmetic));
        }
        if let Some((place, at)) = place {
            return Ok((Op::Place(place, register, at), Kind::Free));
        }
    }
    Ok((Op::Alu(Alu::Mov, kind, [register, o.source()?, 0, 0]), Kind::Free))
}

fn cvta(parts: &[&str], o: &mut Operands<'_, '_>) -> Result<(Op, Kind), String> {
    let all = [o.destination()?, o.source()?];
    let to = parts.contains(&"to");
    if parts.contains(&"shared") {
        return Ok((if to { Op::GenericToShared(all) } else { Op::SharedToGeneric(all) }, Kind::Arithmetic));
    }
    // Addresses of local and global memory are generic ones here.
    let wide = Type { bits: 64, signed: false, float: false };
    Ok((Op::Alu(Alu::Mov, wide, [all[0], all[1], 0, 0]), Kind::Free))
}

fn transfer(parts: &[&str], o: &mut Operands<'_, '_>) -> Result<(Op, Kind), String> {
    let (mut space, mut kind) = (Space::Generic, Kind::Global);
    for part in &parts[1..parts.len() - 1] {
        match *part {
            "shared" => (space, kind) = (Space::Shared, Kind::Shared),
            "local" => (space, kind) = (Space::Local, Kind::Local),
            "param" => kind = Kind::Free,
            "global" | "const" | "volatile" | "nc" | "v2" | "v4" => {}
            other => return Err(format!("{other} of a transfer")),
        }
    }
    let of = kind_of_type(parts[parts.len() - 1])?;
    if parts[0] == "ld" {
        let (count, list) = o.list(true)?;
        let address = o.address(space)?;
        return Ok((Op::Load(of, address, count, list), kind));
    }
    let address = o.address(space)?;
    let (count, list) = o.list(false)?;
    Ok((Op::Store(of, address, count, list), kind))
}

/// The function that is called: `(retval0), name, (param0, param1)`, in any of the shorter forms.
fn callee(o: &mut Operands<'_, '_>) -> Result<u32, String> {
    if o.is('(') {
        while !o.is(')') {
            o.at += 1;
        }
        o.is(',');
    }
    let name = o.word()?;
    o.names.functions.get(&name).map(|&number| number as u32).ok_or_else(|| format!("function {name}"))
}

fn arithmetic(parts: &[&str], last: &str, o: &mut Operands<'_, '_>) -> Result<Op, String> {
    let of = kind_of_type(last)?;
    let alu = match parts[0] {
        "add" => Alu::Add,
        "sub" => Alu::Sub,
        "mul" if parts.contains(&"wide") => Alu::MulWide,
        "mul" if parts.contains(&"hi") => Alu::MulHigh,
        "mul" => Alu::Mul,
        "mad" if parts.contains(&"lo") => Alu::Mad,
        "mad" if parts.contains(&"hi") => Alu::MadHigh,
        "mad" if parts.contains(&"wide") => Alu::MadWide,
        "div" => Alu::Div,
        "rem" => Alu::Rem,
        "min" => Alu::Min,
        "max" => Alu::Max,
        "neg" => Alu::Neg,
        "abs" => Alu::Abs,
        "and" => Alu::And,
        "or" => Alu::Or,
        "xor" => Alu::Xor,
        "not" => Alu::Not,
        "shl" => Alu::Shl,
        "shr" => Alu::Shr,
        "bfe" => Alu::Extract,
        "popc" => Alu::Count,
        "clz" => Alu::LeadingZeros,
        "brev" => Alu::Reverse,
        "selp" => Alu::Select,
        "prmt" => Alu::Bytes,
        "shf" if parts[1..3] == ["l", "wrap"] => Alu::Funnel,
        "shf" if parts[1..3] == ["r", "wrap"] => Alu::FunnelRight,
        "setp" => Alu::Set(compare(parts[1])?),
        other => return Err(other.into()),
    };
    let mut all = [o.destination()?, o.source()?, 0, 0];
    for place in &mut all[2..] {
        if o.at < o.tokens.len() {
            *place = o.source()?;
        }
    }
    Ok(Op::Alu(alu, of, all))
}
