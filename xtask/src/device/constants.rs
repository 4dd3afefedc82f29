//! Integer constants whose values the translator needs: array lengths, patterns, enum values, printed
//! constants.

use super::items::Crate;
use super::names::{Def, Space};
use super::refusal::{Result, refuse};
use super::types::{Int, Ty};
use std::collections::HashMap;
use syn::spanned::Spanned;
use syn::{BinOp, Expr, Lit, Stmt, UnOp};

/// A number and, if it is known, its type.
#[derive(Clone, Copy)]
struct Number {
    value: i128,
    int: Option<Int>,
}

type Locals = HashMap<String, Number>;

/// The value of a constant integer expression.
pub fn number(krate: &Crate, module: usize, e: &Expr, want: Option<Int>) -> Result<i128> {
    evaluate(krate, module, e, want, &Locals::new(), 0).map(|n| n.value)
}

fn evaluate(
    krate: &Crate,
    module: usize,
    e: &Expr,
    want: Option<Int>,
    locals: &Locals,
    depth: usize,
) -> Result<Number> {
    let again = |e: &Expr, want: Option<Int>| evaluate(krate, module, e, want, locals, depth + 1);
    if depth > 64 {
        return refuse(e.span(), "a constant that is too deep");
    }
    let number: Number = match e {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => {
                // In a pattern, the minus sign is part of the literal.
                let Ok(value) = int.base10_parse::<i128>() else {
                    return refuse(int.span(), "an integer literal of more than 64 bits");
                };
                Number { value, int: Int::from_name(int.suffix()).or(want) }
            }
            Lit::Byte(byte) => Number { value: i128::from(byte.value()), int: Some(Int::U8) },
            _ => return refuse(e.span(), "not an integer constant"),
        },
        Expr::Paren(inner) => again(&inner.expr, want)?,
        Expr::Group(inner) => again(&inner.expr, want)?,
        Expr::Cast(cast) => {
            let Ty::Int(to) = krate.ty(module, &cast.ty)? else {
                return refuse(cast.ty.span(), "a constant cast to something else than an integer");
            };
            let from: Number = again(&cast.expr, if is_literal(&cast.expr) { Some(to) } else { None })?;
            Number { value: wrap(from.value, to), int: Some(to) }
        }
        Expr::Unary(unary) => {
            let inner: Number = again(&unary.expr, want)?;
            let value: i128 = match (&unary.op, inner.int.unwrap_or(Int::I32)) {
                (UnOp::Neg(_), _) => -inner.value,
                (UnOp::Not(_), int) => wrap(!inner.value, int),
                _ => return refuse(e.span(), "not a constant"),
            };
            Number { value, int: inner.int }
        }
        Expr::Binary(binary) => {
            let shift: bool = matches!(binary.op, BinOp::Shl(_) | BinOp::Shr(_));
            let mut left: Number = again(&binary.left, want)?;
            let right: Number = again(&binary.right, if shift { None } else { left.int.or(want) })?;
            if !shift {
                left.int = left.int.or(right.int);
            }
            let value: Option<i128> = match binary.op {
                BinOp::Add(_) => left.value.checked_add(right.value),
                BinOp::Sub(_) => left.value.checked_sub(right.value),
                BinOp::Mul(_) => left.value.checked_mul(right.value),
                BinOp::Div(_) => left.value.checked_div(right.value),
                BinOp::Rem(_) => left.value.checked_rem(right.value),
                BinOp::BitAnd(_) => Some(left.value & right.value),
                BinOp::BitOr(_) => Some(left.value | right.value),
                BinOp::BitXor(_) => Some(left.value ^ right.value),
                BinOp::Shl(_) if (0..64).contains(&right.value) => {
                    let int: Int = left.int.unwrap_or(Int::I32);
                    Some(wrap(left.value << right.value, int))
                }
                BinOp::Shr(_) if (0..64).contains(&right.value) => Some(left.value >> right.value),
                _ => None,
            };
            match value {
                Some(value) => Number { value, int: left.int },
                None => return refuse(e.span(), "not an integer constant"),
            }
        }
        Expr::Path(path) => {
            if let Some(local) = path.path.get_ident().and_then(|i| locals.get(&i.to_string())) {
                return Ok(*local);
            }
            if let Some(value) = limit(&path.path) {
                return Ok(value);
            }
            let Def::Const(id) = krate.resolve(module, &path.path, Space::Values)? else {
                return refuse(e.span(), "not a constant");
            };
            return constant(krate, id, depth);
        }
        Expr::Call(call) => {
            let Expr::Path(path) = &*call.func else { return refuse(e.span(), "not a constant") };
            let Def::Function(id) = krate.resolve(module, &path.path, Space::Values)? else {
                return refuse(e.span(), "not a constant");
            };
            let function = &krate.functions[id];
            let [Stmt::Expr(body, None)] = function.item.block.stmts.as_slice() else {
                return refuse(e.span(), "a constant function of more than one expression");
            };
            let mut inside: Locals = Locals::new();
            for (parameter, argument) in function.parameters.iter().zip(&call.args) {
                if let (Some(name), Ty::Int(int)) = (&parameter.name, &parameter.ty) {
                    let value: i128 = again(argument, Some(*int))?.value;
                    inside.insert(name.to_string(), Number { value, int: Some(*int) });
                }
            }
            let Ty::Int(result) = function.result else { return refuse(e.span(), "not an integer constant") };
            let value: i128 = evaluate(krate, function.module, body, Some(result), &inside, depth + 1)?.value;
            Number { value, int: Some(result) }
        }
        _ => return refuse(e.span(), "not a constant that the translator can work out"),
    };
    if let Some(int) = number.int
        && !int.contains(number.value)
    {
        return refuse(e.span(), format!("{} is outside {}", number.value, int.name()));
    }
    Ok(number)
}

fn constant(krate: &Crate, id: usize, depth: usize) -> Result<Number> {
    let item = &krate.consts[id];
    let int: Option<Int> = match &item.ty {
        Ty::Int(int) => Some(*int),
        _ => None,
    };
    evaluate(krate, item.module, &item.value, int, &Locals::new(), depth + 1)
        .map(|n| Number { value: n.value, int: int.or(n.int) })
        .map_err(|r| r.in_file(&krate.modules[item.module].file))
}

/// `u8::MAX` and similar constants.
fn limit(path: &syn::Path) -> Option<Number> {
    let mut segments = path.segments.iter();
    let (ty, what) = (segments.next()?, segments.next()?);
    let int: Int = Int::from_name(&ty.ident.to_string())?;
    let number = |value: i128, int: Int| Some(Number { value, int: Some(int) });
    match what.ident.to_string().as_str() {
        "MIN" if int != Int::Usize => number(int.min(), int),
        "MAX" if int != Int::Usize => number(int.max(), int),
        "BITS" if int != Int::Usize => number(i128::from(int.bits()), Int::U32),
        _ => None,
    }
}

fn is_literal(e: &Expr) -> bool {
    match e {
        Expr::Lit(_) => true,
        Expr::Paren(inner) => is_literal(&inner.expr),
        _ => false,
    }
}

/// The value of a number after a cast with `as`.
pub fn wrap(value: i128, int: Int) -> i128 {
    let low: i128 = value & ((1i128 << int.bits()) - 1);
    if int.signed() && low > int.max() { low - (1i128 << int.bits()) } else { low }
}
