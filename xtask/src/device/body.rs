//! Translation of one function: the lines written so far, the names in scope, and the order of evaluation.
//!
//! An expression becomes C++ text ([`Ex`]) plus, if C++ has no such expression, lines before it. Rust
//! evaluates operands from left to right; in C++ the order is unspecified. [`Body::operands`] keeps the
//! order: if an operand writes, everything that reads before it is stored in a constant first.

use super::items::{Crate, Function};
use super::names::{check_name, cpp_name};
use super::refusal::Result;
use super::types::Ty;
use std::collections::{HashMap, HashSet};
use syn::{Expr, Ident};

/// Side effects of the evaluation of an expression.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Effect {
    /// None: the expression may be evaluated at any time.
    None,
    /// Reads places that other expressions may write.
    Reads,
    Writes,
}

/// An expression in C++. Its value is that of the Rust expression; its C++ type may be wider (`int` for an
/// operation on `u8`), unless it is `exact`.
#[derive(Clone, Debug)]
pub struct Ex {
    pub code: String,
    pub ty: Ty,
    pub effect: Effect,
    /// Needs no parentheses as an operand.
    pub atom: bool,
    /// The C++ type is exactly that of `ty`.
    pub exact: bool,
    /// A literal: may initialize any type that can hold its value.
    pub literal: bool,
}

impl Ex {
    pub fn new(code: impl Into<String>, ty: Ty, effect: Effect) -> Ex {
        Ex { code: code.into(), ty, effect, atom: true, exact: true, literal: false }
    }

    /// The value of a statement that has been written already.
    pub fn done(ty: Ty) -> Ex {
        Ex::new("", ty, Effect::None)
    }

    pub fn compound(mut self) -> Ex {
        self.atom = false;
        self
    }

    pub fn inexact(mut self) -> Ex {
        self.exact = false;
        self
    }

    /// The code as an operand, in parentheses if necessary.
    pub fn wrapped(&self) -> String {
        if self.atom { self.code.clone() } else { format!("({})", self.code) }
    }

    /// The code with exactly the C++ type of `ty`.
    pub fn exactly(&self, krate: &Crate) -> String {
        if self.exact {
            self.code.clone()
        } else {
            format!("static_cast<{}>({})", self.ty.cpp(krate), self.code)
        }
    }

    /// The code inside braces, where C++ forbids narrowing.
    pub fn in_braces(&self, krate: &Crate) -> String {
        if self.literal { self.code.clone() } else { self.exactly(krate) }
    }
}

/// Destination of the value of an expression.
#[derive(Clone, Debug)]
pub enum Target {
    Discard,
    Return(Ty),
    /// A place that can be evaluated any number of times.
    Set(String, Ty),
}

impl Target {
    pub fn ty(&self) -> Option<&Ty> {
        match self {
            Target::Discard => None,
            Target::Return(ty) | Target::Set(_, ty) => Some(ty),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Local {
    pub cpp: String,
    pub ty: Ty,
    pub mutable: bool,
}

/// State of the translation of one function or constant.
pub struct Body<'a> {
    pub krate: &'a Crate,
    pub module: usize,
    pub function: Option<&'a Function>,
    pub lines: Vec<String>,
    pub depth: usize,
    scopes: Vec<HashMap<String, Local>>,
    used: HashSet<String>,
    temporaries: usize,
}

/// State of the translation to return to if an attempt fails.
pub struct Mark {
    lines: usize,
    depth: usize,
    scopes: Vec<HashMap<String, Local>>,
    used: HashSet<String>,
    temporaries: usize,
}

impl Mark {
    pub fn line_count(&self) -> usize {
        self.lines
    }
}

impl<'a> Body<'a> {
    pub fn new(krate: &'a Crate, module: usize, function: Option<&'a Function>) -> Body<'a> {
        Body {
            krate,
            module,
            function,
            lines: Vec::new(),
            depth: 1,
            scopes: vec![HashMap::new()],
            used: HashSet::new(),
            temporaries: 0,
        }
    }

    pub fn mark(&self) -> Mark {
        Mark {
            lines: self.lines.len(),
            depth: self.depth,
            scopes: self.scopes.clone(),
            used: self.used.clone(),
            temporaries: self.temporaries,
        }
    }

    pub fn undo(&mut self, mark: Mark) {
        self.lines.truncate(mark.lines);
        self.depth = mark.depth;
        self.scopes = mark.scopes;
        self.used = mark.used;
        self.temporaries = mark.temporaries;
    }

    /// Appends a line at the current depth.
    pub fn line(&mut self, text: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "    ".repeat(self.depth), text.as_ref()));
    }

    /// Appends `header {` and increases the depth.
    pub fn open(&mut self, header: impl AsRef<str>) {
        self.line(format!("{}{{", header.as_ref()));
        self.enter();
    }

    /// Decreases the depth and appends `}`.
    pub fn close(&mut self) {
        self.leave();
        self.line("}");
    }

    pub fn enter(&mut self) {
        self.depth += 1;
        self.scopes.push(HashMap::new());
    }

    pub fn leave(&mut self) {
        self.depth -= 1;
        self.scopes.pop();
    }

    pub fn local(&self, name: &str) -> Option<&Local> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// Declares a local variable under a C++ name that the function has not used.
    pub fn declare(&mut self, name: &Ident, ty: Ty, mutable: bool) -> Result<String> {
        check_name(name)?;
        let text: String = name.to_string();
        let plain: String = cpp_name(&text);
        let mut cpp: String = plain.clone();
        let mut number: usize = 2;
        while !self.used.insert(cpp.clone()) {
            cpp = format!("{plain}_{number}");
            number += 1;
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(text, Local { cpp: cpp.clone(), ty, mutable });
        }
        Ok(cpp)
    }

    /// Reserves a C++ name.
    pub fn reserve(&mut self, cpp: &str) {
        self.used.insert(cpp.to_string());
    }

    /// Maps a Rust name to an existing C++ name.
    pub fn bind(&mut self, name: &Ident, cpp: String, ty: Ty, mutable: bool) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name.to_string(), Local { cpp, ty, mutable });
        }
    }

    pub fn temporary(&mut self) -> String {
        loop {
            self.temporaries += 1;
            let name: String = format!("t{}", self.temporaries);
            if self.used.insert(name.clone()) {
                return name;
            }
        }
    }

    /// The line that stores the value of `ex` under a new name, and that name as an expression.
    fn keep(&mut self, ex: &Ex) -> (String, Ex) {
        let name: String = self.temporary();
        let declared: String = match &ex.ty {
            reference @ Ty::Ref { .. } => reference.cpp(self.krate),
            ty => format!("const {}", ty.cpp(self.krate)),
        };
        let line: String = format!("{}{declared} {name} = {};", "    ".repeat(self.depth), ex.code);
        (line, Ex::new(name, ex.ty.clone(), Effect::None))
    }

    /// Stores the value in a constant now.
    pub fn spill(&mut self, ex: &Ex) -> Ex {
        let (line, kept): (String, Ex) = self.keep(ex);
        self.lines.push(line);
        kept
    }

    /// Stores the values of `earlier` that may change in constants before line `at`.
    pub fn spill_before(&mut self, at: usize, earlier: &mut [Ex]) {
        for (at, ex) in (at..).zip(earlier.iter_mut().filter(|ex| ex.effect >= Effect::Reads)) {
            let (line, kept): (String, Ex) = self.keep(ex);
            self.lines.insert(at, line);
            *ex = kept;
        }
    }

    /// Translates operands from left to right with `each`.
    pub fn operands<'e, T>(
        &mut self,
        operands: impl Iterator<Item = (&'e Expr, T)>,
        mut each: impl FnMut(&mut Self, &'e Expr, T) -> Result<Ex>,
    ) -> Result<Vec<Ex>> {
        let mut done: Vec<Ex> = Vec::new();
        for (e, extra) in operands {
            let at: usize = self.lines.len();
            let ex: Ex = each(self, e, extra)?;
            if self.lines.len() > at || ex.effect == Effect::Writes {
                self.spill_before(at, &mut done);
            }
            done.push(ex);
        }
        // Only the last writer is still an expression here; operands after it must not be read before it.
        if let Some(writer) = done.iter().position(|ex| ex.effect == Effect::Writes)
            && done[writer + 1..].iter().any(|ex| ex.effect >= Effect::Reads)
        {
            done[writer] = self.spill(&done[writer].clone());
        }
        Ok(done)
    }

    /// The strongest of several effects.
    pub fn effect(of: &[Ex]) -> Effect {
        of.iter().map(|ex| ex.effect).max().unwrap_or(Effect::None)
    }
}
