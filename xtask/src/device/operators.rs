//! Operators and casts, with the width and wrapping of the Rust type.
//!
//! C++ computes `uint8_t` and `uint16_t` as `int`: results that may exceed the type are cast back. Signed
//! overflow is undefined in C++: `+ - * <<` of signed types use `rs::` functions, which compute with the
//! unsigned type. Plain arithmetic does not overflow in a valid program (tests of the Rust code check it), so
//! wrapping never changes a result and only keeps the C++ defined.

use super::body::{Body, Effect, Ex};
use super::refusal::{Result, refuse};
use super::types::{Int, Ty};
use syn::spanned::Spanned;
use syn::{BinOp, Expr, ExprBinary, ExprCast, ExprUnary, Lit, UnOp};

/// Operators whose result has the type of the operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

impl Arithmetic {
    fn symbol(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Sub => "-",
            Arithmetic::Mul => "*",
            Arithmetic::Div => "/",
            Arithmetic::Rem => "%",
            Arithmetic::And => "&",
            Arithmetic::Or => "|",
            Arithmetic::Xor => "^",
            Arithmetic::Shl => "<<",
            Arithmetic::Shr => ">>",
        }
    }

    fn is_shift(self) -> bool {
        matches!(self, Arithmetic::Shl | Arithmetic::Shr)
    }

    /// The operator, and whether it is an assignment.
    fn of(op: &BinOp) -> Option<(Arithmetic, bool)> {
        Some(match op {
            BinOp::Add(_) => (Arithmetic::Add, false),
            BinOp::Sub(_) => (Arithmetic::Sub, false),
            BinOp::Mul(_) => (Arithmetic::Mul, false),
            BinOp::Div(_) => (Arithmetic::Div, false),
            BinOp::Rem(_) => (Arithmetic::Rem, false),
            BinOp::BitAnd(_) => (Arithmetic::And, false),
            BinOp::BitOr(_) => (Arithmetic::Or, false),
            BinOp::BitXor(_) => (Arithmetic::Xor, false),
            BinOp::Shl(_) => (Arithmetic::Shl, false),
            BinOp::Shr(_) => (Arithmetic::Shr, false),
            BinOp::AddAssign(_) => (Arithmetic::Add, true),
            BinOp::SubAssign(_) => (Arithmetic::Sub, true),
            BinOp::MulAssign(_) => (Arithmetic::Mul, true),
            BinOp::DivAssign(_) => (Arithmetic::Div, true),
            BinOp::RemAssign(_) => (Arithmetic::Rem, true),
            BinOp::BitAndAssign(_) => (Arithmetic::And, true),
            BinOp::BitOrAssign(_) => (Arithmetic::Or, true),
            BinOp::BitXorAssign(_) => (Arithmetic::Xor, true),
            BinOp::ShlAssign(_) => (Arithmetic::Shl, true),
            BinOp::ShrAssign(_) => (Arithmetic::Shr, true),
            _ => return None,
        })
    }
}

/// True for an expression of literals only; its type is determined by the context.
pub fn is_bare(e: &Expr) -> bool {
    match e {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => int.suffix().is_empty(),
            Lit::Float(float) => float.suffix().is_empty(),
            _ => false,
        },
        Expr::Paren(inner) => is_bare(&inner.expr),
        Expr::Unary(unary) => !matches!(unary.op, UnOp::Deref(_)) && is_bare(&unary.expr),
        Expr::Binary(binary) => match binary.op {
            BinOp::Shl(_) | BinOp::Shr(_) => is_bare(&binary.left),
            _ => is_bare(&binary.left) && is_bare(&binary.right) && Arithmetic::of(&binary.op).is_some(),
        },
        Expr::If(e) => match (e.then_branch.stmts.last(), &e.else_branch) {
            (Some(syn::Stmt::Expr(yes, None)), Some((_, no))) => is_bare(yes) && is_bare(no),
            _ => false,
        },
        Expr::Block(block) => {
            matches!(block.block.stmts.last(), Some(syn::Stmt::Expr(e, None)) if is_bare(e))
        }
        _ => false,
    }
}

impl Body<'_> {
    pub fn unary(&mut self, e: &ExprUnary, want: Option<&Ty>) -> Result<Ex> {
        if let UnOp::Deref(_) = e.op {
            let inner: Ex = self.expression(&e.expr, None)?;
            return match inner.ty {
                Ty::Ref { to, .. } => Ok(Ex { ty: *to, effect: inner.effect.max(Effect::Reads), ..inner }),
                _ => refuse(e.span(), "`*` of something that is not a reference"),
            };
        }
        if let (UnOp::Neg(_), Expr::Lit(lit)) = (&e.op, &*e.expr)
            && let Lit::Int(int) = &lit.lit
        {
            let ty: Int = match (Int::from_name(int.suffix()), want) {
                (Some(int), _) => int,
                (None, Some(Ty::Int(int))) => *int,
                _ => Int::I32,
            };
            return self.integer(lit, ty, true);
        }
        let inner: Ex = self.expression(&e.expr, want)?;
        let effect: Effect = inner.effect;
        let krate = self.krate;
        match (&e.op, &inner.ty) {
            (UnOp::Not(_), Ty::Bool) => Ok(Ex::new(format!("!{}", inner.wrapped()), Ty::Bool, effect)),
            (UnOp::Not(_), Ty::Int(int)) if int.bits() < 32 => {
                let code: String = format!("static_cast<{}>(~{})", int.cpp(), inner.wrapped());
                Ok(Ex::new(code, inner.ty, effect))
            }
            (UnOp::Not(_), Ty::Int(_)) => Ok(Ex {
                exact: inner.exact,
                ..Ex::new(format!("~{}", inner.wrapped()), inner.ty, effect).compound()
            }),
            (UnOp::Neg(_), Ty::Int(int)) if int.signed() => {
                Ok(Ex::new(format!("rs::neg<{}>({})", int.cpp(), inner.code), inner.ty, effect))
            }
            (UnOp::Neg(_), Ty::Float(_)) => {
                Ok(Ex::new(format!("-{}", inner.wrapped()), inner.ty, effect).compound())
            }
            (_, ty) => refuse(e.span(), format!("this operator on {}", ty.rust(krate))),
        }
    }

    pub fn binary(&mut self, e: &ExprBinary, want: Option<&Ty>) -> Result<Ex> {
        match Arithmetic::of(&e.op) {
            Some((op, true)) => return self.assign_with(op, e),
            Some((op, false)) => {
                let want: Option<&Ty> = want.filter(|ty| matches!(ty, Ty::Int(_) | Ty::Float(_) | Ty::Bool));
                let [left, right]: [Ex; 2] = self.two(&e.left, &e.right, want, op.is_shift())?;
                return self.arithmetic(e.span(), op, &left, &right);
            }
            None => {}
        }
        match &e.op {
            BinOp::And(_) => self.logical(e, "&&"),
            BinOp::Or(_) => self.logical(e, "||"),
            BinOp::Eq(_) => self.comparison(e, "=="),
            BinOp::Ne(_) => self.comparison(e, "!="),
            BinOp::Lt(_) => self.comparison(e, "<"),
            BinOp::Le(_) => self.comparison(e, "<="),
            BinOp::Gt(_) => self.comparison(e, ">"),
            BinOp::Ge(_) => self.comparison(e, ">="),
            _ => refuse(e.span(), "this operator"),
        }
    }

    /// Translates both operands. A literal takes the type of the other side.
    fn two(&mut self, left: &Expr, right: &Expr, want: Option<&Ty>, shift: bool) -> Result<[Ex; 2]> {
        let wanted: Option<Ty> = match want {
            Some(ty) => Some(ty.clone()),
            None if is_bare(left) && !shift && !is_bare(right) => Some(self.type_of(right)?.value().clone()),
            None => None,
        };
        let mut known: Option<Ty> = wanted;
        let parts: Vec<Ex> =
            self.operands([(left, true), (right, false)].into_iter(), |body, e, first| {
                let want: Option<Ty> = if shift && !first { None } else { known.clone() };
                let ex: Ex = body.expression(e, want.as_ref())?;
                if first {
                    known = Some(ex.ty.value().clone());
                }
                Ok(ex)
            })?;
        match <[Ex; 2]>::try_from(parts) {
            Ok(two) => Ok(two),
            Err(_) => refuse(left.span(), "operands"),
        }
    }

    /// The value of `left op right`. Both have the types that Rust requires.
    fn arithmetic(&self, span: proc_macro2::Span, op: Arithmetic, left: &Ex, right: &Ex) -> Result<Ex> {
        let effect: Effect = left.effect.max(right.effect);
        let plain: String = format!("{} {} {}", left.wrapped(), op.symbol(), right.wrapped());
        let ty: Ty = left.ty.clone();
        if let (Ty::Ref { .. }, _) | (_, Ty::Ref { .. }) = (&left.ty, &right.ty) {
            return refuse(span, "an operator on a reference: write `*`");
        }
        if !op.is_shift() && left.ty != right.ty {
            let (left, right): (String, String) = (left.ty.rust(self.krate), right.ty.rust(self.krate));
            return refuse(span, format!("operands of types {left} and {right}"));
        }
        match (op, &ty) {
            (Arithmetic::And | Arithmetic::Or | Arithmetic::Xor, Ty::Bool) => {
                Ok(Ex::new(plain, ty, effect).compound().inexact())
            }
            (Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul | Arithmetic::Div, Ty::Float(_)) => {
                let name: &str = match op {
                    Arithmetic::Add => "fadd",
                    Arithmetic::Sub => "fsub",
                    Arithmetic::Mul => "fmul",
                    _ => "fdiv",
                };
                Ok(Ex::new(format!("rs::{name}({}, {})", left.code, right.code), ty, effect))
            }
            (_, Ty::Int(int)) if matches!(right.ty, Ty::Int(_)) => {
                Ok(self.integers(op, *int, left, right, &plain, effect))
            }
            _ => refuse(span, format!("`{}` on {}", op.symbol(), ty.rust(self.krate))),
        }
    }

    fn integers(&self, op: Arithmetic, int: Int, left: &Ex, right: &Ex, plain: &str, effect: Effect) -> Ex {
        let ty: Ty = Ty::Int(int);
        let small: bool = int.bits() < 32;
        let cast = |code: &str| Ex::new(format!("static_cast<{}>({code})", int.cpp()), ty.clone(), effect);
        let helper = |name: &str| {
            Ex::new(format!("rs::{name}<{}>({}, {})", int.cpp(), left.code, right.code), ty.clone(), effect)
        };
        match op {
            Arithmetic::And | Arithmetic::Or | Arithmetic::Xor => {
                let exact: bool = !small && left.exact && right.exact;
                Ex { exact, ..Ex::new(plain, ty, effect).compound() }
            }
            Arithmetic::Shr | Arithmetic::Div | Arithmetic::Rem if small && !int.signed() => {
                Ex::new(plain, ty, effect).compound().inexact()
            }
            Arithmetic::Shr => Ex { exact: !small && left.exact, ..Ex::new(plain, ty, effect).compound() },
            Arithmetic::Div | Arithmetic::Rem if small => cast(plain),
            Arithmetic::Div | Arithmetic::Rem => {
                Ex { exact: left.exact && right.exact, ..Ex::new(plain, ty, effect).compound() }
            }
            Arithmetic::Mul if int == Int::U16 => helper("mul"),
            Arithmetic::Shl if int.signed() => helper("shl"),
            Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul | Arithmetic::Shl if small => cast(plain),
            Arithmetic::Add if int.signed() => helper("add"),
            Arithmetic::Sub if int.signed() => helper("sub"),
            Arithmetic::Mul if int.signed() => helper("mul"),
            _ => {
                let exact: bool = left.exact && (right.exact || op == Arithmetic::Shl);
                Ex { exact, ..Ex::new(plain, ty, effect).compound() }
            }
        }
    }

    /// `place op= value`: the value is evaluated first, as in Rust for primitive types.
    fn assign_with(&mut self, op: Arithmetic, e: &ExprBinary) -> Result<Ex> {
        let mark = self.mark();
        let ty: Ty = self.place(&e.left)?.ty.value().clone();
        self.undo(mark);
        let want: Option<&Ty> = if op.is_shift() { None } else { Some(&ty) };
        let mut value: Ex = self.expression(&e.right, want)?;
        let at: usize = self.lines.len();
        let place: Ex = self.place(&e.left)?;
        if let Ty::Ref { .. } = place.ty {
            return refuse(e.left.span(), "an operator on a reference: write `*`");
        }
        if value.effect == Effect::Writes {
            let mut values: [Ex; 1] = [value];
            self.spill_before(at, &mut values);
            [value] = values;
        }
        let direct: bool = match (&ty, op) {
            (Ty::Bool, _) => true,
            (Ty::Int(Int::U16), Arithmetic::Mul) => false,
            (Ty::Int(int), Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul | Arithmetic::Shl) => {
                !int.signed()
            }
            (Ty::Int(_), _) => true,
            _ => false,
        };
        let result: Ex = self.arithmetic(e.span(), op, &place, &value)?;
        if direct {
            self.line(format!("{} {}= {};", place.code, op.symbol(), value.code));
        } else {
            self.line(format!("{} = {};", place.code, result.code));
        }
        Ok(Ex::done(Ty::Unit))
    }

    fn comparison(&mut self, e: &ExprBinary, symbol: &str) -> Result<Ex> {
        let [left, right]: [Ex; 2] = self.two(&e.left, &e.right, None, false)?;
        if left.ty != right.ty || !left.ty.is_scalar() {
            let (left, right): (String, String) = (left.ty.rust(self.krate), right.ty.rust(self.krate));
            return refuse(e.span(), format!("a comparison of {left} with {right}"));
        }
        let code: String = format!("{} {symbol} {}", left.wrapped(), right.wrapped());
        Ok(Ex::new(code, Ty::Bool, left.effect.max(right.effect)).compound())
    }

    /// `&&` and `||` evaluate the right side only if needed; lines that it needs go into an `if`.
    fn logical(&mut self, e: &ExprBinary, symbol: &str) -> Result<Ex> {
        let left: Ex = self.expression(&e.left, Some(&Ty::Bool))?;
        let mark = self.mark();
        let at: usize = self.lines.len();
        let right: Ex = self.expression(&e.right, Some(&Ty::Bool))?;
        if self.lines.len() == at {
            let code: String = format!("{} {symbol} {}", left.wrapped(), right.wrapped());
            return Ok(Ex::new(code, Ty::Bool, left.effect.max(right.effect)).compound());
        }
        self.undo(mark);
        let name: String = self.temporary();
        self.line(format!("bool {name} = {};", left.code));
        self.open(format!("if ({}{name}) ", if symbol == "&&" { "" } else { "!" }));
        let right: Ex = self.expression(&e.right, Some(&Ty::Bool))?;
        self.line(format!("{name} = {};", right.code));
        self.close();
        Ok(Ex::new(name, Ty::Bool, Effect::None))
    }

    pub fn cast(&mut self, e: &ExprCast) -> Result<Ex> {
        let to: Ty = self.krate.ty(self.module, &e.ty)?;
        let want: Option<&Ty> = if literal_only(&e.expr) { Some(&to) } else { None };
        let inner: Ex = self.expression(&e.expr, want.filter(|ty| matches!(ty, Ty::Int(_))))?;
        let effect: Effect = inner.effect;
        if inner.ty == to {
            return Ok(inner);
        }
        let cpp: String = to.cpp(self.krate);
        let code: String = match (&inner.ty, &to) {
            (Ty::Float(_), Ty::Int(_)) => format!("rs::float_to<{cpp}>({})", inner.code),
            (Ty::Int(_) | Ty::Float(_), Ty::Int(_) | Ty::Float(_)) | (Ty::Bool | Ty::Enum(_), Ty::Int(_)) => {
                format!("static_cast<{cpp}>({})", inner.code)
            }
            (from, to) => {
                let (from, to): (String, String) = (from.rust(self.krate), to.rust(self.krate));
                return refuse(e.span(), format!("a cast from {from} to {to}"));
            }
        };
        Ok(Ex::new(code, to, effect))
    }
}

fn literal_only(e: &Expr) -> bool {
    match e {
        Expr::Lit(lit) => matches!(lit.lit, Lit::Int(_)),
        Expr::Paren(inner) => literal_only(&inner.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Neg(_)) && literal_only(&unary.expr),
        _ => false,
    }
}
