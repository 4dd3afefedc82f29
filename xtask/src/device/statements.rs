//! Statements: `let`, assignment, `if`, loops, `return`; and values that each arm stores in a place.

use super::body::{Body, Effect, Ex, Target};
use super::constants;
use super::refusal::{Refusal, Result, refuse};
use super::source;
use super::types::{Int, Ty};
use syn::spanned::Spanned;
use syn::{Block, Expr, ExprForLoop, ExprIf, ExprRange, Ident, Item, Local, Pat, Stmt, Type};

/// Loops with more iterations than this are not unrolled.
const LONG_LOOP: i128 = 18;
/// Placed before loops that stay loops.
pub const ROLLED_LOOP: &str = "PARL_ROLLED";
/// Placed before shorter loops of a known length; `prelude.cuh` defines it.
pub const SHORT_LOOP: &str = "PARL_SHORT";
/// Types that are tried for an unsuffixed loop variable: Rust's default first, then the usual ones.
const LOOP_TYPES: [Int; 9] =
    [Int::I32, Int::Usize, Int::U32, Int::U8, Int::U16, Int::U64, Int::I64, Int::I16, Int::I8];

impl Body<'_> {
    /// Translates the statements of a block; its value goes to `target`.
    pub fn block(&mut self, block: &Block, target: &Target) -> Result<()> {
        let Some((last, before)) = block.stmts.split_last() else { return Ok(()) };
        for statement in before {
            self.statement(statement)?;
        }
        match last {
            Stmt::Expr(tail, None) => self.send(tail, target),
            other => self.statement(other),
        }
    }

    pub fn statement(&mut self, statement: &Stmt) -> Result<()> {
        match statement {
            Stmt::Local(local) => self.declaration(local),
            Stmt::Item(Item::Const(_)) => Ok(()),
            Stmt::Item(Item::Use(_)) => {
                refuse(statement.span(), "`use` in a function: put it at the top of the file")
            }
            Stmt::Item(item) if source::is_host_only(source::attributes(item)) => Ok(()),
            Stmt::Item(_) => refuse(statement.span(), "an item in a function, other than `const`"),
            Stmt::Macro(m) => self.macro_expression(&m.mac).map(|_| ()),
            Stmt::Expr(e, _) => self.send(e, &Target::Discard),
        }
    }

    /// Writes the lines that store the value of `e` in `target`.
    pub fn send(&mut self, e: &Expr, target: &Target) -> Result<()> {
        match e {
            Expr::Paren(inner) => return self.send(&inner.expr, target),
            Expr::Block(block) => {
                if let Some(label) = &block.label {
                    return refuse(label.span(), "a label");
                }
                self.open("");
                self.block(&block.block, target)?;
                self.close();
                return Ok(());
            }
            Expr::If(e_if) => {
                if matches!(target, Target::Return(_) | Target::Set(..))
                    && let Some(ex) = self.conditional(e, target.ty())?
                {
                    return self.put(e, &ex, target);
                }
                return self.branch(e_if, target);
            }
            Expr::Match(e_match) => return self.match_to(e_match, target),
            _ => {}
        }
        let ex: Ex = self.expression(e, target.ty().filter(|ty| **ty != Ty::Unit))?;
        self.put(e, &ex, target)
    }

    fn put(&mut self, e: &Expr, ex: &Ex, target: &Target) -> Result<()> {
        if matches!(ex.ty, Ty::Never) {
            return Ok(());
        }
        match target {
            Target::Discard if ex.code.is_empty() => {}
            Target::Discard if matches!(e, Expr::Call(_)) => self.line(format!("{};", ex.code)),
            Target::Discard if ex.effect == Effect::Writes => {
                self.line(format!("static_cast<void>({});", ex.code))
            }
            Target::Discard => {}
            Target::Return(Ty::Unit) | Target::Set(_, Ty::Unit) => {
                if !ex.code.is_empty() {
                    self.line(format!("{};", ex.code));
                }
            }
            Target::Return(_) => self.line(format!("return {};", ex.code)),
            Target::Set(place, _) => self.line(format!("{place} = {};", ex.code)),
        }
        Ok(())
    }

    fn branch(&mut self, e: &ExprIf, target: &Target) -> Result<()> {
        let condition: Ex = self.expression(&e.cond, Some(&Ty::Bool))?;
        self.open(format!("if ({}) ", condition.code));
        self.block(&e.then_branch, target)?;
        let mut rest: Option<&Expr> = e.else_branch.as_ref().map(|(_, e)| &**e);
        let mut nested: usize = 0;
        while let Some(e) = rest {
            match e {
                Expr::If(next) => {
                    let mark = self.mark();
                    self.leave();
                    let at: usize = self.lines.len();
                    let condition: Ex = self.expression(&next.cond, Some(&Ty::Bool))?;
                    if self.lines.len() == at {
                        self.line(format!("}} else if ({}) {{", condition.code));
                        self.enter();
                    } else {
                        // The condition needs lines of its own, which go into the `else`.
                        self.undo(mark);
                        self.leave();
                        self.line("} else {");
                        self.enter();
                        let condition: Ex = self.expression(&next.cond, Some(&Ty::Bool))?;
                        self.open(format!("if ({}) ", condition.code));
                        nested += 1;
                    }
                    self.block(&next.then_branch, target)?;
                    rest = next.else_branch.as_ref().map(|(_, e)| &**e);
                }
                other => {
                    self.leave();
                    self.line("} else {");
                    self.enter();
                    match other {
                        Expr::Block(block) => self.block(&block.block, target)?,
                        other => self.send(other, target)?,
                    }
                    rest = None;
                }
            }
        }
        for _ in 0..=nested {
            self.close();
        }
        Ok(())
    }

    fn declaration(&mut self, local: &Local) -> Result<()> {
        if let Some(cfg) = local.attrs.iter().find(|a| a.path().is_ident("cfg")) {
            return refuse(cfg.span(), "#[cfg] on a statement");
        }
        if let Some((token, _)) = local.init.as_ref().and_then(|init| init.diverge.as_ref()) {
            return refuse(token.span(), "`let ... else`");
        }
        let init: Option<&Expr> = local.init.as_ref().map(|init| &*init.expr);
        match &local.pat {
            Pat::Type(typed) => match &*typed.pat {
                Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() => {
                    let ty: Ty = self.krate.ty(self.module, &typed.ty)?;
                    self.variable(&p.ident, p.mutability.is_some(), ty, init)
                }
                Pat::Tuple(tuple) => self.take_apart(tuple, &typed.ty, init),
                Pat::Wild(_) => init.map_or(Ok(()), |e| {
                    let ty: Ty = self.krate.ty(self.module, &typed.ty)?;
                    let ex: Ex = self.expression(e, Some(&ty))?;
                    self.put(e, &ex, &Target::Discard)
                }),
                other => refuse(other.span(), "this pattern in `let`"),
            },
            Pat::Wild(_) => init.map_or(Ok(()), |e| self.send(e, &Target::Discard)),
            other => refuse(other.span(), "`let` without its type"),
        }
    }

    fn variable(&mut self, name: &Ident, mutable: bool, ty: Ty, init: Option<&Expr>) -> Result<()> {
        let unused: &str = if name.to_string().starts_with('_') { "[[maybe_unused]] " } else { "" };
        if let Ty::Ref { .. } = &ty {
            let Some(init) = init else { return refuse(name.span(), "a reference without a value") };
            if mutable {
                return refuse(name.span(), "a reference that is set again: use an index");
            }
            let place: Ex = self.argument(init, &ty)?;
            let cpp: String = self.declare(name, ty.clone(), false)?;
            self.line(format!("{unused}{} {cpp} = {};", ty.cpp(self.krate), place.code));
            return Ok(());
        }
        let spelled: String = ty.cpp(self.krate);
        let Some(init) = init else {
            let cpp: String = self.declare(name, ty, true)?;
            self.line(format!("{unused}{spelled} {cpp}{{}};"));
            return Ok(());
        };
        if matches!(init, Expr::If(_) | Expr::Match(_) | Expr::Block(_)) {
            let Some(ex) = self.conditional(init, Some(&ty))? else {
                // The initial value may refer to an older variable of the same name: the new one is declared
                // after it.
                let mark = self.mark();
                let cpp: String = self.declare(name, ty.clone(), mutable)?;
                self.undo(mark);
                self.reserve(&cpp);
                self.line(format!("{unused}{spelled} {cpp}{{}};"));
                self.send(init, &Target::Set(cpp.clone(), ty.clone()))?;
                self.bind(name, cpp, ty, mutable);
                return Ok(());
            };
            return self.initialized(name, mutable, ty, &ex, unused);
        }
        let ex: Ex = self.expression(init, Some(&ty))?;
        self.initialized(name, mutable, ty, &ex, unused)
    }

    fn initialized(&mut self, name: &Ident, mutable: bool, ty: Ty, ex: &Ex, unused: &str) -> Result<()> {
        let constant: &str = if mutable { "" } else { "const " };
        let spelled: String = ty.cpp(self.krate);
        let cpp: String = self.declare(name, ty, mutable)?;
        self.line(format!("{unused}{constant}{spelled} {cpp} = {};", ex.code));
        Ok(())
    }

    /// `let (a, b): (A, B) = value;`
    fn take_apart(&mut self, tuple: &syn::PatTuple, written: &Type, init: Option<&Expr>) -> Result<()> {
        let ty: Ty = self.krate.ty(self.module, written)?;
        let (Ty::Tuple(of), Some(init)) = (&ty, init) else {
            return refuse(tuple.span(), "a tuple pattern needs a tuple type and a value");
        };
        if of.len() != tuple.elems.len() {
            return refuse(tuple.span(), format!("{} names for a tuple of {}", tuple.elems.len(), of.len()));
        }
        let whole: Ex = self.expression(init, Some(&ty))?;
        let whole: Ex = self.spill(&whole);
        for (at, (pattern, of)) in tuple.elems.iter().zip(of).enumerate() {
            match pattern {
                Pat::Wild(_) => {}
                Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() => {
                    let part: Ex = Ex::new(format!("{}._{at}", whole.code), of.clone(), Effect::None);
                    let unused: &str =
                        if p.ident.to_string().starts_with('_') { "[[maybe_unused]] " } else { "" };
                    self.initialized(&p.ident, p.mutability.is_some(), of.clone(), &part, unused)?;
                }
                other => return refuse(other.span(), "this pattern in `let`"),
            }
        }
        Ok(())
    }

    /// Expressions as statements, without a value or diverging.
    pub fn action(&mut self, e: &Expr) -> Result<Ex> {
        match e {
            Expr::Assign(e) => self.assignment(e)?,
            Expr::While(e) => {
                if let Some(label) = &e.label {
                    return refuse(label.span(), "a label");
                }
                let mark = self.mark();
                let at: usize = self.lines.len();
                let condition: Ex = self.expression(&e.cond, Some(&Ty::Bool))?;
                if self.lines.len() == at {
                    self.open(format!("while ({}) ", condition.code));
                } else {
                    self.undo(mark);
                    self.open("for (;;) ");
                    let condition: Ex = self.expression(&e.cond, Some(&Ty::Bool))?;
                    self.open(format!("if (!{}) ", condition.wrapped()));
                    self.line("break;");
                    self.close();
                }
                self.block(&e.body, &Target::Discard)?;
                self.close();
            }
            Expr::Loop(e) => {
                if let Some(label) = &e.label {
                    return refuse(label.span(), "a label");
                }
                self.open("for (;;) ");
                self.block(&e.body, &Target::Discard)?;
                self.close();
            }
            Expr::ForLoop(e) => self.for_loop(e)?,
            Expr::Return(e) => {
                match (&e.expr, self.function.map(|f| f.result.clone())) {
                    (Some(value), Some(ty)) => self.send(value, &Target::Return(ty.clone()))?,
                    _ => self.line("return;"),
                }
                if e.expr.is_some() && self.function.is_some_and(|f| f.result == Ty::Unit) {
                    self.line("return;");
                }
                return Ok(Ex::done(Ty::Never));
            }
            Expr::Break(e) => {
                if let Some(label) = &e.label {
                    return refuse(label.span(), "a label");
                }
                if let Some(value) = &e.expr {
                    return refuse(value.span(), "`break` with a value");
                }
                self.line("break;");
                return Ok(Ex::done(Ty::Never));
            }
            Expr::Continue(e) => {
                if let Some(label) = &e.label {
                    return refuse(label.span(), "a label");
                }
                self.line("continue;");
                return Ok(Ex::done(Ty::Never));
            }
            _ => return refuse(e.span(), "this kind of expression"),
        }
        Ok(Ex::done(Ty::Unit))
    }

    /// `place = value`: the value is evaluated first, then the place.
    fn assignment(&mut self, e: &syn::ExprAssign) -> Result<()> {
        if let Expr::Infer(_) = &*e.left {
            return self.send(&e.right, &Target::Discard);
        }
        if let Expr::Tuple(_) = &*e.left {
            return refuse(e.left.span(), "assignment to a tuple: one by one");
        }
        let mark = self.mark();
        let place: Ex = self.place(&e.left)?;
        let plain: bool = self.lines.len() == mark.line_count();
        self.undo(mark);
        if let Ty::Ref { .. } = place.ty {
            return refuse(e.left.span(), "a reference that is set again: use `*` or an index");
        }
        if matches!(&*e.right, Expr::If(_) | Expr::Match(_) | Expr::Block(_)) && plain {
            return self.send(&e.right, &Target::Set(place.code, place.ty));
        }
        let mut value: Ex = self.expression(&e.right, Some(&place.ty))?;
        let at: usize = self.lines.len();
        let place: Ex = self.place(&e.left)?;
        if self.lines.len() > at && value.effect == Effect::Writes {
            let mut values: [Ex; 1] = [value];
            self.spill_before(at, &mut values);
            [value] = values;
        }
        if let Ty::Struct(_) = place.ty {
            // Large values are copied word by word: the compiler would copy bytes.
            self.line(format!("rs::put({}, {});", place.code, value.code));
        } else {
            self.line(format!("{} = {};", place.code, value.code));
        }
        Ok(())
    }

    fn for_loop(&mut self, e: &ExprForLoop) -> Result<()> {
        if let Some(label) = &e.label {
            return refuse(label.span(), "a label");
        }
        let (range, down): (&ExprRange, bool) = match unparenthesized(&e.expr) {
            Expr::Range(range) => (range, false),
            Expr::MethodCall(call) if call.method == "rev" => match unparenthesized(&call.receiver) {
                Expr::Range(range) => (range, true),
                other => return refuse(other.span(), "`rev` of something else than a range"),
            },
            other => return refuse(other.span(), "`for` over something else than a range: count an index"),
        };
        let name: Option<&Ident> = match &*e.pat {
            Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() && p.mutability.is_none() => {
                Some(&p.ident)
            }
            Pat::Wild(_) => None,
            other => return refuse(other.span(), "this pattern in `for`"),
        };
        let (lo, hi, _) = Body::ends(range)?;
        let known: Option<Ty> = match (super::operators::is_bare(lo), super::operators::is_bare(hi)) {
            (false, _) => Some(self.type_of(lo)?),
            (true, false) => Some(self.type_of(hi)?),
            (true, true) => None,
        };
        match known {
            Some(Ty::Int(int)) => self.counted(e, range, down, name, int),
            Some(ty) => refuse(range.span(), format!("a range of {}", ty.rust(self.krate))),
            None => {
                // Rust infers the type from the uses. The program is valid, so the first type that compiles
                // is correct.
                let mut furthest: Option<Refusal> = None;
                for int in LOOP_TYPES {
                    let mark = self.mark();
                    match self.counted(e, range, down, name, int) {
                        Ok(()) => return Ok(()),
                        Err(refusal) => {
                            let place = |r: &Refusal| (r.line, r.column);
                            if furthest.as_ref().is_none_or(|f| place(f) < place(&refusal)) {
                                furthest = Some(refusal);
                            }
                            self.undo(mark);
                        }
                    }
                }
                furthest.map_or(Ok(()), Err)
            }
        }
    }

    fn counted(
        &mut self,
        e: &ExprForLoop,
        range: &ExprRange,
        down: bool,
        name: Option<&Ident>,
        int: Int,
    ) -> Result<()> {
        let ty: Ty = Ty::Int(int);
        let (lo, hi, closed): (&Expr, &Expr, bool) = Body::ends(range)?;
        let known: Option<i128> = constants::number(self.krate, self.module, hi, Some(int)).ok();
        let bounds: Vec<Ex> =
            self.operands([(lo, ()), (hi, ())].into_iter(), |body, e, ()| body.expression(e, Some(&ty)))?;
        let [first, mut end] = match <[Ex; 2]>::try_from(bounds) {
            Ok(two) => two,
            Err(_) => return refuse(range.span(), "a range"),
        };
        let mut first: Ex = first;
        if first.effect == Effect::Writes {
            first = self.spill(&first);
        }
        if end.effect >= Effect::Reads {
            end = self.spill(&end);
        }
        self.enter();
        let variable: String = match name {
            Some(name) => self.declare(name, ty.clone(), false)?,
            None => self.temporary(),
        };
        self.depth -= 1;
        let (cpp, lo, hi): (&str, String, String) = (int.cpp(), first.wrapped(), end.wrapped());
        if known.is_some_and(|hi| hi >= LONG_LOOP) {
            self.line(ROLLED_LOOP);
        } else if known.is_some() {
            self.line(SHORT_LOOP);
        }
        match (down, closed) {
            (false, false) => self
                .line(format!("for ({cpp} {variable} = {}; {variable} < {hi}; ++{variable}) {{", first.code)),
            (false, true) if known.is_some_and(|hi| hi < int.max()) => {
                self.line(format!(
                    "for ({cpp} {variable} = {}; {variable} <= {hi}; ++{variable}) {{",
                    first.code
                ));
            }
            (false, true) => {
                // The last value may be the maximum of its type: test before incrementing.
                let more: String = self.temporary();
                let any: String =
                    if known == Some(int.max()) { "true".into() } else { format!("{variable} <= {hi}") };
                self.line(format!("{cpp} {variable} = {};", first.code));
                self.line(format!(
                    "for (bool {more} = {any}; {more}; {more} = {variable} < {hi}, ++{variable}) {{"
                ));
            }
            (true, false) => {
                self.line(format!("for ({cpp} {variable} = {}; {variable} > {lo};) {{", end.code))
            }
            (true, true) => return refuse(range.span(), "`rev` of a range with `..=`"),
        }
        self.depth += 1;
        if down {
            self.line(format!("--{variable};"));
        }
        self.block(&e.body, &Target::Discard)?;
        self.close();
        Ok(())
    }
}

fn unparenthesized(e: &Expr) -> &Expr {
    match e {
        Expr::Paren(inner) => unparenthesized(&inner.expr),
        other => other,
    }
}
