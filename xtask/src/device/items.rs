//! The items in the device modules of a crate by name.

use super::constants;
use super::names::{Def, Import, Space, check_name, flatten, spelled};
use super::refusal::{Refusal, Result, refuse};
use super::source::{self, Module};
use super::types::{Int, Ty};
use proc_macro2::Span;
use std::collections::HashMap;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Attribute, Expr, FnArg, Ident, Item, ItemFn, Pat, ReceiverKind, ReturnType, Type, Visibility};

/// A named field of a struct.
pub struct Field {
    pub name: String,
    pub ty: Ty,
    pub public: bool,
}

pub struct Struct {
    pub module: usize,
    pub name: String,
    pub doc: Vec<String>,
    pub public: bool,
    pub repr_c: bool,
    /// The fields, without the text fields of table rows.
    pub fields: Vec<Field>,
    /// Names of the text fields.
    pub text_fields: Vec<String>,
    item: syn::ItemStruct,
}

pub struct Enum {
    pub module: usize,
    pub name: String,
    pub repr: Int,
    pub variants: Vec<(String, i128)>,
    pub item: syn::ItemEnum,
}

pub struct Const {
    pub module: usize,
    pub name: String,
    pub doc: Vec<String>,
    pub ty: Ty,
    pub value: Expr,
    pub span: Span,
    written_ty: Type,
}

pub struct Parameter {
    /// `None` for `_`.
    pub name: Option<Ident>,
    pub mutable: bool,
    pub ty: Ty,
}

pub struct Function {
    pub module: usize,
    pub name: String,
    pub doc: Vec<String>,
    pub parameters: Vec<Parameter>,
    pub result: Ty,
    /// Constants declared in the body, by name.
    pub constants: HashMap<String, usize>,
    /// The trait of the type parameter, if there is one.
    pub bound: Option<usize>,
    pub item: ItemFn,
}

/// A trait that a generic function requires of its type parameter. A kernel passes a C++ struct with member
/// functions of these names.
pub struct Trait {
    pub module: usize,
    pub name: String,
    pub methods: Vec<Method>,
    item: syn::ItemTrait,
}

pub struct Method {
    pub name: String,
    /// The method has `&mut self`.
    pub mutable: bool,
    /// Parameters, without `self`.
    pub parameters: Vec<Parameter>,
    pub result: Ty,
}

impl Function {
    pub fn is_const(&self) -> bool {
        self.item.sig.constness.is_some()
    }
}

struct Alias {
    module: usize,
    ty: Type,
}

pub struct Crate {
    pub root: String,
    pub modules: Vec<Module>,
    pub structs: Vec<Struct>,
    pub enums: Vec<Enum>,
    pub consts: Vec<Const>,
    pub functions: Vec<Function>,
    pub traits: Vec<Trait>,
    aliases: Vec<Alias>,
    /// Names of types and modules, and names of values: Rust has two namespaces.
    pub names: [HashMap<(usize, String), Def>; 2],
    pub imports: Vec<Vec<Import>>,
}

impl Crate {
    /// Collects all items. Returns all refusals of declarations together.
    pub fn new(root: &str, modules: Vec<Module>) -> std::result::Result<Crate, Vec<Refusal>> {
        let mut krate: Crate = Crate {
            root: root.to_string(),
            imports: modules.iter().map(|_| Vec::new()).collect(),
            modules,
            structs: Vec::new(),
            enums: Vec::new(),
            consts: Vec::new(),
            functions: Vec::new(),
            traits: Vec::new(),
            aliases: Vec::new(),
            names: [HashMap::new(), HashMap::new()],
        };
        let mut refusals: Vec<Refusal> = Vec::new();
        for module in 0..krate.modules.len() {
            let items: Vec<Item> = std::mem::take(&mut krate.modules[module].items);
            for item in items {
                if let Err(refusal) = krate.declare(module, item) {
                    refusals.push(refusal.in_file(&krate.modules[module].file));
                }
            }
        }
        krate.finish(&mut refusals);
        if refusals.is_empty() { Ok(krate) } else { Err(refusals) }
    }

    fn name(&mut self, module: usize, space: Space, name: &Ident, def: Def) {
        self.names[space as usize].insert((module, name.to_string()), def);
    }

    fn declare(&mut self, module: usize, item: Item) -> Result<()> {
        let attributes: &[Attribute] = source::attributes(&item);
        let device: bool = self.modules[module].device;
        let host: bool = !device || source::is_host_only(attributes);
        if device && let Some(cfg) = source::other_cfg(attributes) {
            return refuse(
                cfg.span(),
                "only #[cfg(test)] and #[cfg(not(device))] are known in a device file",
            );
        }
        if !host && let Some(name) = item_name(&item) {
            check_name(name)?;
        }
        match item {
            Item::Mod(m) => {
                let child = self.modules.iter().position(|other| {
                    other.parent == Some(module) && other.path.last().is_some_and(|last| m.ident == last)
                });
                match child {
                    Some(child) => self.name(module, Space::Types, &m.ident, Def::Module(child)),
                    None if host => {}
                    None => return refuse(m.span(), "a module in braces: give it a file"),
                }
            }
            Item::Use(u) => {
                flatten(&u.tree, &mut Vec::new(), &mut self.imports[module]);
            }
            Item::Struct(s) if host => self.name(module, Space::Types, &s.ident, Def::Host),
            Item::Enum(e) if host => self.name(module, Space::Types, &e.ident, Def::Host),
            Item::Type(t) if host => self.name(module, Space::Types, &t.ident, Def::Host),
            Item::Trait(t) if host => self.name(module, Space::Types, &t.ident, Def::Host),
            Item::Const(c) if host => self.name(module, Space::Values, &c.ident, Def::Host),
            Item::Static(c) if host => self.name(module, Space::Values, &c.ident, Def::Host),
            Item::Fn(f) if host => self.name(module, Space::Values, &f.sig.ident, Def::Host),
            _ if host => {}
            Item::Struct(s) => return self.declare_struct(module, s),
            Item::Enum(e) => return self.declare_enum(module, e),
            Item::Type(t) => {
                if !t.generics.params.is_empty() {
                    return refuse(t.generics.span(), "a generic type alias");
                }
                let def = Def::Alias(self.aliases.len());
                self.name(module, Space::Types, &t.ident, def);
                self.aliases.push(Alias { module, ty: *t.ty });
            }
            Item::Const(c) => {
                let span: Span = c.ident.span();
                self.declare_const(module, &c.ident, *c.ty, *c.expr, &c.attrs, span);
            }
            Item::Static(s) => {
                if !matches!(s.mutability, syn::StaticMutability::None) {
                    return refuse(
                        s.span(),
                        "`static mut`: state belongs in a struct that is passed by reference",
                    );
                }
                let span: Span = s.ident.span();
                self.declare_const(module, &s.ident, *s.ty, *s.expr, &s.attrs, span);
            }
            Item::Fn(f) => return self.declare_function(module, f),
            Item::Impl(i) => {
                return refuse(i.span(), "an impl block: use free functions, or #[cfg(not(device))]");
            }
            Item::Trait(t) => return self.declare_trait(module, t),
            Item::Union(u) => return refuse(u.span(), "a union"),
            Item::Macro(m) => return refuse(m.span(), "a macro"),
            Item::ForeignMod(f) => return refuse(f.span(), "foreign functions"),
            other => return refuse(other.span(), "this kind of item"),
        }
        Ok(())
    }

    fn declare_struct(&mut self, module: usize, item: syn::ItemStruct) -> Result<()> {
        if !item.generics.params.is_empty() {
            return refuse(item.generics.span(), format!("generic struct `{}`", item.ident));
        }
        if !matches!(item.fields, syn::Fields::Named(_)) {
            return refuse(item.span(), format!("struct `{}` without named fields", item.ident));
        }
        for word in ["Clone", "Copy"] {
            if !source::has_attribute(&item.attrs, "derive", Some(word)) {
                return refuse(
                    item.ident.span(),
                    format!("struct `{}` needs #[derive(Clone, Copy)]", item.ident),
                );
            }
        }
        self.name(module, Space::Types, &item.ident, Def::Struct(self.structs.len()));
        self.structs.push(Struct {
            module,
            name: item.ident.to_string(),
            doc: source::doc_lines(&item.attrs),
            public: matches!(item.vis, Visibility::Public(_)),
            repr_c: source::has_attribute(&item.attrs, "repr", Some("C")),
            fields: Vec::new(),
            text_fields: Vec::new(),
            item,
        });
        Ok(())
    }

    fn declare_enum(&mut self, module: usize, item: syn::ItemEnum) -> Result<()> {
        let repr =
            ["u8", "u16", "u32"].into_iter().find(|r| source::has_attribute(&item.attrs, "repr", Some(r)));
        let Some(repr) = repr.and_then(Int::from_name) else {
            return refuse(item.ident.span(), format!("enum `{}` needs #[repr(u8)], u16 or u32", item.ident));
        };
        if let Some(v) = item.variants.iter().find(|v| !matches!(v.fields, syn::Fields::Unit)) {
            return refuse(v.span(), format!("variant `{}` with fields", v.ident));
        }
        self.name(module, Space::Types, &item.ident, Def::Enum(self.enums.len()));
        self.enums.push(Enum { module, name: item.ident.to_string(), repr, variants: Vec::new(), item });
        Ok(())
    }

    fn declare_const(
        &mut self,
        module: usize,
        name: &Ident,
        ty: Type,
        value: Expr,
        attributes: &[Attribute],
        span: Span,
    ) {
        self.name(module, Space::Values, name, Def::Const(self.consts.len()));
        self.push_const(module, name.to_string(), ty, value, source::doc_lines(attributes), span);
    }

    fn push_const(
        &mut self,
        module: usize,
        name: String,
        ty: Type,
        value: Expr,
        doc: Vec<String>,
        span: Span,
    ) {
        self.consts.push(Const { module, name, doc, ty: Ty::Unit, value, span, written_ty: ty });
    }

    fn declare_function(&mut self, module: usize, item: ItemFn) -> Result<()> {
        let signature: &syn::Signature = &item.sig;
        let name: String = signature.ident.to_string();
        check_generics(signature)?;
        if let Some(token) = &signature.asyncness {
            return refuse(token.span(), format!("async function `{name}`"));
        }
        if !matches!(signature.safety, syn::Safety::Default) {
            return refuse(signature.safety.span(), format!("unsafe function `{name}`"));
        }
        if let Some(abi) = &signature.abi {
            return refuse(abi.span(), format!("`extern` on function `{name}`"));
        }
        let mut inner: InnerConstants = InnerConstants { found: Vec::new() };
        inner.visit_block(&item.block);
        let mut constants: HashMap<String, usize> = HashMap::new();
        for constant in inner.found {
            if constants.insert(constant.ident.to_string(), self.consts.len()).is_some() {
                return refuse(constant.ident.span(), "a second constant of this name in one function");
            }
            let spelled: String = format!("{name}_{}", constant.ident);
            let doc: Vec<String> = source::doc_lines(&constant.attrs);
            self.push_const(module, spelled, *constant.ty, *constant.expr, doc, constant.ident.span());
        }
        self.name(module, Space::Values, &signature.ident, Def::Function(self.functions.len()));
        let doc: Vec<String> = source::doc_lines(&item.attrs);
        self.functions.push(Function {
            module,
            name,
            doc,
            parameters: Vec::new(),
            result: Ty::Unit,
            constants,
            bound: None,
            item,
        });
        Ok(())
    }

    fn declare_trait(&mut self, module: usize, item: syn::ItemTrait) -> Result<()> {
        if !item.generics.params.is_empty() || !item.supertraits.is_empty() || item.unsafety.is_some() {
            return refuse(item.span(), "a trait with parameters, with supertraits, or unsafe");
        }
        for member in &item.items {
            match member {
                syn::TraitItem::Fn(method) if method.default.is_some() => {
                    return refuse(method.span(), "a method with a body: the device's struct has its own");
                }
                syn::TraitItem::Fn(method) if method.sig.generics.params.is_empty() => {
                    check_name(&method.sig.ident)?;
                }
                other => return refuse(other.span(), "a trait of more than methods"),
            }
        }
        self.name(module, Space::Types, &item.ident, Def::Trait(self.traits.len()));
        self.traits.push(Trait { module, name: item.ident.to_string(), methods: Vec::new(), item });
        Ok(())
    }

    /// Resolves the types in the declarations of items.
    fn finish(&mut self, refusals: &mut Vec<Refusal>) {
        let mut note = |krate: &Crate, module: usize, refusal: Refusal| {
            refusals.push(refusal.in_file(&krate.modules[module].file));
        };
        for id in 0..self.enums.len() {
            match self.enum_variants(id) {
                Ok(variants) => self.enums[id].variants = variants,
                Err(refusal) => note(self, self.enums[id].module, refusal),
            }
        }
        for id in 0..self.consts.len() {
            match self.ty(self.consts[id].module, &self.consts[id].written_ty) {
                Ok(ty) => self.consts[id].ty = ty,
                Err(refusal) => note(self, self.consts[id].module, refusal),
            }
        }
        for id in 0..self.structs.len() {
            match self.struct_fields(id) {
                Ok((fields, text)) => {
                    self.structs[id].fields = fields;
                    self.structs[id].text_fields = text;
                }
                Err(refusal) => note(self, self.structs[id].module, refusal),
            }
        }
        for id in 0..self.traits.len() {
            match self.methods(id) {
                Ok(methods) => self.traits[id].methods = methods,
                Err(refusal) => note(self, self.traits[id].module, refusal),
            }
        }
        for id in 0..self.functions.len() {
            let function: &Function = &self.functions[id];
            let signature = self.bound(function).and_then(|bound| {
                let (parameters, result) = self.signature(
                    function.module,
                    function.item.sig.inputs.iter(),
                    &function.item.sig,
                    bound.as_ref(),
                )?;
                Ok((bound, parameters, result))
            });
            match signature {
                Ok((bound, parameters, result)) => {
                    self.functions[id].bound = bound.map(|(_, id)| id);
                    self.functions[id].parameters = parameters;
                    self.functions[id].result = result;
                }
                Err(refusal) => note(self, self.functions[id].module, refusal),
            }
        }
    }

    fn enum_variants(&self, id: usize) -> Result<Vec<(String, i128)>> {
        let item: &Enum = &self.enums[id];
        let mut next: i128 = 0;
        let mut variants: Vec<(String, i128)> = Vec::new();
        for variant in &item.item.variants {
            if let Some((_, value)) = &variant.discriminant {
                next = constants::number(self, item.module, value, Some(item.repr))?;
            }
            variants.push((variant.ident.to_string(), next));
            next += 1;
        }
        Ok(variants)
    }

    fn struct_fields(&self, id: usize) -> Result<(Vec<Field>, Vec<String>)> {
        let item: &Struct = &self.structs[id];
        let mut fields: Vec<Field> = Vec::new();
        let mut text: Vec<String> = Vec::new();
        for field in &item.item.fields {
            let Some(name) = field.ident.as_ref().map(Ident::to_string) else { continue };
            let ty: Ty = self.ty(item.module, &field.ty)?;
            if item.repr_c && !ty.is_state() {
                let ty: String = ty.rust(self);
                let reason =
                    format!("field `{name}: {ty}` of a repr(C) struct: it has no fixed layout on the device");
                return refuse(field.span(), reason);
            }
            if ty.is_text() {
                text.push(name);
            } else if matches!(ty, Ty::Ref { .. }) {
                return refuse(
                    field.span(),
                    format!("field `{name}` is a reference: pass it beside the state"),
                );
            } else {
                fields.push(Field { name, ty, public: matches!(field.vis, Visibility::Public(_)) });
            }
        }
        if !item.repr_c && text.is_empty() {
            let reason = format!(
                "struct `{}` needs #[repr(C)] (only rows of a table with `&'static str` do not)",
                item.name
            );
            return refuse(item.item.ident.span(), reason);
        }
        Ok((fields, text))
    }

    fn methods(&self, id: usize) -> Result<Vec<Method>> {
        let item: &Trait = &self.traits[id];
        let mut methods: Vec<Method> = Vec::new();
        for member in &item.item.items {
            let syn::TraitItem::Fn(method) = member else { continue };
            let mut inputs = method.sig.inputs.iter();
            let mutable: bool = match inputs.next() {
                Some(FnArg::Receiver(syn::Receiver {
                    kind: ReceiverKind::Reference(_, None, by), ..
                })) => by.is_some(),
                _ => return refuse(method.span(), "a method without `&self` or `&mut self`"),
            };
            let (parameters, result) = self.signature(item.module, inputs, &method.sig, None)?;
            methods.push(Method { name: method.sig.ident.to_string(), mutable, parameters, result });
        }
        Ok(methods)
    }

    /// The type parameter of a function, and its trait.
    fn bound(&self, function: &Function) -> Result<Option<(Ident, usize)>> {
        let Some(syn::GenericParam::Type(parameter)) = function.item.sig.generics.params.first() else {
            return Ok(None);
        };
        let Some(syn::TypeParamBound::Trait(bound)) = parameter.bounds.first() else { return Ok(None) };
        match self.resolve(function.module, &bound.path, Space::Types)? {
            Def::Trait(id) => Ok(Some((parameter.ident.clone(), id))),
            _ => refuse(bound.span(), "a bound that is no trait of the device subset"),
        }
    }

    fn signature<'a>(
        &self,
        module: usize,
        inputs: impl Iterator<Item = &'a FnArg>,
        signature: &syn::Signature,
        bound: Option<&(Ident, usize)>,
    ) -> Result<(Vec<Parameter>, Ty)> {
        let mut parameters: Vec<Parameter> = Vec::new();
        for input in inputs {
            let FnArg::Typed(input) = input else {
                return refuse(input.span(), "a method: use a free function");
            };
            let (name, mutable): (Option<Ident>, bool) = match &*input.pat {
                Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() => {
                    (Some(p.ident.clone()), p.mutability.is_some())
                }
                Pat::Wild(_) => (None, false),
                other => {
                    return refuse(other.span(), "a pattern as parameter: name it and take it apart inside");
                }
            };
            let ty: Ty = match (&*input.ty, bound) {
                (Type::Reference(by), Some((name, id))) if is_named(&by.elem, name) => {
                    Ty::Ref { mutable: by.mutability.is_some(), to: Box::new(Ty::Parameter(*id)) }
                }
                (ty, _) => self.ty(module, ty)?,
            };
            parameters.push(Parameter { name, mutable, ty });
        }
        let result: Ty = match &signature.output {
            ReturnType::Default => Ty::Unit,
            ReturnType::Type(_, ty) => {
                let result: Ty = self.ty(module, ty)?;
                if matches!(result, Ty::Ref { .. }) {
                    return refuse(ty.span(), "a reference as result: return the value or its index");
                }
                result
            }
        };
        Ok((parameters, result))
    }

    /// Resolves a type.
    pub fn ty(&self, module: usize, ty: &Type) -> Result<Ty> {
        match ty {
            Type::Paren(inner) => self.ty(module, &inner.elem),
            Type::Array(array) => {
                let of: Ty = self.ty(module, &array.elem)?;
                if matches!(of, Ty::Ref { .. }) {
                    return refuse(array.elem.span(), "an array of references: pass them one by one");
                }
                let length: i128 = constants::number(self, module, &array.len, Some(Int::Usize))?;
                match u64::try_from(length) {
                    Ok(0) | Err(_) => refuse(array.len.span(), format!("array length {length}")),
                    Ok(length) => Ok(Ty::Array(Box::new(of), length)),
                }
            }
            Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(Ty::Unit),
            Type::Tuple(tuple) => {
                let of: Vec<Ty> = tuple.elems.iter().map(|t| self.ty(module, t)).collect::<Result<_>>()?;
                if of.iter().any(|ty| matches!(ty, Ty::Ref { .. })) {
                    return refuse(ty.span(), "a tuple with a reference: pass it beside the tuple");
                }
                if !(2..=4).contains(&of.len()) {
                    return refuse(ty.span(), format!("tuple of {}: 2 to 4 are known", of.len()));
                }
                Ok(Ty::Tuple(of))
            }
            Type::Reference(reference) => {
                let mutable: bool = reference.mutability.is_some();
                let is_static: bool = reference.lifetime.as_ref().is_some_and(|l| l.ident == "static");
                let to: Ty = match &*reference.elem {
                    // Lists in the rows of tables are for the host, like their text.
                    Type::Slice(_) if is_static && !mutable => Ty::Text,
                    Type::Slice(slice) => Ty::Slice(Box::new(self.ty(module, &slice.elem)?)),
                    Type::Path(path) if path.path.is_ident("str") => {
                        if mutable || !is_static {
                            return refuse(
                                ty.span(),
                                "text: only `&'static str` in rows of tables, which is dropped",
                            );
                        }
                        Ty::Text
                    }
                    other => self.ty(module, other)?,
                };
                if let Some(lifetime) = &reference.lifetime
                    && to != Ty::Text
                {
                    return refuse(lifetime.span(), format!("lifetime `{lifetime}`"));
                }
                if matches!(to, Ty::Ref { .. }) {
                    return refuse(ty.span(), "a reference to a reference");
                }
                Ok(Ty::Ref { mutable, to: Box::new(to) })
            }
            Type::Slice(_) => refuse(ty.span(), "a slice that is not behind a reference"),
            Type::Ptr(_) => refuse(ty.span(), "a raw pointer"),
            Type::Never(_) => Ok(Ty::Never),
            Type::Path(path) if path.qself.is_none() => self.path_ty(module, &path.path),
            Type::TraitObject(_) | Type::ImplTrait(_) => refuse(ty.span(), "a trait as type"),
            Type::Infer(_) => refuse(ty.span(), "`_` as type: write it"),
            _ => refuse(ty.span(), "this kind of type"),
        }
    }

    fn path_ty(&self, module: usize, path: &syn::Path) -> Result<Ty> {
        if let Some(generic) = path.segments.iter().find(|s| !s.arguments.is_none()) {
            return refuse(generic.span(), format!("type `{}` with parameters", generic.ident));
        }
        if let Some(ident) = path.get_ident() {
            let name: String = ident.to_string();
            if let Some(int) = Int::from_name(&name) {
                return Ok(Ty::Int(int));
            }
            match name.as_str() {
                "bool" => return Ok(Ty::Bool),
                "f32" => return Ok(Ty::Float(false)),
                "f64" => return Ok(Ty::Float(true)),
                "isize" | "i128" | "u128" | "char" => {
                    return refuse(ident.span(), format!("type `{name}`: integers have 8 to 64 bits here"));
                }
                _ => {}
            }
        }
        match self.resolve(module, path, Space::Types)? {
            Def::Struct(id) => Ok(Ty::Struct(id)),
            Def::Enum(id) => Ok(Ty::Enum(id)),
            Def::Alias(id) => self
                .ty(self.aliases[id].module, &self.aliases[id].ty)
                .map_err(|r| r.in_file(&self.modules[self.aliases[id].module].file)),
            _ => refuse(path.span(), format!("`{}` is not a type of the device subset", spelled(path))),
        }
    }
}

impl Ty {
    /// True if the type may be part of a struct whose bytes are the state.
    fn is_state(&self) -> bool {
        match self {
            Ty::Bool | Ty::Float(_) | Ty::Struct(_) | Ty::Enum(_) => true,
            Ty::Int(int) => *int != Int::Usize,
            Ty::Array(of, _) => of.is_state(),
            _ => false,
        }
    }
}

/// The name of an item in C++.
fn item_name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(i) => Some(&i.ident),
        Item::Enum(i) => Some(&i.ident),
        Item::Fn(i) => Some(&i.sig.ident),
        Item::Static(i) => Some(&i.ident),
        Item::Struct(i) => Some(&i.ident),
        _ => None,
    }
}

/// Checks that a function has at most one type parameter, with one trait.
fn check_generics(signature: &syn::Signature) -> Result<()> {
    let generics: &syn::Generics = &signature.generics;
    let known: bool = match generics.params.first() {
        None => true,
        Some(syn::GenericParam::Type(parameter)) => {
            let traits = parameter.bounds.iter().filter(|b| matches!(b, syn::TypeParamBound::Trait(_)));
            generics.params.len() == 1 && parameter.bounds.len() == 1 && traits.count() == 1
        }
        Some(_) => false,
    };
    if known && generics.where_clause.is_none() {
        return Ok(());
    }
    let name: &Ident = &signature.ident;
    refuse(generics.span(), format!("generic function `{name}`: one type parameter of one trait is known"))
}

fn is_named(ty: &Type, name: &Ident) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident(name))
}

struct InnerConstants {
    found: Vec<syn::ItemConst>,
}

impl<'a> Visit<'a> for InnerConstants {
    fn visit_item_const(&mut self, item: &'a syn::ItemConst) {
        self.found.push(item.clone());
    }
}
