//! Calls: functions of the crate, methods of numbers and arrays that the prelude implements, and two macros.

use super::body::{Body, Effect, Ex};
use super::items::{Parameter, Trait};
use super::names::{Def, Space, cpp_name, spelled};
use super::refusal::{Result, refuse};
use super::types::{Int, Ty};
use proc_macro2::Span;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, ExprCall, ExprMethodCall, Pat, Token};

/// Parameters and result of a method of an integer.
enum Shape {
    /// `x.f(same) -> same`.
    Same,
    /// `x.f() -> same`.
    Alone,
    /// `x.f(u32) -> same`.
    ByCount,
    /// `x.f() -> u32`.
    Count,
    /// `x.f(same, same) -> same`.
    Both,
    /// `x.f() -> bool`.
    Asks,
}

/// Methods of all integer types except `usize`, which has another width on the device.
const METHODS: &[(&str, Shape)] = &[
    ("wrapping_add", Shape::Same),
    ("wrapping_sub", Shape::Same),
    ("wrapping_mul", Shape::Same),
    ("wrapping_neg", Shape::Alone),
    ("wrapping_shl", Shape::ByCount),
    ("wrapping_shr", Shape::ByCount),
    ("saturating_add", Shape::Same),
    ("saturating_sub", Shape::Same),
    ("rotate_left", Shape::ByCount),
    ("rotate_right", Shape::ByCount),
    ("reverse_bits", Shape::Alone),
    ("swap_bytes", Shape::Alone),
    ("count_ones", Shape::Count),
    ("count_zeros", Shape::Count),
    ("leading_zeros", Shape::Count),
    ("trailing_zeros", Shape::Count),
    ("rem_euclid", Shape::Same),
    ("abs", Shape::Alone),
    ("signum", Shape::Alone),
    ("is_power_of_two", Shape::Asks),
];

/// Methods whose value does not depend on the width; `usize` has them too.
const ANY_WIDTH: &[(&str, Shape)] =
    &[("min", Shape::Same), ("max", Shape::Same), ("clamp", Shape::Both), ("abs_diff", Shape::Same)];

impl Body<'_> {
    pub fn call(&mut self, e: &ExprCall) -> Result<Ex> {
        let Expr::Path(path) = &*e.func else { return refuse(e.func.span(), "a call of a value") };
        if let Some(ex) = self.associated(e, &path.path)? {
            return Ok(ex);
        }
        let Def::Function(id) = self.krate.resolve(self.module, &path.path, Space::Values)? else {
            return refuse(
                path.span(),
                format!("`{}` is not a function of the device subset", spelled(&path.path)),
            );
        };
        let krate = self.krate;
        let function = &krate.functions[id];
        let name: String = krate.cpp_path(function.module, &function.name);
        self.called(e, &e.args, &function.name, &function.parameters, &name, &function.result)
    }

    /// `runner.run(...)`, where `runner` has the function's type parameter as its type: a member function in
    /// C++.
    fn trait_method(&mut self, e: &ExprMethodCall, id: usize, receiver: &Ex) -> Result<Ex> {
        let krate = self.krate;
        let of: &Trait = &krate.traits[id];
        let Some(method) = of.methods.iter().find(|m| e.method == m.name) else {
            return refuse(e.method.span(), format!("method `{}` of {}", e.method, of.name));
        };
        let name: String = format!("{}.{}", receiver.wrapped(), cpp_name(&method.name));
        let ex: Ex = self.called(e, &e.args, &method.name, &method.parameters, &name, &method.result)?;
        let effect: Effect = if method.mutable { Effect::Writes } else { ex.effect.max(Effect::Reads) };
        Ok(Ex { effect, ..ex })
    }

    /// A call of the C++ function `code`.
    fn called<'e>(
        &mut self,
        e: &'e impl Spanned,
        arguments: &'e Punctuated<Expr, Token![,]>,
        name: &str,
        parameters: &[Parameter],
        code: &str,
        result: &Ty,
    ) -> Result<Ex> {
        if parameters.len() != arguments.len() {
            let (takes, given): (usize, usize) = (parameters.len(), arguments.len());
            return refuse(e.span(), format!("`{name}` takes {takes} arguments, not {given}"));
        }
        let arguments = arguments.iter().zip(parameters).filter(|(_, p)| !p.ty.is_text());
        let parts: Vec<Ex> =
            self.operands(arguments.map(|(e, p)| (e, &p.ty)), |body, e, ty| body.argument(e, ty))?;
        let mut effect: Effect = Body::effect(&parts);
        if parameters.iter().any(|p| matches!(p.ty, Ty::Ref { mutable: true, .. })) {
            effect = Effect::Writes;
        } else if parameters.iter().any(|p| matches!(p.ty, Ty::Ref { .. })) {
            effect = effect.max(Effect::Reads);
        }
        let listed: Vec<String> = parts.iter().map(|p| p.code.clone()).collect();
        Ok(Ex::new(format!("{code}({})", listed.join(", ")), result.clone(), effect))
    }

    /// An argument for a parameter of type `ty`. References become C++ references, slices pairs of pointer
    /// and length.
    pub fn argument(&mut self, e: &Expr, ty: &Ty) -> Result<Ex> {
        let Ty::Ref { mutable, to } = ty else { return self.expression(e, Some(ty)) };
        let given: Ex = self.reference(e, *mutable)?;
        match (&**to, given.ty.value()) {
            (Ty::Slice(of), Ty::Array(elements, _)) if of == elements => {
                let effect: Effect = given.effect;
                Ok(Ex::new(format!("{}({})", ty.cpp(self.krate), given.code), ty.clone(), effect))
            }
            (wanted, is) if wanted == is => Ok(Ex { ty: ty.clone(), ..given }),
            (_, is) => {
                let (is, wanted): (String, String) = (is.rust(self.krate), ty.rust(self.krate));
                refuse(e.span(), format!("a reference to {is} where {wanted} is wanted"))
            }
        }
    }

    /// The place that an expression of a reference type refers to.
    pub fn reference(&mut self, e: &Expr, mutable: bool) -> Result<Ex> {
        match e {
            Expr::Paren(inner) => self.reference(&inner.expr, mutable),
            Expr::Reference(reference) => {
                let (inner, by): (&Expr, bool) = (&reference.expr, reference.mutability.is_some());
                if mutable && !by {
                    return refuse(e.span(), "`&` where `&mut` is wanted");
                }
                if let Expr::Index(index) = inner
                    && let Expr::Range(range) = &*index.index
                {
                    return self.part(&index.expr, range, by);
                }
                let mut place: Ex = match inner {
                    Expr::Path(_) | Expr::Field(_) | Expr::Index(_) | Expr::Unary(_) | Expr::Paren(_) => {
                        self.expression(inner, None)?
                    }
                    _ if by => return refuse(e.span(), "`&mut` of a value that has no place: name it first"),
                    _ => self.expression(inner, None)?,
                };
                place.ty = Ty::Ref { mutable: by, to: Box::new(place.ty.value().clone()) };
                if place.effect == Effect::Reads && !is_indexed(inner) {
                    place.effect = Effect::None;
                }
                Ok(place)
            }
            _ => {
                let ex: Ex = self.expression(e, None)?;
                match &ex.ty {
                    Ty::Ref { mutable: true, .. } => Ok(ex),
                    Ty::Ref { mutable: false, .. } if !mutable => Ok(ex),
                    _ => refuse(e.span(), "a reference is wanted here"),
                }
            }
        }
    }

    /// `array[lo..hi]` as a slice.
    fn part(&mut self, array: &Expr, range: &syn::ExprRange, mutable: bool) -> Result<Ex> {
        let (lo, hi, closed): (&Expr, &Expr, bool) = Body::ends(range)?;
        if closed {
            return refuse(range.span(), "`..=` as part of an array: use `..`");
        }
        let base: Ex = self.expression(array, None)?;
        let of: Ty = match base.ty.value() {
            Ty::Array(of, _) | Ty::Slice(of) => (**of).clone(),
            ty => return refuse(array.span(), format!("part of {}", ty.rust(self.krate))),
        };
        let index: Ty = Ty::Int(Int::Usize);
        let ends: Vec<Ex> = self
            .operands([(lo, &index), (hi, &index)].into_iter(), |body, e, ty| body.expression(e, Some(ty)))?;
        let effect: Effect = Body::effect(&ends);
        if effect == Effect::Writes {
            return refuse(range.span(), "an index that changes the state: name it with `let` first");
        }
        let ty: Ty = Ty::Ref { mutable, to: Box::new(Ty::Slice(Box::new(of))) };
        let code: String =
            format!("{}({}, {}, {})", ty.cpp(self.krate), base.code, ends[0].code, ends[1].code);
        Ok(Ex::new(code, ty, effect))
    }

    /// `u32::from(x)`, `u32::from_le_bytes([...])`.
    fn associated(&mut self, e: &ExprCall, path: &syn::Path) -> Result<Option<Ex>> {
        if path.segments.len() != 2 {
            return Ok(None);
        }
        let name: String = path.segments[1].ident.to_string();
        if path.segments[0].ident == "f64" && name == "from_bits" && e.args.len() == 1 {
            let ex: Ex = self.expression(&e.args[0], Some(&Ty::Int(Int::U64)))?;
            return Ok(Some(Ex::new(format!("rs::from_bits({})", ex.code), Ty::Float(true), ex.effect)));
        }
        let Some(int) = Int::from_name(&path.segments[0].ident.to_string()) else { return Ok(None) };
        let (Some(argument), 1) = (e.args.first(), e.args.len()) else {
            return refuse(e.span(), format!("`{}::{name}`", int.name()));
        };
        match name.as_str() {
            "from" => {
                let ex: Ex = self.expression(argument, None)?;
                let fits: bool = match &ex.ty {
                    Ty::Bool => true,
                    Ty::Int(from) => int.contains(from.min()) && int.contains(from.max()),
                    _ => false,
                };
                if !fits {
                    let from: String = ex.ty.rust(self.krate);
                    return refuse(e.span(), format!("`{}::from` of {from}", int.name()));
                }
                let code: String = format!("static_cast<{}>({})", int.cpp(), ex.code);
                Ok(Some(Ex::new(code, Ty::Int(int), ex.effect)))
            }
            "from_le_bytes" if int != Int::Usize => {
                let bytes: Ty = Ty::Array(Box::new(Ty::Int(Int::U8)), u64::from(int.bits() / 8));
                let ex: Ex = self.expression(argument, Some(&bytes))?;
                let code: String = format!("rs::from_le_bytes<{}>({})", int.cpp(), ex.code);
                Ok(Some(Ex::new(code, Ty::Int(int), ex.effect)))
            }
            _ => refuse(e.span(), format!("`{}::{name}`", int.name())),
        }
    }

    pub fn method(&mut self, e: &ExprMethodCall, want: Option<&Ty>) -> Result<Ex> {
        let name: String = e.method.to_string();
        if let Some(turbofish) = &e.turbofish {
            return refuse(turbofish.span(), "a method with type parameters");
        }
        let receiver: &Expr = unparenthesized(&e.receiver);
        if let (Expr::Range(range), "contains") = (receiver, name.as_str()) {
            return self.contains(e, range);
        }
        if name == "fill" || name == "copy_from_slice" {
            return self.bulk(e, &name);
        }
        let want: Option<&Ty> =
            want.filter(|ty| matches!(ty, Ty::Int(_)) && super::operators::is_bare(receiver));
        let ex: Ex = self.expression(receiver, want)?;
        let value: Ty = ex.ty.value().clone();
        if name == "len" && e.args.is_empty() {
            return match value {
                Ty::Array(_, length) => {
                    let ex: Ex = Ex::new(format!("{length}u"), Ty::Int(Int::Usize), Effect::None);
                    Ok(Ex { literal: true, ..ex })
                }
                Ty::Slice(_) => {
                    Ok(Ex::new(format!("{}.length", ex.wrapped()), Ty::Int(Int::Usize), Effect::None))
                }
                ty => refuse(e.span(), format!("`len` of {}", ty.rust(self.krate))),
            };
        }
        match value {
            Ty::Parameter(id) => self.trait_method(e, id, &ex),
            Ty::Int(int) => self.integer_method(e, &name, int, ex),
            Ty::Float(true) if name == "to_bits" && e.args.is_empty() => {
                Ok(Ex::new(format!("rs::to_bits({})", ex.code), Ty::Int(Int::U64), ex.effect))
            }
            ty => refuse(e.span(), format!("method `{name}` of {}", ty.rust(self.krate))),
        }
    }

    fn integer_method(&mut self, e: &ExprMethodCall, name: &str, int: Int, receiver: Ex) -> Result<Ex> {
        let ty: Ty = Ty::Int(int);
        if name == "to_le_bytes" && int != Int::Usize && e.args.is_empty() {
            let bytes: Ty = Ty::Array(Box::new(Ty::Int(Int::U8)), u64::from(int.bits() / 8));
            let code: String = format!("rs::to_le_bytes<{}>({})", int.cpp(), receiver.code);
            return Ok(Ex::new(code, bytes, receiver.effect));
        }
        let known = METHODS.iter().filter(|_| int != Int::Usize).chain(ANY_WIDTH).find(|(n, _)| *n == name);
        let Some((_, shape)) = known else {
            return refuse(e.method.span(), format!("method `{name}` of {}", int.name()));
        };
        if matches!(name, "abs" | "signum") && !int.signed() || name == "is_power_of_two" && int.signed() {
            return refuse(e.method.span(), format!("method `{name}` of {}", int.name()));
        }
        let (takes, result): (Vec<Ty>, Ty) = match shape {
            Shape::Same => (vec![ty.clone()], ty.clone()),
            Shape::Alone => (Vec::new(), ty.clone()),
            Shape::ByCount => (vec![Ty::Int(Int::U32)], ty.clone()),
            Shape::Count => (Vec::new(), Ty::Int(Int::U32)),
            Shape::Both => (vec![ty.clone(), ty.clone()], ty.clone()),
            Shape::Asks => (Vec::new(), Ty::Bool),
        };
        if takes.len() != e.args.len() {
            return refuse(
                e.span(),
                format!("`{name}` takes {} arguments, not {}", takes.len(), e.args.len()),
            );
        }
        if name == "abs_diff" && int.signed() {
            return refuse(e.method.span(), "method `abs_diff` of a signed type");
        }
        let arguments =
            std::iter::once((&*e.receiver, None)).chain(e.args.iter().zip(takes.iter().map(Some)));
        let mut first: Option<Ex> = Some(receiver);
        let parts: Vec<Ex> = self.operands(arguments, |body, e, ty| match first.take() {
            Some(receiver) => Ok(receiver),
            None => body.expression(e, ty),
        })?;
        let effect: Effect = Body::effect(&parts);
        let listed: Vec<String> = parts.iter().map(|p| p.code.clone()).collect();
        Ok(Ex::new(format!("rs::{name}<{}>({})", int.cpp(), listed.join(", ")), result, effect))
    }

    /// `(lo..hi).contains(&x)`.
    fn contains(&mut self, e: &ExprMethodCall, range: &syn::ExprRange) -> Result<Ex> {
        let (lo, hi, closed): (&Expr, &Expr, bool) = Body::ends(range)?;
        let (Some(Expr::Reference(argument)), 1) = (e.args.first(), e.args.len()) else {
            return refuse(e.span(), "`contains` of something else than `&x`");
        };
        let ty: Ty = self.type_of(&argument.expr)?.value().clone();
        let operands = [lo, hi, &argument.expr].into_iter().map(|e| (e, ()));
        let parts: Vec<Ex> = self.operands(operands, |body, e, ()| body.expression(e, Some(&ty)))?;
        if !matches!(ty, Ty::Int(_) | Ty::Float(_)) {
            return refuse(argument.span(), format!("`contains` of {}", ty.rust(self.krate)));
        }
        let name: &str = if closed { "in_closed" } else { "in_range" };
        let listed: Vec<String> = [&parts[2], &parts[0], &parts[1]].map(|p| p.code.clone()).to_vec();
        let code: String = format!("rs::{name}<{}>({})", ty.cpp(self.krate), listed.join(", "));
        Ok(Ex::new(code, Ty::Bool, Body::effect(&parts)))
    }

    /// `fill` and `copy_from_slice` of an array or a part of it.
    fn bulk(&mut self, e: &ExprMethodCall, name: &str) -> Result<Ex> {
        let (Some(argument), 1) = (e.args.first(), e.args.len()) else {
            return refuse(e.span(), format!("`{name}` takes one argument"));
        };
        let place: Ex = match unparenthesized(&e.receiver) {
            Expr::Index(index) if matches!(&*index.index, Expr::Range(_)) => {
                let Expr::Range(range) = &*index.index else { return refuse(e.span(), "a range") };
                self.part(&index.expr, range, true)?
            }
            receiver => self.place(receiver)?,
        };
        let of: Ty = match place.ty.value() {
            Ty::Array(of, _) | Ty::Slice(of) => (**of).clone(),
            ty => return refuse(e.span(), format!("`{name}` of {}", ty.rust(self.krate))),
        };
        let slice = |mutable: bool| Ty::Ref { mutable, to: Box::new(Ty::Slice(Box::new(of.clone()))) };
        let target: String = match place.ty.value() {
            Ty::Slice(_) => place.code,
            _ => format!("{}({})", slice(true).cpp(self.krate), place.code),
        };
        let value: Ex = if name == "fill" {
            self.expression(argument, Some(&of))?
        } else {
            self.argument(argument, &slice(false))?
        };
        self.line(format!("rs::{name}<{}>({target}, {});", of.cpp(self.krate), value.code));
        Ok(Ex::done(Ty::Unit))
    }

    pub fn macro_expression(&mut self, mac: &syn::Macro) -> Result<Ex> {
        let name: String = spelled(&mac.path);
        let span: Span = mac.path.span();
        match name.as_str() {
            // Checked in Rust only: they hold in a valid program.
            "debug_assert" | "debug_assert_eq" | "debug_assert_ne" => Ok(Ex::done(Ty::Unit)),
            "unreachable" => {
                self.line("rs::unreachable();");
                Ok(Ex::done(Ty::Never))
            }
            "matches" => {
                let parser = |input: syn::parse::ParseStream| -> syn::Result<(Expr, Pat)> {
                    let e: Expr = input.parse()?;
                    input.parse::<Token![,]>()?;
                    let pattern: Pat = Pat::parse_multi_with_leading_vert(input)?;
                    input.parse::<Option<Token![,]>>()?;
                    Ok((e, pattern))
                };
                match parser.parse2(mac.tokens.clone()) {
                    Ok((e, pattern)) => self.matches(&e, &pattern),
                    Err(e) => refuse(span, format!("`matches!`: {e}")),
                }
            }
            _ => refuse(span, format!("macro `{name}!`")),
        }
    }
}

fn unparenthesized(e: &Expr) -> &Expr {
    match e {
        Expr::Paren(inner) => unparenthesized(&inner.expr),
        other => other,
    }
}

/// True if the place depends on a value.
fn is_indexed(e: &Expr) -> bool {
    match e {
        Expr::Paren(inner) => is_indexed(&inner.expr),
        Expr::Field(field) => is_indexed(&field.base),
        Expr::Index(_) => true,
        _ => false,
    }
}
