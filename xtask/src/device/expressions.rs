//! Expressions: literals, paths, places, structs, arrays; the other kinds are translated in other files.

use super::body::{Body, Effect, Ex, Target};
use super::constants;
use super::names::{Def, Space, cpp_name, spelled};
use super::refusal::{Result, refuse};
use super::types::{Int, Ty};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, ExprStruct, Lit, Member, RangeLimits, UnOp};

/// Fields that are reached by a macro of `prelude.cuh`: struct, field, macro.
const MACROS: [(&str, &str, &str); 1] = [("Board", "line", "PARL_LINE")];

impl Body<'_> {
    /// Translates an expression. `want` is the type that the context requires, if any.
    pub fn expression(&mut self, e: &Expr, want: Option<&Ty>) -> Result<Ex> {
        let ex: Ex = match e {
            Expr::Paren(inner) => self.expression(&inner.expr, want)?,
            Expr::Group(inner) => self.expression(&inner.expr, want)?,
            Expr::Lit(lit) => self.literal(lit, want)?,
            Expr::Path(path) => self.path(path)?,
            Expr::Field(field) => self.field(field)?,
            Expr::Index(index) => self.index(index)?,
            Expr::Unary(unary) => self.unary(unary, want)?,
            Expr::Binary(binary) => self.binary(binary, want)?,
            Expr::Cast(cast) => self.cast(cast)?,
            Expr::Call(call) => self.call(call)?,
            Expr::MethodCall(call) => self.method(call, want)?,
            Expr::Macro(m) => self.macro_expression(&m.mac)?,
            Expr::Reference(reference) => {
                let what = "a reference outside of arguments and `let x: &T`";
                return refuse(reference.span(), what);
            }
            Expr::Struct(s) => self.structure(s)?,
            Expr::Array(array) => self.array(array, want)?,
            Expr::Repeat(repeat) => self.repeat(repeat, want)?,
            Expr::Tuple(tuple) => self.tuple(tuple, want)?,
            Expr::If(_) | Expr::Match(_) | Expr::Block(_) => self.structured(e, want)?,
            Expr::Assign(_)
            | Expr::While(_)
            | Expr::Loop(_)
            | Expr::ForLoop(_)
            | Expr::Return(_)
            | Expr::Break(_)
            | Expr::Continue(_) => self.action(e)?,
            Expr::Closure(_) => return refuse(e.span(), "a closure"),
            Expr::Unsafe(_) => return refuse(e.span(), "unsafe code"),
            Expr::Try(_) => return refuse(e.span(), "`?`"),
            Expr::Let(_) => return refuse(e.span(), "`let` in a condition: match or compare instead"),
            Expr::Range(_) => return refuse(e.span(), "a range outside of `for`, `match` and `contains`"),
            Expr::RawAddr(_) => return refuse(e.span(), "a raw pointer"),
            Expr::Async(_) | Expr::Await(_) => return refuse(e.span(), "asynchronous code"),
            Expr::Const(_) => return refuse(e.span(), "a const block"),
            _ => return refuse(e.span(), "this kind of expression"),
        };
        if let Some(want) = want
            && ex.ty != Ty::Never
        {
            self.agree(e, &ex.ty, want)?;
        }
        Ok(ex)
    }

    /// Refuses a value whose type is not the wanted one: Rust would not compile it, or a literal needs a
    /// suffix.
    pub fn agree(&self, e: &Expr, is: &Ty, want: &Ty) -> Result<()> {
        if is.value() == want.value() {
            return Ok(());
        }
        let (is, want): (String, String) = (is.rust(self.krate), want.rust(self.krate));
        refuse(
            e.span(),
            format!("type {is} where {want} is wanted: write the type of the literal or variable"),
        )
    }

    fn literal(&mut self, e: &ExprLit, want: Option<&Ty>) -> Result<Ex> {
        match &e.lit {
            Lit::Bool(bool) => {
                let ex: Ex = Ex::new(bool.value.to_string(), Ty::Bool, Effect::None);
                Ok(Ex { literal: true, ..ex })
            }
            Lit::Int(int) => {
                if matches!(int.suffix(), "f32" | "f64") {
                    return refuse(int.span(), "write a float with its point");
                }
                let suffix: Option<Int> = match int.suffix() {
                    "" => None,
                    suffix => match Int::from_name(suffix) {
                        Some(int) => Some(int),
                        None => return refuse(int.span(), format!("type `{suffix}`")),
                    },
                };
                let ty: Int = match (suffix, want) {
                    (Some(int), _) => int,
                    (None, Some(Ty::Int(int))) => *int,
                    _ => Int::I32,
                };
                self.integer(e, ty, false)
            }
            Lit::Float(float) => {
                let single: bool =
                    float.suffix() == "f32" || (float.suffix().is_empty() && want == Some(&Ty::Float(false)));
                self.float(float, !single)
            }
            Lit::Byte(byte) => {
                let ex: Ex = Ex::new(byte.value().to_string(), Ty::Int(Int::U8), Effect::None);
                Ok(Ex { literal: true, ..ex.inexact() })
            }
            Lit::Str(_) => refuse(e.span(), "text outside of a row of a table"),
            _ => refuse(e.span(), "this kind of literal"),
        }
    }

    fn float(&mut self, float: &syn::LitFloat, double: bool) -> Result<Ex> {
        let code: String = if double {
            match float.base10_parse::<f64>() {
                Ok(value) => format!("{value:?}"),
                Err(e) => return refuse(float.span(), e.to_string()),
            }
        } else {
            match float.base10_parse::<f32>() {
                Ok(value) => format!("{value:?}f"),
                Err(e) => return refuse(float.span(), e.to_string()),
            }
        };
        Ok(Ex { literal: true, ..Ex::new(code, Ty::Float(double), Effect::None) })
    }

    /// An integer literal in its original notation, hexadecimal or decimal. `negative`: with a minus sign.
    pub fn integer(&mut self, e: &ExprLit, ty: Int, negative: bool) -> Result<Ex> {
        let Lit::Int(int) = &e.lit else { return refuse(e.span(), "not an integer") };
        let Ok(value) = int.base10_parse::<u64>() else {
            return refuse(int.span(), "an integer literal of more than 64 bits");
        };
        let value: i128 = if negative { -i128::from(value) } else { i128::from(value) };
        if !ty.contains(value) {
            return refuse(e.span(), format!("literal {value} is outside {}", ty.name()));
        }
        let written: String = int.to_string();
        let hexadecimal: bool = written.starts_with("0x") && !negative && value <= ty.max();
        let code: String = if hexadecimal {
            let digits: String = written[2..].trim_end_matches(int.suffix()).replace('_', "");
            format!("0x{digits}{}", ty.suffix())
        } else {
            ty.literal(value)
        };
        let ex: Ex = Ex::new(code, Ty::Int(ty), Effect::None);
        let ex: Ex = if ty.bits() == 32 { ex } else { ex.inexact() };
        let ex: Ex = if negative { ex.compound() } else { ex };
        Ok(Ex { literal: true, ..ex })
    }

    fn path(&mut self, e: &syn::ExprPath) -> Result<Ex> {
        if let Some(name) = e.path.get_ident() {
            let name: String = name.to_string();
            if let Some(local) = self.local(&name) {
                let effect: Effect = match &local.ty {
                    Ty::Ref { .. } => Effect::None,
                    _ if local.mutable => Effect::Reads,
                    _ => Effect::None,
                };
                return Ok(Ex::new(local.cpp.clone(), local.ty.clone(), effect));
            }
            if let Some(id) = self.function.and_then(|f| f.constants.get(&name)) {
                return Ok(self.constant(*id));
            }
        }
        if let (Some(first), 2) = (e.path.segments.first(), e.path.segments.len())
            && let Some(int) = Int::from_name(&first.ident.to_string())
        {
            if int == Int::Usize {
                return refuse(e.span(), "a limit of `usize`, which has 32 bits on the device");
            }
            let value: i128 = constants::number(self.krate, self.module, &Expr::Path(e.clone()), None)?;
            let ty: Int = if e.path.segments[1].ident == "BITS" { Int::U32 } else { int };
            let ex: Ex = Ex::new(ty.literal(value), Ty::Int(ty), Effect::None).inexact();
            let negative: bool = value < 0;
            return Ok(if negative { ex.compound() } else { Ex { literal: true, ..ex } });
        }
        match self.krate.resolve(self.module, &e.path, Space::Values)? {
            Def::Const(id) => Ok(self.constant(id)),
            Def::Variant(id, at) => {
                let ty: Ty = Ty::Enum(id);
                let code: String =
                    format!("{}::{}", ty.cpp(self.krate), cpp_name(&self.krate.enums[id].variants[at].0));
                Ok(Ex { literal: true, ..Ex::new(code, ty, Effect::None) })
            }
            Def::Function(_) => refuse(e.span(), "a function as a value"),
            _ => refuse(e.span(), format!("`{}` is not a value of the device subset", spelled(&e.path))),
        }
    }

    /// Scalars and tables are C++ constants; other constants are functions without parameters.
    fn constant(&mut self, id: usize) -> Ex {
        let item = &self.krate.consts[id];
        let path: String = self.krate.cpp_path(item.module, &item.name);
        let code: String = if is_object(&item.ty) { path } else { format!("{path}()") };
        Ex::new(code, item.ty.clone(), Effect::None)
    }

    fn field(&mut self, e: &syn::ExprField) -> Result<Ex> {
        let base: Ex = self.expression(&e.base, None)?;
        let effect: Effect = place_effect(&base);
        let (name, ty): (String, Ty) = match (base.ty.value(), &e.member) {
            (Ty::Struct(id), Member::Named(name)) => {
                let item = &self.krate.structs[*id];
                if item.text_fields.iter().any(|t| name == t) {
                    return refuse(
                        e.span(),
                        format!("field `{name}` is text, which the device does not have"),
                    );
                }
                match item.fields.iter().find(|f| *name == f.name) {
                    Some(field) => (cpp_name(&field.name), field.ty.clone()),
                    None => return refuse(e.span(), format!("`{}` has no field `{name}`", item.name)),
                }
            }
            (Ty::Tuple(of), Member::Unnamed(index)) => match of.get(index.index as usize) {
                Some(ty) => (format!("_{}", index.index), ty.clone()),
                None => {
                    return refuse(e.span(), format!("a tuple of {} has no field {}", of.len(), index.index));
                }
            },
            (ty, _) => return refuse(e.span(), format!("a field of type {}", ty.rust(self.krate))),
        };
        let owner = match base.ty.value() {
            Ty::Struct(id) => self.krate.structs[*id].name.as_str(),
            _ => "",
        };
        let code = match MACROS.iter().find(|(of, field, _)| (*of, *field) == (owner, name.as_str())) {
            Some((.., text)) => format!("{text}({})", base.code),
            None => format!("{}.{name}", base.wrapped()),
        };
        Ok(Ex::new(code, ty, effect))
    }

    fn index(&mut self, e: &syn::ExprIndex) -> Result<Ex> {
        if matches!(&*e.index, Expr::Range(_)) {
            return refuse(e.span(), "part of an array outside of arguments, `fill` and `copy_from_slice`");
        }
        let base: Ex = self.expression(&e.expr, None)?;
        let index: Ex = self.expression(&e.index, Some(&Ty::Int(Int::Usize)))?;
        if index.effect == Effect::Writes {
            return refuse(e.index.span(), "an index that changes the state: name it with `let` first");
        }
        let ty: Ty = match base.ty.value() {
            Ty::Array(of, _) | Ty::Slice(of) => (**of).clone(),
            ty => return refuse(e.expr.span(), format!("an index into {}", ty.rust(self.krate))),
        };
        let effect: Effect = place_effect(&base).max(index.effect);
        Ok(Ex::new(format!("{}[{}]", base.wrapped(), index.code), ty, effect))
    }

    /// A place that is assigned to or borrowed.
    pub fn place(&mut self, e: &Expr) -> Result<Ex> {
        match e {
            Expr::Paren(inner) => self.place(&inner.expr),
            Expr::Path(_) | Expr::Field(_) | Expr::Index(_) => self.expression(e, None),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Deref(_)) => self.expression(e, None),
            _ => refuse(e.span(), "this is not a place"),
        }
    }

    fn structure(&mut self, e: &ExprStruct) -> Result<Ex> {
        let Def::Struct(id) = self.krate.resolve(self.module, &e.path, Space::Types)? else {
            return refuse(e.path.span(), format!("`{}` is not a struct", spelled(&e.path)));
        };
        let krate = self.krate;
        let item = &krate.structs[id];
        let mut places: Vec<usize> = Vec::new();
        let mut values: Vec<(&Expr, Ty)> = Vec::new();
        for value in &e.fields {
            let Member::Named(name) = &value.member else { return refuse(value.span(), "an unnamed field") };
            if item.text_fields.iter().any(|t| name == t) {
                continue;
            }
            let Some(at) = item.fields.iter().position(|f| *name == f.name) else {
                return refuse(value.span(), format!("`{}` has no field `{name}`", item.name));
            };
            places.push(at);
            values.push((&value.expr, item.fields[at].ty.clone()));
        }
        let ty: Ty = Ty::Struct(id);
        if let Some(Expr::Path(rest)) = e.rest.as_deref()
            && let Ok(Def::Const(base)) = krate.resolve(self.module, &rest.path, Space::Values)
        {
            return self.completed(id, base, &places, values);
        }
        if let Some(rest) = &e.rest {
            values.push((rest, ty.clone()));
        }
        let parts: Vec<Ex> =
            self.operands(values.into_iter(), |body, e, ty| body.expression(e, Some(&ty)))?;
        let effect: Effect = Body::effect(&parts);
        let name: String = ty.cpp(krate);
        if e.rest.is_some() {
            let (base, fields) = parts.split_last().map_or((None, parts.as_slice()), |(b, f)| (Some(b), f));
            let copy: String = self.temporary();
            let base: String = base.map(|b| b.code.clone()).unwrap_or_default();
            self.line(format!("{name} {copy} = {base};"));
            for (at, part) in places.iter().zip(fields) {
                self.line(format!("{copy}.{} = {};", cpp_name(&item.fields[*at].name), part.code));
            }
            return Ok(Ex::new(copy, ty, Effect::None));
        }
        let ordered: Vec<String> = (0..item.fields.len())
            .filter_map(|at| places.iter().position(|p| *p == at).map(|i| parts[i].in_braces(krate)))
            .collect();
        Ok(Ex::new(format!("{name}{{{}}}", ordered.join(", ")), ty, effect))
    }

    /// A struct whose other fields come from a constant: one expression, so that tables can have such rows.
    fn completed(
        &mut self,
        id: usize,
        base: usize,
        places: &[usize],
        values: Vec<(&Expr, Ty)>,
    ) -> Result<Ex> {
        let krate = self.krate;
        let item = &krate.structs[id];
        let ty: Ty = Ty::Struct(id);
        let base: Ex = self.constant(base);
        let parts: Vec<Ex> =
            self.operands(values.into_iter(), |body, e, ty| body.expression(e, Some(&ty)))?;
        let effect: Effect = Body::effect(&parts);
        let fields: Vec<String> = item
            .fields
            .iter()
            .enumerate()
            .map(|(at, field)| match places.iter().position(|place| *place == at) {
                Some(i) => parts[i].in_braces(krate),
                None => format!("{}.{}", base.code, cpp_name(&field.name)),
            })
            .collect();
        Ok(Ex::new(format!("{}{{{}}}", ty.cpp(krate), fields.join(", ")), ty, effect))
    }

    fn array(&mut self, e: &syn::ExprArray, want: Option<&Ty>) -> Result<Ex> {
        let mut of: Option<Ty> = match want {
            Some(Ty::Array(of, _)) => Some((**of).clone()),
            _ => None,
        };
        let parts: Vec<Ex> = self.operands(e.elems.iter().map(|e| (e, ())), |body, e, ()| {
            let ex: Ex = body.expression(e, of.as_ref())?;
            of.get_or_insert(ex.ty.clone());
            Ok(ex)
        })?;
        let Some(of) = of else { return refuse(e.span(), "an empty array") };
        let ty: Ty = Ty::Array(Box::new(of), parts.len() as u64);
        let effect: Effect = Body::effect(&parts);
        let listed: Vec<String> = parts.iter().map(|p| p.in_braces(self.krate)).collect();
        Ok(Ex::new(format!("{}{{{{{}}}}}", ty.cpp(self.krate), listed.join(", ")), ty, effect))
    }

    fn repeat(&mut self, e: &syn::ExprRepeat, want: Option<&Ty>) -> Result<Ex> {
        let of: Option<&Ty> = match want {
            Some(Ty::Array(of, _)) => Some(of),
            _ => None,
        };
        let value: Ex = self.expression(&e.expr, of)?;
        let length: i128 = constants::number(self.krate, self.module, &e.len, Some(Int::Usize))?;
        let Some(length) = u64::try_from(length).ok().filter(|n| *n > 0) else {
            return refuse(e.len.span(), format!("array length {length}"));
        };
        let ty: Ty = Ty::Array(Box::new(value.ty.clone()), length);
        let name: String = ty.cpp(self.krate);
        let zero: bool = is_zero(&e.expr);
        let code: String =
            if zero { format!("{name}{{}}") } else { format!("rs::filled<{name}>({})", value.code) };
        Ok(Ex::new(code, ty, value.effect))
    }

    fn tuple(&mut self, e: &syn::ExprTuple, want: Option<&Ty>) -> Result<Ex> {
        if e.elems.is_empty() {
            return Ok(Ex::done(Ty::Unit));
        }
        if !(2..=4).contains(&e.elems.len()) {
            return refuse(e.span(), format!("tuple of {}: 2 to 4 are known", e.elems.len()));
        }
        let wanted: Vec<Option<Ty>> = match want {
            Some(Ty::Tuple(of)) if of.len() == e.elems.len() => of.iter().cloned().map(Some).collect(),
            _ => vec![None; e.elems.len()],
        };
        let parts: Vec<Ex> =
            self.operands(e.elems.iter().zip(wanted), |body, e, ty| body.expression(e, ty.as_ref()))?;
        let ty: Ty = Ty::Tuple(parts.iter().map(|p| p.ty.clone()).collect());
        let effect: Effect = Body::effect(&parts);
        let listed: Vec<String> = parts.iter().map(|p| p.in_braces(self.krate)).collect();
        Ok(Ex::new(format!("{}{{{}}}", ty.cpp(self.krate), listed.join(", ")), ty, effect))
    }

    /// `if`, `match` or a block as a value: a conditional expression if possible, else a variable that the
    /// arms assign.
    fn structured(&mut self, e: &Expr, want: Option<&Ty>) -> Result<Ex> {
        if let Some(ex) = self.conditional(e, want)? {
            return Ok(ex);
        }
        let ty: Ty = match want {
            Some(ty) => ty.clone(),
            None => self.type_of(e)?,
        };
        if matches!(ty, Ty::Unit | Ty::Never) {
            self.send(e, &Target::Discard)?;
            return Ok(Ex::done(ty));
        }
        let name: String = self.temporary();
        self.line(format!("{} {name}{{}};", ty.cpp(self.krate)));
        self.send(e, &Target::Set(name.clone(), ty.clone()))?;
        Ok(Ex::new(name, ty, Effect::None))
    }

    /// `if` and block expressions without statements, as `a ? b : c`.
    pub fn conditional(&mut self, e: &Expr, want: Option<&Ty>) -> Result<Option<Ex>> {
        let (condition, yes, no): (&Expr, &Expr, &Expr) = match e {
            Expr::Paren(inner) => return self.conditional(&inner.expr, want),
            Expr::Block(block) => {
                return match block.block.stmts.as_slice() {
                    [syn::Stmt::Expr(tail, None)] => {
                        self.attempt(|body| body.expression(tail, want).map(Some))
                    }
                    _ => Ok(None),
                };
            }
            Expr::If(e) => match (e.then_branch.stmts.as_slice(), &e.else_branch) {
                ([syn::Stmt::Expr(yes, None)], Some((_, no))) => (&*e.cond, yes, &**no),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        if matches!(condition, Expr::Let(_)) {
            return Ok(None);
        }
        self.attempt(|body| {
            let condition: Ex = body.expression(condition, Some(&Ty::Bool))?;
            let at: usize = body.lines.len();
            let bare: bool = want.is_none() && super::operators::is_bare(yes);
            let (yes, no): (Ex, Ex) = if bare {
                let no: Ex = body.expression(no, None)?;
                (body.expression(yes, Some(&no.ty.clone()))?, no)
            } else {
                let yes: Ex = body.expression(yes, want)?;
                let ty: Ty = yes.ty.clone();
                (yes, body.expression(no, Some(&ty))?)
            };
            let plain = |ex: &Ex| !matches!(ex.ty, Ty::Unit | Ty::Never);
            if body.lines.len() > at || !plain(&yes) || !plain(&no) {
                return Ok(None);
            }
            let code: String = format!("{} ? {} : {}", condition.wrapped(), yes.wrapped(), no.wrapped());
            let effect: Effect = Body::effect(&[condition, yes.clone(), no.clone()]);
            let ex: Ex = Ex::new(code, yes.ty.clone(), effect).compound();
            Ok(Some(if yes.exact && no.exact { ex } else { ex.inexact() }))
        })
    }

    /// Calls `f`, and removes the lines that it wrote if it returns `None`.
    fn attempt(&mut self, f: impl FnOnce(&mut Self) -> Result<Option<Ex>>) -> Result<Option<Ex>> {
        let mark = self.mark();
        let ex: Option<Ex> = f(self)?;
        if ex.is_none() {
            self.undo(mark);
        }
        Ok(ex)
    }

    /// The type of an expression whose context requires none. No lines are written.
    pub fn type_of(&mut self, e: &Expr) -> Result<Ty> {
        let mark = self.mark();
        let ty: Result<Ty> = self.type_inside(e);
        self.undo(mark);
        ty
    }

    fn type_inside(&mut self, e: &Expr) -> Result<Ty> {
        match e {
            Expr::Paren(inner) => self.type_inside(&inner.expr),
            Expr::Block(block) => self.type_of_block(&block.block),
            Expr::If(e) => {
                let yes: Ty = self.type_of_block(&e.then_branch)?;
                match (&yes, &e.else_branch) {
                    (_, None) => Ok(Ty::Unit),
                    (Ty::Never, Some((_, no))) => self.type_inside(no),
                    _ => Ok(yes),
                }
            }
            Expr::Match(e) => {
                for arm in &e.arms {
                    let ty: Ty = self.type_inside(&arm.body)?;
                    if ty != Ty::Never {
                        return Ok(ty);
                    }
                }
                Ok(Ty::Never)
            }
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => Ok(Ty::Never),
            _ => Ok(self.expression(e, None)?.ty),
        }
    }

    fn type_of_block(&mut self, block: &syn::Block) -> Result<Ty> {
        self.enter();
        let (last, before) = match block.stmts.split_last() {
            Some(split) => split,
            None => return Ok(Ty::Unit),
        };
        for statement in before {
            self.statement(statement)?;
        }
        match last {
            syn::Stmt::Expr(tail, None) => self.type_inside(tail),
            syn::Stmt::Expr(Expr::Return(_) | Expr::Break(_) | Expr::Continue(_), Some(_)) => Ok(Ty::Never),
            _ => Ok(Ty::Unit),
        }
    }

    /// Both ends of `lo..hi` or `lo..=hi`.
    pub fn ends(e: &syn::ExprRange) -> Result<(&Expr, &Expr, bool)> {
        match (&e.start, &e.end) {
            (Some(lo), Some(hi)) => Ok((lo, hi, matches!(e.limits, RangeLimits::Closed(_)))),
            _ => refuse(e.span(), "a range without both ends"),
        }
    }
}

/// True for constants that are objects in C++; the others are functions.
pub fn is_object(ty: &Ty) -> bool {
    ty.is_scalar() || matches!(ty, Ty::Array(..))
}

/// The effect of reading a place: a read, or none for constants.
fn place_effect(base: &Ex) -> Effect {
    match base.ty {
        Ty::Ref { .. } => base.effect.max(Effect::Reads),
        _ => base.effect,
    }
}

/// True for `0`, `false`, and arrays of these.
fn is_zero(e: &Expr) -> bool {
    match e {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Int(int) => int.base10_parse::<u64>().is_ok_and(|v| v == 0),
            Lit::Bool(bool) => !bool.value,
            _ => false,
        },
        Expr::Repeat(repeat) => is_zero(&repeat.expr),
        Expr::Paren(inner) => is_zero(&inner.expr),
        _ => false,
    }
}
