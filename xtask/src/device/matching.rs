//! `match` and `matches!`: a `switch` if every arm is a set of numbers, else a chain of `if`.

use super::body::{Body, Effect, Ex, Target};
use super::constants;
use super::names::{Def, Space, cpp_name};
use super::refusal::{Result, refuse};
use super::types::{Int, Ty};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Expr, ExprMatch, Ident, Pat, RangeLimits};

/// A `match` with more numbers than this becomes comparisons.
const MOST_LABELS: usize = 300;

/// The condition of a pattern on one value.
enum Test {
    Any,
    /// The number is in `.0..=.1`.
    Numbers(i128, i128),
    /// The value is this variant of an enum.
    Variant(usize, usize),
    Bool(bool),
}

/// An alternative of an arm: per value the tests of which one must hold, and the names bound to values.
struct Alternative<'e> {
    tests: Vec<Vec<Test>>,
    names: Vec<(&'e Ident, usize)>,
}

impl Body<'_> {
    pub fn match_to(&mut self, e: &ExprMatch, target: &Target) -> Result<()> {
        let mut values: Vec<Ex> = self.scrutinees(&e.expr)?;
        let mut arms: Vec<(Vec<Alternative<'_>>, Option<&Expr>)> = Vec::new();
        for arm in &e.arms {
            if let Some(cfg) = arm.attrs.iter().find(|a| a.path().is_ident("cfg")) {
                return refuse(cfg.span(), "#[cfg] on an arm");
            }
            let (pattern, guard): (&Pat, Option<&Expr>) = match &arm.pat {
                Pat::Guard(guarded) => (&guarded.pat, Some(&guarded.guard)),
                other => (other, None),
            };
            arms.push((self.alternatives(pattern, &values)?, guard));
        }
        let leaves: bool = e.arms.iter().any(|arm| breaks(&arm.body));
        match self.labels(&values, &arms) {
            Some(labels) if !leaves => {
                self.open(format!("switch ({}) ", values[0].code));
                for (arm, mut labels) in e.arms.iter().zip(labels) {
                    if labels.is_empty() {
                        continue;
                    }
                    let last: String = labels.pop().unwrap_or_default();
                    for label in labels {
                        self.line(label);
                    }
                    self.open(format!("{last} "));
                    self.arm_body(&arm.body, target)?;
                    if !self.ends_abruptly() {
                        self.line("break;");
                    }
                    self.close();
                }
                self.close();
            }
            _ => {
                for value in &mut values {
                    if value.effect >= Effect::Reads || !value.atom {
                        *value = self.spill(value);
                    }
                }
                self.chain(e, &values, &arms, target)?;
            }
        }
        Ok(())
    }

    fn arm_body(&mut self, body: &Expr, target: &Target) -> Result<()> {
        match body {
            Expr::Block(block) if block.label.is_none() => self.block(&block.block, target),
            other => self.send(other, target),
        }
    }

    fn ends_abruptly(&self) -> bool {
        let last: &str = self.lines.last().map_or("", |line| line.trim());
        last.starts_with("return") || last == "continue;" || last == "rs::unreachable();"
    }

    /// The matched values: the elements of a tuple, or one value.
    fn scrutinees(&mut self, e: &Expr) -> Result<Vec<Ex>> {
        let values: Vec<Ex> = match e {
            Expr::Tuple(tuple) => {
                let parts = tuple.elems.iter().map(|e| (e, ()));
                self.operands(parts, |body, e, ()| body.expression(e, None))?
            }
            e => vec![self.expression(e, None)?],
        };
        for value in &values {
            if !matches!(value.ty, Ty::Int(_) | Ty::Bool | Ty::Enum(_)) {
                return refuse(e.span(), format!("a match on {}", value.ty.rust(self.krate)));
            }
        }
        Ok(values)
    }

    fn alternatives<'e>(&mut self, pattern: &'e Pat, values: &[Ex]) -> Result<Vec<Alternative<'e>>> {
        match pattern {
            Pat::Or(or) if values.len() > 1 => {
                let mut all: Vec<Alternative<'_>> = Vec::new();
                for case in &or.cases {
                    all.extend(self.alternatives(case, values)?);
                }
                match all.iter().find_map(|a| a.names.first()) {
                    Some((name, _)) => refuse(name.span(), "a name in a pattern with alternatives"),
                    None => Ok(all),
                }
            }
            Pat::Paren(inner) => self.alternatives(&inner.pat, values),
            Pat::Tuple(tuple) if values.len() > 1 => {
                if tuple.elems.len() != values.len() {
                    return refuse(
                        tuple.span(),
                        format!("a pattern of {} for {} values", tuple.elems.len(), values.len()),
                    );
                }
                let mut whole: Alternative<'_> = Alternative { tests: Vec::new(), names: Vec::new() };
                for (at, part) in tuple.elems.iter().enumerate() {
                    let (tests, name): (Vec<Test>, Option<&Ident>) = self.tests(part, &values[at])?;
                    whole.tests.push(tests);
                    whole.names.extend(name.map(|name| (name, at)));
                }
                Ok(vec![whole])
            }
            Pat::Wild(_) => Ok(vec![Alternative {
                tests: values.iter().map(|_| vec![Test::Any]).collect(),
                names: Vec::new(),
            }]),
            one if values.len() == 1 => {
                let (tests, name): (Vec<Test>, Option<&Ident>) = self.tests(one, &values[0])?;
                Ok(vec![Alternative {
                    tests: vec![tests],
                    names: name.map(|name| (name, 0)).into_iter().collect(),
                }])
            }
            other => refuse(other.span(), "this pattern for several values"),
        }
    }

    fn tests<'e>(&mut self, pattern: &'e Pat, value: &Ex) -> Result<(Vec<Test>, Option<&'e Ident>)> {
        match pattern {
            Pat::Or(or) => {
                let mut all: Vec<Test> = Vec::new();
                for case in &or.cases {
                    let (tests, name): (Vec<Test>, Option<&Ident>) = self.tests(case, value)?;
                    if let Some(name) = name {
                        return refuse(name.span(), "a name in a pattern with alternatives");
                    }
                    all.extend(tests);
                }
                Ok((all, None))
            }
            Pat::Paren(inner) => self.tests(&inner.pat, value),
            one => self.test(one, value).map(|(test, name)| (vec![test], name)),
        }
    }

    fn test<'e>(&mut self, pattern: &'e Pat, value: &Ex) -> Result<(Test, Option<&'e Ident>)> {
        let int: Option<Int> = match value.ty {
            Ty::Int(int) => Some(int),
            _ => None,
        };
        let number = |body: &Self, e: &Expr| constants::number(body.krate, body.module, e, int);
        let test: Test = match pattern {
            Pat::Wild(_) => Test::Any,
            Pat::Lit(lit) => match &lit.lit {
                syn::Lit::Bool(bool) => Test::Bool(bool.value),
                _ => {
                    let n: i128 = number(self, &Expr::Lit(lit.clone()))?;
                    Test::Numbers(n, n)
                }
            },
            Pat::Range(range) => {
                let Some(int) = int else {
                    return refuse(range.span(), "a range of something else than integers");
                };
                let lo: i128 = range.start.as_ref().map_or(Ok(int.min()), |e| number(self, e))?;
                let hi: i128 = range.end.as_ref().map_or(Ok(int.max()), |e| number(self, e))?;
                let closed: bool = range.end.is_none() || matches!(range.limits, RangeLimits::Closed(_));
                Test::Numbers(lo, if closed { hi } else { hi - 1 })
            }
            Pat::Path(path) => self.named(&path.path, value)?,
            Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() && p.mutability.is_none() => {
                let path: syn::Path = p.ident.clone().into();
                let local: Option<usize> =
                    self.function.and_then(|f| f.constants.get(&p.ident.to_string())).copied();
                if let Some(id) = local {
                    let n: i128 =
                        constants::number(self.krate, self.module, &self.krate.consts[id].value, int)?;
                    Test::Numbers(n, n)
                } else if p.ident.to_string().starts_with(|c: char| c.is_uppercase()) {
                    self.named(&path, value)?
                } else {
                    return Ok((Test::Any, Some(&p.ident)));
                }
            }
            other => {
                return refuse(
                    other.span(),
                    "this pattern: numbers, constants, ranges, `|` and `_` are known",
                );
            }
        };
        Ok((test, None))
    }

    fn named(&mut self, path: &syn::Path, value: &Ex) -> Result<Test> {
        if let Def::Variant(id, at) = self.resolve_value(path)? {
            if value.ty != Ty::Enum(id) {
                return refuse(path.span(), "a variant of another enum");
            }
            return Ok(Test::Variant(id, at));
        }
        let e: Expr = Expr::Path(syn::ExprPath { attrs: Vec::new(), qself: None, path: path.clone() });
        let int: Option<Int> = match value.ty {
            Ty::Int(int) => Some(int),
            _ => None,
        };
        let n: i128 = constants::number(self.krate, self.module, &e, int)?;
        Ok(Test::Numbers(n, n))
    }

    fn resolve_value(&self, path: &syn::Path) -> Result<Def> {
        let is_limit: bool =
            path.segments.len() == 2 && Int::from_name(&path.segments[0].ident.to_string()).is_some();
        if is_limit { Ok(Def::Host) } else { self.krate.resolve(self.module, path, Space::Values) }
    }

    /// The `case` labels of each arm, if the match is a `switch`. Numbers of earlier arms are left out.
    fn labels(
        &self,
        values: &[Ex],
        arms: &[(Vec<Alternative<'_>>, Option<&Expr>)],
    ) -> Option<Vec<Vec<String>>> {
        let [value] = values else { return None };
        let mut taken: std::collections::HashSet<i128> = std::collections::HashSet::new();
        let mut all: Vec<Vec<String>> = Vec::new();
        let mut caught: bool = false;
        for (at, (alternatives, guard)) in arms.iter().enumerate() {
            let mut labels: Vec<String> = Vec::new();
            let mut any: bool = false;
            for alternative in alternatives {
                if guard.is_some() || !alternative.names.is_empty() {
                    return None;
                }
                for test in &alternative.tests[0] {
                    match (test, &value.ty) {
                        (Test::Any, _) => any = true,
                        (Test::Numbers(lo, hi), Ty::Int(int)) => {
                            if hi - lo >= MOST_LABELS as i128 {
                                return None;
                            }
                            let new = (*lo..=*hi).filter(|n| taken.insert(*n));
                            labels.extend(new.map(|n| format!("case {}:", int.literal(n))));
                        }
                        (Test::Variant(id, variant), _) => {
                            let name: String = cpp_name(&self.krate.enums[*id].variants[*variant].0);
                            if taken.insert(*variant as i128) {
                                labels.push(format!("case {}::{name}:", Ty::Enum(*id).cpp(self.krate)));
                            }
                        }
                        _ => return None,
                    }
                }
            }
            if any || (at + 1 == arms.len() && !caught) {
                // Rust has checked that the arms are exhaustive, so the last arm can be the default.
                labels.push("default:".into());
                caught = true;
            }
            all.push(labels);
            if any {
                all.resize(arms.len(), Vec::new());
                break;
            }
        }
        (taken.len() <= MOST_LABELS).then_some(all)
    }

    fn chain(
        &mut self,
        e: &ExprMatch,
        values: &[Ex],
        arms: &[(Vec<Alternative<'_>>, Option<&Expr>)],
        target: &Target,
    ) -> Result<()> {
        for (at, (arm, (alternatives, guard))) in e.arms.iter().zip(arms).enumerate() {
            let mut conditions: Vec<String> = Vec::new();
            for alternative in alternatives {
                conditions.push(self.condition(values, alternative));
            }
            let always: bool = conditions.iter().any(String::is_empty);
            let last: bool = at + 1 == e.arms.len() && guard.is_none();
            let mut condition: String = match (always || last, conditions.len()) {
                (true, _) => String::new(),
                (false, 1) => conditions.remove(0),
                (false, _) => conditions.iter().map(|c| format!("({c})")).collect::<Vec<_>>().join(" || "),
            };
            if let Some(guard) = guard {
                // Names bound by the pattern are the values themselves, which have names already.
                self.enter();
                self.depth -= 1;
                self.name_values(alternatives, values);
                let at: usize = self.lines.len();
                let ex: Ex = self.expression(guard, Some(&Ty::Bool))?;
                if self.lines.len() > at || ex.effect == Effect::Writes {
                    return refuse(guard.span(), "a guard that is more than an expression");
                }
                self.depth += 1;
                self.leave();
                condition = match condition.as_str() {
                    "" => ex.code,
                    c => format!("({c}) && {}", ex.wrapped()),
                };
            }
            let opening: String = match (at, condition.as_str()) {
                (0, "") => "{".into(),
                (0, c) => format!("if ({c}) {{"),
                (_, "") => "} else {".into(),
                (_, c) => format!("}} else if ({c}) {{"),
            };
            self.line(opening);
            self.enter();
            self.name_values(alternatives, values);
            self.arm_body(&arm.body, target)?;
            self.leave();
            if condition.is_empty() {
                break;
            }
        }
        self.line("}");
        Ok(())
    }

    fn name_values(&mut self, alternatives: &[Alternative<'_>], values: &[Ex]) {
        for (name, at) in alternatives.iter().flat_map(|a| &a.names) {
            self.bind(name, values[*at].code.clone(), values[*at].ty.clone(), false);
        }
    }

    /// The condition under which an alternative matches; empty if it always does.
    fn condition(&self, values: &[Ex], alternative: &Alternative<'_>) -> String {
        let mut parts: Vec<String> = Vec::new();
        for (tests, value) in alternative.tests.iter().zip(values) {
            let any: Vec<String> = tests.iter().map(|test| self.asks(test, value)).collect();
            match any.as_slice() {
                _ if any.iter().any(String::is_empty) => {}
                [one] => parts.push(one.clone()),
                _ => {
                    let each: Vec<String> = any.iter().map(|c| format!("({c})")).collect();
                    parts.push(format!("({})", each.join(" || ")));
                }
            }
        }
        parts.join(" && ")
    }

    /// A test as a condition; empty if it always holds.
    fn asks(&self, test: &Test, value: &Ex) -> String {
        let v: String = value.wrapped();
        match (test, &value.ty) {
            (Test::Bool(true), _) => v,
            (Test::Bool(false), _) => format!("!{v}"),
            (Test::Variant(id, at), ty) => {
                let name: String = cpp_name(&self.krate.enums[*id].variants[*at].0);
                format!("{v} == {}::{name}", ty.cpp(self.krate))
            }
            (Test::Numbers(lo, hi), Ty::Int(int)) if lo == hi => format!("{v} == {}", int.literal(*lo)),
            (Test::Numbers(lo, hi), Ty::Int(_)) if lo > hi => "false".into(),
            (Test::Numbers(lo, hi), Ty::Int(int)) => {
                let above = (*lo > int.min()).then(|| format!("{v} >= {}", int.literal(*lo)));
                let below = (*hi < int.max()).then(|| format!("{v} <= {}", int.literal(*hi)));
                above.into_iter().chain(below).collect::<Vec<_>>().join(" && ")
            }
            _ => String::new(),
        }
    }

    /// `matches!(e, pattern)`.
    pub fn matches(&mut self, e: &Expr, pattern: &Pat) -> Result<Ex> {
        if let Pat::Guard(guarded) = pattern {
            return refuse(guarded.guard.span(), "a guard in `matches!`");
        }
        let mut values: Vec<Ex> = self.scrutinees(e)?;
        for value in &mut values {
            if value.effect >= Effect::Reads || !value.atom {
                *value = self.spill(value);
            }
        }
        let alternatives: Vec<Alternative<'_>> = self.alternatives(pattern, &values)?;
        let conditions: Vec<String> = alternatives.iter().map(|a| self.condition(&values, a)).collect();
        let code: String = if conditions.iter().any(String::is_empty) {
            "true".into()
        } else {
            conditions.iter().map(|c| format!("({c})")).collect::<Vec<_>>().join(" || ")
        };
        Ok(Ex::new(code, Ty::Bool, Effect::None).compound())
    }
}

/// Finds a `break` that leaves a loop around the expression.
struct Breaks {
    found: bool,
}

impl<'a> Visit<'a> for Breaks {
    fn visit_expr_break(&mut self, _: &'a syn::ExprBreak) {
        self.found = true;
    }
    fn visit_expr_while(&mut self, _: &'a syn::ExprWhile) {}
    fn visit_expr_loop(&mut self, _: &'a syn::ExprLoop) {}
    fn visit_expr_for_loop(&mut self, _: &'a syn::ExprForLoop) {}
}

fn breaks(e: &Expr) -> bool {
    let mut search: Breaks = Breaks { found: false };
    search.visit_expr(e);
    search.found
}
