//! The text of a PTX file as functions of instructions.

use std::collections::HashMap;

use super::decode::{self, Instruction};
use super::flow;

/// A token of the text, with its line.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A word: a mnemonic with its modifiers, a directive, a register, a symbol.
    Word(String),
    /// A number, as the bits of an integer of 64 bits or of a float.
    Number(u64),
    /// Any other character.
    Mark(char),
}

/// A parameter or a result of a function: its place in the area of arguments.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub at: u32,
    pub bytes: u32,
}

/// One function or kernel.
pub struct Function {
    /// Its name, without the compiler's prefix of the file.
    pub name: String,
    pub is_kernel: bool,
    pub code: Vec<Instruction>,
    /// Number of registers, of any type.
    pub registers: usize,
    /// Bytes of a lane's local memory.
    pub local_bytes: usize,
    pub parameters: Vec<Slot>,
    /// Tables of indirect branches: indices of instructions.
    pub tables: Vec<Vec<u32>>,
    /// For each instruction, where lanes that it separates meet again; `flow::EXIT` if only at the end of the function.
    pub meets: Vec<u32>,
}

/// A PTX file.
pub struct Module {
    pub functions: Vec<Function>,
    /// Global and constant data; aligned to 8 bytes.
    pub data: Vec<u64>,
    pub shared_bytes: usize,
    /// Values of the immediate operands, which follow the registers.
    pub constants: Vec<u64>,
}

/// Where a symbol's data begins.
#[derive(Clone, Copy, Debug)]
pub enum Symbol {
    Global(u32),
    Shared(u32),
}

/// Where the results of a function that is called are in the area of arguments.
pub const RESULT_AT: u32 = 0;
/// Where its arguments begin.
pub const ARGUMENTS_AT: u32 = 64;

/// What the decoder needs to know of the file and of the function.
pub struct Names<'a> {
    pub symbols: &'a HashMap<String, Symbol>,
    pub functions: &'a HashMap<String, usize>,
    pub constants: &'a mut Vec<u64>,
    constant_of: &'a mut HashMap<u64, u32>,
    /// Registers of the open scopes, innermost last: number and bits.
    registers: Vec<HashMap<String, (u32, u32)>>,
    /// Arguments of calls in the open scopes.
    arguments: Vec<HashMap<String, Slot>>,
    pub parameters: HashMap<String, Slot>,
    pub results: HashMap<String, Slot>,
    pub depot: String,
    pub tables: HashMap<String, u32>,
    next_argument: u32,
}

/// Marks an operand as a constant.
pub const CONSTANT: u32 = 1 << 31;

impl Names<'_> {
    pub fn register(&self, name: &str) -> Option<(u32, u32)> {
        self.registers.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    pub fn argument(&self, name: &str) -> Option<Slot> {
        self.arguments.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    pub fn constant(&mut self, value: u64) -> u32 {
        let constants = &mut *self.constants;
        CONSTANT
            | *self.constant_of.entry(value).or_insert_with(|| {
                constants.push(value);
                constants.len() as u32 - 1
            })
    }
}

/// Splits the text into tokens, without comments.
fn tokens(text: &str) -> Result<Vec<(Token, u32)>, String> {
    let bytes = text.as_bytes();
    let (mut at, mut line) = (0, 1);
    let mut found = vec![];
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_$%.".contains(&byte);
    while at < bytes.len() {
        let byte = bytes[at];
        let begin = at;
        if byte == b'\n' {
            line += 1;
            at += 1;
        } else if byte.is_ascii_whitespace() || byte == 0 {
            at += 1;
        } else if bytes[at..].starts_with(b"//") {
            while at < bytes.len() && bytes[at] != b'\n' {
                at += 1;
            }
        } else if byte == b'"' {
            at += 1;
            while bytes[at] != b'"' {
                at += 1;
            }
            at += 1;
            found.push((Token::Word("\"\"".into()), line));
        } else if byte.is_ascii_digit() || byte == b'-' && bytes[at + 1].is_ascii_digit() {
            at += 1;
            while at < bytes.len() && word(bytes[at]) {
                at += 1;
            }
            // `.version 9.2` is the only number with a point.
            let token =
                number(&text[begin..at]).map_or_else(|| Token::Word(text[begin..at].into()), Token::Number);
            found.push((token, line));
        } else if word(byte) {
            while at < bytes.len() && word(bytes[at]) {
                at += 1;
            }
            found.push((Token::Word(text[begin..at].into()), line));
        } else {
            at += 1;
            found.push((Token::Mark(byte as char), line));
        }
    }
    Ok(found)
}

fn number(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0d").or_else(|| text.strip_prefix("0f")) {
        return u64::from_str_radix(digits, 16).ok();
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits.trim_end_matches('U'), 16).ok();
    }
    text.parse::<i64>().map(|value| value as u64).or_else(|_| text.trim_end_matches('U').parse()).ok()
}

/// Bits of a type: `u8` or `.b32`; 1 for `pred`.
pub fn bits(name: &str) -> Option<u32> {
    let name = name.trim_start_matches('.');
    if name == "pred" {
        return Some(1);
    }
    name.get(1..)?.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))
}

/// A variable, a parameter or a result; sizes in bytes.
struct Variable {
    align: u32,
    element: u32,
    bytes: u32,
    name: String,
}

struct Parser {
    tokens: Vec<(Token, u32)>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|token| &token.0)
    }

    fn next(&mut self) -> Result<Token, String> {
        let token = self.tokens.get(self.at).ok_or("the text ends too early")?;
        self.at += 1;
        Ok(token.0.clone())
    }

    fn line(&self) -> u32 {
        self.tokens[self.at.min(self.tokens.len() - 1)].1
    }

    fn error<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("line {}: {what}", self.line()))
    }

    fn word(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            other => self.error(&format!("expected a word, found {other:?}")),
        }
    }

    fn number(&mut self) -> Result<u64, String> {
        match self.next()? {
            Token::Number(number) => Ok(number),
            other => self.error(&format!("expected a number, found {other:?}")),
        }
    }

    fn is(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        if self.is(mark) { Ok(()) } else { self.error(&format!("expected {mark}, found {:?}", self.peek())) }
    }

    /// `.align 4 .b8 name[16]`, after the state space.
    fn variable(&mut self) -> Result<Variable, String> {
        let mut align = None;
        let mut kind = self.word()?;
        if kind == ".align" {
            align = Some(self.number()? as u32);
            kind = self.word()?;
        }
        let Some(bits) = bits(&kind) else { return self.error(&format!("type {kind}")) };
        let name = self.word()?;
        let element = bits / 8;
        let mut bytes = element;
        if self.is('[') {
            bytes *= self.number()? as u32;
            self.expect(']')?;
        }
        Ok(Variable { align: align.unwrap_or(element), element, bytes, name })
    }

    /// Appends the initial value of a variable, if it has one, whose elements have `element` bytes.
    fn data(&mut self, data: &mut Vec<u8>, element: usize) -> Result<(), String> {
        if !self.is('=') {
            return Ok(());
        }
        let mut values = vec![];
        if self.is('{') {
            while !self.is('}') {
                values.push(self.number()?);
                self.is(',');
            }
        } else {
            values.push(self.number()?);
        }
        for value in values {
            data.extend_from_slice(&value.to_le_bytes()[..element]);
        }
        Ok(())
    }
}

/// The C++ name of a function, without its types.
fn shown(name: &str) -> String {
    let demangled = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    let whole = demangled.unwrap_or_else(|| name.to_string());
    // The first component is the file; the result's type may stand before it.
    let file = whole.find("_INTERNAL").and_then(|at| Some(at + whole[at..].find("::")? + 2));
    let path = &whole[file.unwrap_or(0)..];
    path.split(['<', '(']).next().unwrap_or(path).to_string()
}

/// Parses a PTX file.
///
/// # Errors
/// A message with the line of what is not supported.
pub fn parse(text: &str) -> Result<Module, String> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let mut symbols = HashMap::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut functions: Vec<Option<Function>> = vec![];
    let (mut data, mut shared_bytes): (Vec<u8>, u32) = (vec![], 0);
    let (mut constants, mut constant_of) = (vec![], HashMap::new());
    while parser.peek().is_some() {
        let word = parser.word()?;
        match word.as_str() {
            ".version" | ".target" | ".address_size" => {
                parser.next()?;
            }
            ".visible" | ".weak" | ".extern" => {}
            ".global" | ".const" | ".shared" => {
                let Variable { align, element, bytes, name } = parser.variable()?;
                if word == ".shared" {
                    shared_bytes = shared_bytes.next_multiple_of(align.max(8));
                    symbols.insert(name, Symbol::Shared(shared_bytes));
                    shared_bytes += bytes;
                } else {
                    data.resize(data.len().next_multiple_of(align.max(8) as usize), 0);
                    let begin = data.len();
                    symbols.insert(name, Symbol::Global(begin as u32));
                    parser.data(&mut data, element as usize)?;
                    data.resize(begin + bytes as usize, 0);
                }
                parser.expect(';')?;
            }
            ".func" | ".entry" => {
                let function = parser.function(
                    word == ".entry",
                    &symbols,
                    &mut numbers,
                    &mut constants,
                    &mut constant_of,
                )?;
                functions.resize_with(numbers.len(), || None);
                if let (number, Some(function)) = function {
                    functions[number] = Some(function);
                }
            }
            other => return parser.error(other),
        }
    }
    data.resize(data.len().next_multiple_of(8), 0);
    let functions = functions
        .into_iter()
        .map(|function| function.ok_or_else(|| "a function has no body".to_string()))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Module {
        functions,
        data: data
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .collect(),
        shared_bytes: shared_bytes as usize,
        constants,
    })
}

impl Parser {
    fn slots(&mut self, from: u32, names: &mut HashMap<String, Slot>) -> Result<Vec<Slot>, String> {
        let (mut next, mut all) = (from, vec![]);
        while !self.is(')') {
            if self.word()? != ".param" {
                return self.error("expected .param");
            }
            let Variable { align, bytes, name, .. } = self.variable()?;
            next = next.next_multiple_of(align);
            let slot = Slot { at: next, bytes };
            next += bytes;
            names.insert(name, slot);
            all.push(slot);
            self.is(',');
        }
        Ok(all)
    }

    /// A function after `.func` or `.entry`: its number, and its body if there is one.
    fn function(
        &mut self,
        is_kernel: bool,
        symbols: &HashMap<String, Symbol>,
        numbers: &mut HashMap<String, usize>,
        constants: &mut Vec<u64>,
        constant_of: &mut HashMap<u64, u32>,
    ) -> Result<(usize, Option<Function>), String> {
        let (mut results, mut parameters) = (HashMap::new(), HashMap::new());
        if self.is('(') {
            self.slots(RESULT_AT, &mut results)?;
        }
        let name = self.word()?;
        let next = numbers.len();
        let number = *numbers.entry(name.clone()).or_insert(next);
        self.expect('(')?;
        let slots = self.slots(if is_kernel { 0 } else { ARGUMENTS_AT }, &mut parameters)?;
        while self.peek() != Some(&Token::Mark('{')) {
            if self.is(';') {
                return Ok((number, None));
            }
            self.next()?;
        }
        self.expect('{')?;
        let mut names = Names {
            symbols,
            functions: numbers,
            constants,
            constant_of,
            registers: vec![HashMap::new()],
            arguments: vec![HashMap::new()],
            parameters,
            results,
            depot: String::new(),
            tables: HashMap::new(),
            next_argument: ARGUMENTS_AT,
        };
        let body = self.body(&mut names)?;
        let mut function = Function {
            name: shown(&name),
            is_kernel,
            code: body.code,
            registers: body.registers,
            local_bytes: body.local_bytes,
            parameters: slots,
            tables: vec![],
            meets: vec![],
        };
        let place =
            |label: &String| body.labels.get(label).copied().ok_or(format!("{name}: no label {label}"));
        for labels in &body.tables {
            function.tables.push(labels.iter().map(place).collect::<Result<_, _>>()?);
        }
        for (at, label) in &body.branches {
            function.code[*at].target = place(label)?;
        }
        function.meets = flow::meets(&function.code, &function.tables);
        Ok((number, Some(function)))
    }

    fn body(&mut self, names: &mut Names<'_>) -> Result<Body, String> {
        let mut body = Body::default();
        let mut depth = 1;
        while depth > 0 {
            if self.is('{') {
                depth += 1;
                names.registers.push(HashMap::new());
                names.arguments.push(HashMap::new());
                names.next_argument = ARGUMENTS_AT;
            } else if self.is('}') {
                depth -= 1;
                names.registers.pop();
                names.arguments.pop();
            } else if !self.is(';') {
                self.statement(names, &mut body)?;
            }
        }
        Ok(body)
    }

    fn statement(&mut self, names: &mut Names<'_>, body: &mut Body) -> Result<(), String> {
        let line = self.line();
        let guard = if self.is('@') {
            let negated = self.is('!');
            let name = self.word()?;
            let Some((register, _)) = names.register(&name) else { return self.error(&name) };
            Some((register, negated))
        } else {
            None
        };
        let word = self.word()?;
        if guard.is_none() && self.is(':') {
            if let Some(Token::Word(next)) = self.peek()
                && next == ".branchtargets"
            {
                self.next()?;
                names.tables.insert(word, body.tables.len() as u32);
                let mut labels = vec![];
                while !self.is(';') {
                    labels.push(self.word()?);
                    self.is(',');
                }
                body.tables.push(labels);
            } else {
                body.labels.insert(word, body.code.len() as u32);
            }
            return Ok(());
        }
        match word.as_str() {
            ".reg" => return self.registers(names, body),
            ".local" => {
                let Variable { bytes, name, .. } = self.variable()?;
                names.depot = name;
                body.local_bytes = (bytes as usize).next_multiple_of(16);
                return self.expect(';');
            }
            ".param" => {
                let Variable { align, bytes, name, .. } = self.variable()?;
                let at = if name.starts_with("retval") {
                    RESULT_AT
                } else {
                    let at = names.next_argument.next_multiple_of(align);
                    names.next_argument = at + bytes;
                    at
                };
                if let Some(scope) = names.arguments.last_mut() {
                    scope.insert(name, Slot { at, bytes });
                }
                return self.expect(';');
            }
            ".pragma" => {
                self.next()?;
                return self.expect(';');
            }
            _ => {}
        }
        let mut operands = vec![];
        while !self.is(';') {
            operands.push(self.next()?);
        }
        if word.starts_with("bra") {
            let Some(Token::Word(label)) = operands.first() else { return self.error("bra without a label") };
            body.branches.push((body.code.len(), label.clone()));
        }
        let mut instruction =
            decode::decode(&word, &operands, names).map_err(|what| format!("line {line}: {what}"))?;
        instruction.guard = guard;
        instruction.line = line;
        body.code.push(instruction);
        Ok(())
    }

    fn registers(&mut self, names: &mut Names<'_>, body: &mut Body) -> Result<(), String> {
        let kind = self.word()?;
        let Some(bits) = bits(&kind) else { return self.error(&kind) };
        let scope = names.registers.last_mut().expect("a scope is open");
        while !self.is(';') {
            let name = self.word()?;
            if self.is('<') {
                let count = self.number()?;
                self.expect('>')?;
                for i in 0..count {
                    scope.insert(format!("{name}{i}"), (body.registers as u32, bits));
                    body.registers += 1;
                }
            } else {
                scope.insert(name, (body.registers as u32, bits));
                body.registers += 1;
            }
            self.is(',');
        }
        Ok(())
    }
}

#[derive(Default)]
struct Body {
    code: Vec<Instruction>,
    registers: usize,
    local_bytes: usize,
    labels: HashMap<String, u32>,
    branches: Vec<(usize, String)>,
    tables: Vec<Vec<String>>,
}
