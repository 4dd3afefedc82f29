//! Types of the subset, their C++ names, and their `repr(C)` layout.

use super::items::Crate;
use super::names::cpp_name;

/// Integer types. `usize` is for counts and indices: 32 bits in C++, never part of the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Int {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    Usize,
}

impl Int {
    pub fn from_name(name: &str) -> Option<Int> {
        Some(match name {
            "u8" => Int::U8,
            "u16" => Int::U16,
            "u32" => Int::U32,
            "u64" => Int::U64,
            "i8" => Int::I8,
            "i16" => Int::I16,
            "i32" => Int::I32,
            "i64" => Int::I64,
            "usize" => Int::Usize,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Int::U8 => "u8",
            Int::U16 => "u16",
            Int::U32 => "u32",
            Int::U64 => "u64",
            Int::I8 => "i8",
            Int::I16 => "i16",
            Int::I32 => "i32",
            Int::I64 => "i64",
            Int::Usize => "usize",
        }
    }

    pub fn cpp(self) -> &'static str {
        match self {
            Int::U8 => "uint8_t",
            Int::U16 => "uint16_t",
            Int::U32 | Int::Usize => "uint32_t",
            Int::U64 => "uint64_t",
            Int::I8 => "int8_t",
            Int::I16 => "int16_t",
            Int::I32 => "int32_t",
            Int::I64 => "int64_t",
        }
    }

    /// Bits of the C++ type.
    pub fn bits(self) -> u32 {
        match self {
            Int::U8 | Int::I8 => 8,
            Int::U16 | Int::I16 => 16,
            Int::U32 | Int::I32 | Int::Usize => 32,
            Int::U64 | Int::I64 => 64,
        }
    }

    pub fn signed(self) -> bool {
        matches!(self, Int::I8 | Int::I16 | Int::I32 | Int::I64)
    }

    pub fn min(self) -> i128 {
        if self.signed() { -(1i128 << (self.bits() - 1)) } else { 0 }
    }

    pub fn max(self) -> i128 {
        (1i128 << (self.bits() - u32::from(self.signed()))) - 1
    }

    pub fn contains(self, value: i128) -> bool {
        self.min() <= value && value <= self.max()
    }

    /// A number as a C++ literal with the width of this type.
    pub fn literal(self, value: i128) -> String {
        if value == self.min() && self.signed() && self.bits() >= 32 {
            let suffix: &str = if self.bits() == 64 { "ll" } else { "" };
            return format!("(-{}{suffix} - 1)", self.max());
        }
        format!("{value}{}", self.suffix())
    }

    pub fn suffix(self) -> &'static str {
        match self {
            Int::U32 | Int::Usize => "u",
            Int::U64 => "ull",
            Int::I64 => "ll",
            _ => "",
        }
    }
}

/// Types of values, places and parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ty {
    Bool,
    Int(Int),
    /// `f32` (false) or `f64` (true).
    Float(bool),
    Unit,
    /// Type of `return`, `break`, `continue`.
    Never,
    /// `str`: only behind a reference in rows of tables, which are translated without it.
    Text,
    Array(Box<Ty>, u64),
    /// Only behind a reference.
    Slice(Box<Ty>),
    Struct(usize),
    Enum(usize),
    Tuple(Vec<Ty>),
    /// The type parameter of a function, by its trait. Only behind a reference.
    Parameter(usize),
    Ref {
        mutable: bool,
        to: Box<Ty>,
    },
}

impl Ty {
    /// The type behind references.
    pub fn value(&self) -> &Ty {
        match self {
            Ty::Ref { to, .. } => to.value(),
            other => other,
        }
    }

    /// `&str`.
    pub fn is_text(&self) -> bool {
        matches!(self, Ty::Ref { to, .. } if **to == Ty::Text)
    }

    pub fn is_scalar(&self) -> bool {
        matches!(self, Ty::Bool | Ty::Int(_) | Ty::Float(_) | Ty::Enum(_))
    }

    /// The type as written in Rust, for messages.
    pub fn rust(&self, krate: &Crate) -> String {
        match self {
            Ty::Bool => "bool".into(),
            Ty::Int(int) => int.name().into(),
            Ty::Float(double) => if *double { "f64" } else { "f32" }.into(),
            Ty::Unit => "()".into(),
            Ty::Never => "!".into(),
            Ty::Text => "str".into(),
            Ty::Array(of, length) => format!("[{}; {length}]", of.rust(krate)),
            Ty::Slice(of) => format!("[{}]", of.rust(krate)),
            Ty::Struct(id) => krate.structs[*id].name.clone(),
            Ty::Enum(id) => krate.enums[*id].name.clone(),
            Ty::Tuple(of) => format!("({})", of.iter().map(|t| t.rust(krate)).collect::<Vec<_>>().join(", ")),
            Ty::Parameter(id) => krate.traits[*id].name.clone(),
            Ty::Ref { mutable, to } => format!("&{}{}", if *mutable { "mut " } else { "" }, to.rust(krate)),
        }
    }

    /// The C++ type of a value of this type.
    pub fn cpp(&self, krate: &Crate) -> String {
        match self {
            Ty::Bool => "bool".into(),
            Ty::Int(int) => int.cpp().into(),
            Ty::Float(double) => if *double { "double" } else { "float" }.into(),
            Ty::Unit | Ty::Never | Ty::Text => "void".into(),
            Ty::Array(of, length) => format!("Array<{}, {length}>", of.cpp(krate)),
            Ty::Slice(of) => format!("Slice<const {}>", of.cpp(krate)),
            Ty::Struct(id) => krate.cpp_path(krate.structs[*id].module, &krate.structs[*id].name),
            Ty::Enum(id) => krate.cpp_path(krate.enums[*id].module, &krate.enums[*id].name),
            Ty::Tuple(of) => {
                let parts: Vec<String> = of.iter().map(|t| t.cpp(krate)).collect();
                format!("Tuple{}<{}>", of.len(), parts.join(", "))
            }
            Ty::Parameter(id) => cpp_name(&krate.traits[*id].name),
            Ty::Ref { mutable, to } => match (&**to, mutable) {
                (Ty::Slice(of), true) => format!("Slice<{}>", of.cpp(krate)),
                (Ty::Slice(_), false) => to.cpp(krate),
                (_, true) => format!("{}&", to.cpp(krate)),
                (_, false) => format!("const {}&", to.cpp(krate)),
            },
        }
    }

    /// Size and alignment in bytes under `repr(C)` on all supported targets; `None` for types that cannot be
    /// state.
    pub fn layout(&self, krate: &Crate) -> Option<(u64, u64)> {
        match self {
            Ty::Bool => Some((1, 1)),
            Ty::Int(Int::Usize) => None,
            Ty::Int(int) => Some((u64::from(int.bits()) / 8, u64::from(int.bits()) / 8)),
            Ty::Float(double) => Some(if *double { (8, 8) } else { (4, 4) }),
            Ty::Array(of, length) => of.layout(krate).map(|(size, align)| (size * length, align)),
            Ty::Enum(id) => Ty::Int(krate.enums[*id].repr).layout(krate),
            Ty::Struct(id) => struct_layout(krate, *id).map(|layout| (layout.size, layout.align)),
            _ => None,
        }
    }
}

/// Offsets, size and alignment of a `repr(C)` struct.
pub struct StructLayout {
    pub size: u64,
    pub align: u64,
    pub offsets: Vec<u64>,
}

/// Returns `None` if a field has no fixed layout, or if the struct is a row of a table.
pub fn struct_layout(krate: &Crate, id: usize) -> Option<StructLayout> {
    if !krate.structs[id].repr_c {
        return None;
    }
    let mut layout: StructLayout = StructLayout { size: 0, align: 1, offsets: Vec::new() };
    for field in &krate.structs[id].fields {
        let (size, align): (u64, u64) = field.ty.layout(krate)?;
        let at: u64 = layout.size.next_multiple_of(align);
        layout.offsets.push(at);
        layout.size = at + size;
        layout.align = layout.align.max(align);
    }
    layout.size = layout.size.next_multiple_of(layout.align);
    Some(layout)
}
